"""The plan: every document that fits in one block, the same plan every time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack.oracles import blocks_of
from whole_documents import plan_whole

GOLDEN_LENGTHS = [7, 65, 33, 2, 0, 33, 2, 101, 70, 7, 2, 65]
GOLDEN_BLOCKS = [[11, 5, 3], [8, 0, 9, 6], [1, 2, 10]]

lengths_of_documents = st.lists(st.integers(0, 24), max_size=60)


def assert_plans_equal(one, other):
    for name in ("document", "start", "length", "slots", "block_offsets"):
        a, b = getattr(one, name), getattr(other, name)
        assert (a.dtype, a.tolist()) == (b.dtype, b.tolist()), name


def padded(length, align):
    return -(-length // align) * align


@st.composite
def rules(draw):
    align = draw(st.sampled_from([1, 1, 2, 3, 4]))
    return {
        "block_len": align * draw(st.integers(1, 20 // align)),
        "align": align,
    }


@given(lengths_of_documents, st.integers(1, 20), st.integers(1, 3))
def test_in_a_block_longer_documents_come_first_and_equal_ones_in_source_order(lengths, block_len, align):
    packed = plan_whole(np.array(lengths, np.int64), block_len * align, align=align)
    for block in blocks_of(packed):
        assert block == sorted(block, key=lambda document: (-padded(lengths[document], align), document))


def test_golden_plan():
    assert blocks_of(plan_whole(np.array(GOLDEN_LENGTHS), 100, seed=3)) == GOLDEN_BLOCKS


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


def test_another_seed_deals_other_documents():
    lengths = np.full(1000, 10)
    one, other = (plan_whole(lengths, 100, seed=seed) for seed in (0, 1))
    assert one.document.tolist() != other.document.tolist()
    assert_plans_equal(one, plan_whole(lengths, 100, seed=0))


def test_neighboring_blocks_differ_in_the_lengths_they_hold():
    """In the order of packing the long documents come first; in the stored order the two halves look alike."""
    lengths = np.random.default_rng(1).integers(1, 1000, 20_000)
    packed = plan_whole(lengths, 1000)
    pieces = np.diff(packed.block_offsets)
    half = len(pieces) // 2
    assert abs(pieces[:half].mean() / pieces[half:].mean() - 1) < 0.05


def test_no_documents_give_no_blocks():
    for lengths in (np.empty(0, np.int32), np.empty(0), np.zeros(3, np.int64), np.array([9, 9])):
        packed = plan_whole(lengths, 8)
        assert packed.num_blocks == 0
        assert packed.block_offsets.tolist() == [0]


@given(lengths_of_documents, rules(), st.data())
def test_blocks_between_two_are_those_of_the_whole_plan(lengths, options, data):
    packed = plan_whole(np.array(lengths, np.int32), **options)
    first = data.draw(st.integers(0, packed.num_blocks))
    last = data.draw(st.integers(first, packed.num_blocks))
    part = packed.between(first, last)
    assert blocks_of(part) == blocks_of(packed)[first:last]
    bounds = packed.block_offsets[[first, last]]
    for name in ("document", "start", "length", "slots"):
        assert getattr(part, name).tolist() == getattr(packed, name)[bounds[0] : bounds[1]].tolist(), name
    assert part.num_blocks == last - first
