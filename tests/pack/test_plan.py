"""The plan: every document that fits in one block, the same plan every time."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack.oracles import blocks_of, literal_best_fit_decreasing

import packer.pack
from packer.pack import plan

GOLDEN_BLOCKS = [[9], [1, 5, 8], [2, 7], [0, 6]]

lengths_of_documents = st.lists(st.integers(0, 24), max_size=60)


def assert_plans_equal(one, other):
    for name in ("document", "start", "length", "block_offsets", "block_of"):
        a, b = getattr(one, name), getattr(other, name)
        assert (a.dtype, a.tolist()) == (b.dtype, b.tolist()), name


def test_the_public_names_are_sorted_and_complete():
    assert packer.pack.__all__ == ["DocumentColumns", "gather", "plan"]


@given(lengths_of_documents, st.integers(1, 20), st.integers(0, 2**63 - 1), st.none() | st.integers(1, 6))
def test_every_document_that_fits_is_in_exactly_one_block(lengths, block_len, seed, group_documents):
    packed = plan(np.array(lengths, np.int32), block_len, seed=seed, group_documents=group_documents)
    blocks = blocks_of(packed)
    fitting = [document for document, length in enumerate(lengths) if 0 < length <= block_len]
    assert sorted(document for block in blocks for document in block) == fitting
    assert all(block for block in blocks)
    assert all(sum(lengths[document] for document in block) <= block_len for block in blocks)
    block_of = {document: number for number, block in enumerate(blocks) for document in block}
    assert packed.block_of.tolist() == [block_of.get(document, -1) for document in range(len(lengths))]
    assert packed.length.tolist() == [lengths[document] for document in packed.document]
    assert not packed.start.any()
    assert all(block == sorted(block) for block in blocks)
    dtypes = [getattr(packed, name).dtype for name in ("document", "start", "length", "block_offsets", "block_of")]
    assert dtypes == [np.int64, np.int64, np.int32, np.int64, np.int64]


@given(lengths_of_documents, st.integers(1, 20), st.integers(0, 9))
def test_blocks_hold_the_lengths_of_best_fit_decreasing(lengths, block_len, seed):
    blocks = blocks_of(plan(np.array(lengths, np.int64), block_len, seed=seed))
    expected = literal_best_fit_decreasing([length for length in lengths if 0 < length <= block_len], block_len)
    found = [tuple(sorted((lengths[document] for document in block), reverse=True)) for block in blocks]
    assert Counter(found) == Counter(tuple(items) for items in expected)


@given(lengths_of_documents, st.integers(1, 20), st.integers(1, 6))
def test_groups_are_packed_apart_and_their_blocks_follow_each_other(lengths, block_len, group_documents):
    packed = plan(np.array(lengths, np.int32), block_len, group_documents=group_documents)
    groups = [{document // group_documents for document in block} for block in blocks_of(packed)]
    assert all(len(group) == 1 for group in groups)
    numbers = [number for group in groups for number in group]
    assert numbers == sorted(numbers)
    for number in range(-(-len(lengths) // group_documents)):
        part = [n for n in lengths[number * group_documents : (number + 1) * group_documents] if 0 < n <= block_len]
        assert numbers.count(number) == len(literal_best_fit_decreasing(part, block_len))


def test_the_known_answer_of_trl():
    documents = [[1, 2, 3], [4, 5, 6, 7], [8]]
    packed = plan(np.array([len(ids) for ids in documents]), 4)
    blocks = {tuple(token for document in block for token in documents[document]) for block in blocks_of(packed)}
    assert blocks == {(4, 5, 6, 7), (1, 2, 3, 8)}


def test_golden_plan():
    packed = plan(np.array([5, 3, 3, 9, 0, 2, 3, 5, 1, 8]), 8, seed=3)
    assert blocks_of(packed) == GOLDEN_BLOCKS


def test_the_plan_is_the_same_for_every_integer_type():
    lengths = np.random.default_rng(0).integers(0, 120, 500)
    expected = plan(lengths, 100, seed=1)
    for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.uint64):
        assert_plans_equal(plan(lengths.astype(dtype), 100, seed=1), expected)


def test_another_seed_deals_other_documents():
    lengths = np.full(1000, 10)
    one, other = (plan(lengths, 100, seed=seed) for seed in (0, 1))
    assert one.block_of.tolist() != other.block_of.tolist()
    assert_plans_equal(one, plan(lengths, 100, seed=0))


def test_neighbours_of_the_source_are_spread_over_the_blocks():
    """Of 10,000 documents, 100 a block, about one pair of neighbours in a hundred shares a block."""
    packed = plan(np.full(10_000, 10), 1000)
    together = np.count_nonzero(np.diff(packed.block_of) == 0)
    assert 50 < together < 150
    halves = np.add.reduceat(packed.document < 5000, packed.block_offsets[:-1])
    assert halves.min() > 25
    assert halves.max() < 75


def test_neighbouring_blocks_differ_in_the_lengths_they_hold():
    """In the order of packing the long documents come first; in the stored order the two halves look alike."""
    lengths = np.random.default_rng(1).integers(1, 1000, 20_000)
    packed = plan(lengths, 1000)
    pieces = np.diff(packed.block_offsets)
    half = len(pieces) // 2
    assert abs(pieces[:half].mean() / pieces[half:].mean() - 1) < 0.05


def test_no_documents_give_no_blocks():
    for lengths in (np.empty(0, np.int32), np.empty(0), np.zeros(3, np.int64), np.array([9, 9])):
        packed = plan(lengths, 8, group_documents=2)
        assert packed.num_blocks == 0
        assert packed.block_offsets.tolist() == [0]
        assert packed.block_of.tolist() == [-1] * len(lengths)


@pytest.mark.parametrize(
    ("lengths", "arguments", "match"),
    [
        (np.array([3, -1]), {}, "document 1 has length -1"),
        (np.array([3.0]), {}, "float64"),
        (np.array([True]), {}, "bool"),
        (np.array([[3]]), {}, r"\[1, 1\]"),
        (np.array([3]), {"block_len": 0}, "block_len is 0"),
        (np.array([3]), {"block_len": 2**20 + 1}, "block_len is"),
        (np.array([3]), {"strategy": "worst_fit"}, "worst_fit"),
        (np.array([3]), {"group_documents": 0}, "group has 0"),
    ],
)
def test_misuse_is_refused(lengths, arguments, match):
    with pytest.raises(ValueError, match=match):
        plan(lengths, **{"block_len": 8, **arguments})
