"""Seeds of examples: a pure function of run, document and epoch, and without a pattern."""

import struct

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from packer.load import example_seed

INT64 = st.integers(-(2**63), 2**63 - 1)
UINT64 = st.integers(0, 2**64 - 1)
GOLDEN = {
    (0, 0, 0): 4188062499610019093,
    (0, 1, 0): 267763381325333899,
    (1, 0, 0): 788256731970280455,
    (0, 0, 1): 6617821080368625559,
    (7, -3, 0): 1892007938069494398,
    (7, -3, 1): 1992081432862661081,
    (1, 2**63 - 1, 5): 4706372048994571734,
    (2**64 - 1, -(2**63), 2**64 - 1): 6078038644021848198,
}


@pytest.mark.parametrize("arguments", GOLDEN)
def test_golden_seeds(arguments):
    seed, doc_id, epoch = arguments
    assert example_seed(seed, doc_id, epoch) == GOLDEN[arguments]


@given(seed=UINT64, doc_ids=st.lists(INT64, max_size=8), epoch=UINT64)
def test_seeds_equal_the_written_definition(seed, doc_ids, epoch):
    expected = [xxhash.xxh3_64_intdigest(struct.pack("<QQq", seed, epoch, doc_id)) // 2 for doc_id in doc_ids]
    assert [example_seed(seed, doc_id, epoch) for doc_id in doc_ids] == expected
    assert all(0 <= each < 2**63 for each in expected)
    assert [example_seed(seed, doc_id, epoch, bits=32) for doc_id in doc_ids] == [each >> 31 for each in expected]


def seeds_of(seed, doc_ids, epoch):
    return np.array([example_seed(seed, doc_id, epoch) for doc_id in doc_ids])


def test_integers_of_numpy_are_integers():
    assert example_seed(np.int32(1), np.int8(-5), np.uint8(2)) == example_seed(1, -5, 2)


@pytest.mark.parametrize("shift", [0, 21, 42, 55])
def test_any_byte_of_the_seeds_of_documents_in_a_row_is_spread_evenly(shift):
    for epoch in range(5):
        counts = np.bincount((seeds_of(0, range(-10_000, 10_000), epoch) >> shift) & 255, minlength=256)
        chi_square = float(((counts - 20_000 / 256) ** 2 / (20_000 / 256)).sum())
        assert 160 < chi_square < 380  # 255 degrees of freedom: mean 255, deviation 23


def test_every_bit_is_as_often_set_as_not_and_no_seed_comes_twice():
    seeds = seeds_of(5, range(100_000), 0)
    assert len(np.unique(seeds)) == 100_000
    shares = [np.count_nonzero((seeds >> bit) & 1) / 100_000 for bit in range(63)]
    assert len(shares) == 63
    assert all(abs(share - 0.5) < 0.008 for share in shares)  # a share's deviation is 0.0016


@pytest.mark.parametrize("changed", ["seed", "epoch", "doc_id", "swapped"])
def test_seeds_of_another_run_epoch_or_document_are_independent(changed):
    """Half of the 63 bits differ, whatever is changed by one; also where seed and epoch change places."""
    doc_ids = range(20_000)
    one = seeds_of(8, doc_ids, 3)
    other = {
        "seed": seeds_of(9, doc_ids, 3),
        "epoch": seeds_of(8, doc_ids, 4),
        "doc_id": seeds_of(8, range(1, 20_001), 3),
        "swapped": seeds_of(3, doc_ids, 8),
    }[changed]
    differing = np.array([each.bit_count() for each in (one ^ other).tolist()])
    assert abs(differing.mean() - 31.5) < 0.2  # deviation of the mean 0.03
    assert 3.5 < differing.std() < 4.5  # 3.97
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.04  # deviation 0.007


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((-1, 0, 0), "seed is -1"),
        ((2**64, 0, 0), "seed is"),
        ((0, 2**63, 0), "doc_id is"),
        ((0, -(2**63) - 1, 0), "doc_id is"),
        ((0, 0, -1), "epoch is -1"),
        ((0, 0, 2**64), "epoch is"),
    ],
)
def test_numbers_out_of_range_are_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        example_seed(*arguments)


@pytest.mark.parametrize("arguments", [(0.0, 0, 0), (0, 1.0, 0), (0, 0, "0"), (None, 0, 0)])
def test_what_is_no_integer_is_refused(arguments):
    with pytest.raises(TypeError):
        example_seed(*arguments)
