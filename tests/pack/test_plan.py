"""The plan: every document that fits in one block, the same plan every time, and blocks that are mixed."""

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack.oracles import blocks_of, pieces_of_blocks
from whole_documents import mixing_of, plan_whole, stream_of

from packer.batches import PackPlan

GOLDEN_LENGTHS = [7, 65, 33, 2, 0, 33, 2, 101, 70, 7, 2, 65]
GOLDEN_BLOCKS = [[11, 5, 3], [8, 0, 9, 6], [1, 2, 10]]


@given(st.lists(st.integers(0, 24), max_size=60), st.integers(1, 20), st.integers(1, 3))
def test_in_a_block_longer_documents_come_first_and_equal_ones_in_source_order(lengths, block_len, align):
    packed = plan_whole(np.array(lengths, np.int64), block_len * align, align=align)
    for block in blocks_of(packed):
        assert block == sorted(block, key=lambda document: (lengths[document] // -align, document))


def test_golden_plan():
    assert blocks_of(plan_whole(np.array(GOLDEN_LENGTHS), 100, seed=3)) == GOLDEN_BLOCKS


def trains_all(document, start, end):
    return end - start


def test_golden_stream():
    lengths = np.array([7, 3, 12, 2, 9, 0, 5])
    assert pieces_of_blocks(stream_of(lengths, 8, trains_all, seed=3)[0]) == [
        [(0, 3, 4), (2, 0, 4)],
        [(2, 4, 8)],
        [(4, 8, 1), (3, 0, 2), (1, 0, 3)],
        [(4, 0, 8)],
        [(6, 0, 5), (0, 0, 3)],
    ]


@pytest.mark.parametrize("length", [2**31, 2**32, 2**32 + 3, 2**62])
def test_a_length_beyond_32_bits_is_overlong(length):
    packed = plan_whole(np.array([3, length, 5]), 8)
    assert blocks_of(packed) == [[2, 0]]


@pytest.mark.parametrize("num_documents", [1, 2, 127, 128, 129, 32_767, 32_768, 32_769])
def test_numbers_of_any_width_are_right(num_documents):
    packed = plan_whole(np.full(num_documents, 5), 5)
    assert sorted(packed.document.tolist()) == list(range(num_documents))
    assert packed.num_blocks == num_documents


def test_the_plan_shares_no_memory_with_the_lengths():
    lengths = np.full(10, 3, np.int32)
    assert not np.shares_memory(plan_whole(lengths, 8).length, lengths)


def test_neighboring_blocks_differ_in_the_lengths_they_hold():
    """In the order of packing the long documents come first; in the stored order the two halves look alike."""
    lengths = np.random.default_rng(1).integers(1, 1000, 20_000)
    packed = plan_whole(lengths, 1000)
    pieces = np.diff(packed.block_offsets)
    half = len(pieces) // 2
    assert abs(pieces[:half].mean() / pieces[half:].mean() - 1) < 0.05


def test_known_mixings():
    source = np.array([0, 0, 1, 1])
    for documents, blocks, index in (([0, 1, 2, 3], 1, 0), ([0, 2, 1, 3], 1, 1.5), ([0, 1, 2, 3], 2, 1)):
        numbers, ones = np.array(documents), np.ones(4, np.int32)
        planned = PackPlan(
            document=numbers, start=0 * numbers, length=ones, slots=ones, block_offsets=np.array([0, 2, 4])
        )
        assert mixing_of(planned, source, blocks=blocks).index == pytest.approx(index)


LENGTHS = {
    "equal": np.full(40_000, 10),
    "few lengths": np.random.default_rng(0).integers(8, 12, 40_000),
    "log-normal": np.clip(np.random.default_rng(1).lognormal(4, 1, 40_000), 1, 1000).astype(np.int32),
}


@functools.cache
def planned(name):
    return (
        stream_of(LENGTHS["log-normal"], 1000, trains_all)[0] if name == "stream" else plan_whole(LENGTHS[name], 1000)
    )


@pytest.mark.parametrize("name", [*LENGTHS, "stream"])
def test_blocks_and_windows_of_blocks_are_mixed_as_by_chance(name):
    """With sources that are stretches of the source, and with sources that take turns."""
    number = np.arange(40_000)
    for source in (number // 5_000, number % 8):
        for blocks in (1, 16):
            assert abs(mixing_of(planned(name), source, blocks=blocks).index - 1) < 0.01


@pytest.mark.parametrize("name", LENGTHS)
def test_neighbors_of_the_source_share_a_block_no_more_often_than_by_chance(name):
    """Pairs of neighbors are few: their number in blocks is within five standard deviations of what chance gives."""
    for shift in (0, 1):
        found = mixing_of(planned(name), (np.arange(40_000) + shift) // 2)
        expected = found.same_overall * found.pairs_within / found.pairs_overall
        assert expected > 10
        assert abs(found.same_within - expected) < 5 * expected**0.5


def test_the_blocks_of_a_long_document_are_not_stored_side_by_side():
    """Twenty documents of 200 blocks each: neighbors in a document are neighbors in the store as often as by chance."""
    packed, _ = stream_of(np.full(20, 200 * 16), 16, trains_all)
    assert packed.num_blocks == 4000
    follows = (np.diff(packed.start) == 16) & (np.diff(packed.document) == 0)
    assert follows.sum() < 10
    assert abs(mixing_of(packed, np.arange(20), blocks=50).index - 1) < 0.02
