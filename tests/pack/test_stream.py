"""The stream against its literal definition: documents one after another, cut wherever a block ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack.cases import counter_of, trained_documents
from pack.oracles import literal_stream, pieces_of_blocks, reasons_of
from whole_documents import mixing_of, stream_of

from packer.pack.pack_plan import order_key, shuffled
from packer.pack.pieces import REASONS

block_lens = st.integers(1, 30)
seeds = st.integers(0, 2**63 - 1)

COLUMNS = ("document", "start", "length", "slots", "block_offsets")


def stream_all(case, block_len, **options):
    lengths, trained = case
    return stream_of(np.array(lengths, np.int32), block_len, counter_of(lengths, trained), **options)


def assert_plans_equal(one, other):
    for name in COLUMNS:
        a, b = getattr(one, name), getattr(other, name)
        assert (a.dtype, a.tolist()) == (b.dtype, b.tolist()), name


@given(trained_documents(), block_lens, st.integers(0, 3), seeds)
def test_the_blocks_are_those_of_the_literal_stream_of_the_documents_as_shuffled(case, block_len, group, seed):
    """The documents of a group in the order its key gives."""
    packed, left_out = stream_all(case, block_len, group=group, seed=seed)
    order = shuffled(len(case[0]), order_key("pack.stream", seed, group)).tolist()
    blocks, reasons = literal_stream(order, *case, block_len)
    assert sorted(pieces_of_blocks(packed)) == sorted(blocks)
    assert reasons_of(left_out, REASONS) == reasons


@given(trained_documents(), block_lens, seeds)
def test_a_piece_takes_the_slots_of_its_tokens(case, block_len, seed):
    packed, _ = stream_all(case, block_len, seed=seed)
    assert packed.slots.tolist() == packed.length.tolist()
    assert [getattr(packed, name).dtype for name in COLUMNS] == [
        np.int64,
        np.int64,
        np.int32,
        np.int32,
        np.int64,
    ]


@given(st.lists(st.integers(0, 40), max_size=20), block_lens)
def test_no_more_than_one_block_has_padding(lengths, block_len):
    """Documents trained throughout. A last block of single tokens trains nothing, and is not there either."""
    case = lengths, [set(range(1, length)) for length in lengths]
    packed, _ = stream_all(case, block_len)
    filled = [sum(length for _, _, length in block) for block in pieces_of_blocks(packed)]
    short = [number for number, tokens in enumerate(filled) if tokens < block_len]
    assert max(filled, default=0) <= block_len
    assert len(short) <= 1


def trains_all(document, start, end):
    return end - start


LENGTHS = np.random.default_rng(8).integers(0, 100, 500)


def test_the_plan_is_the_same_for_every_integer_type_and_every_time():
    expected, _ = stream_of(LENGTHS, 64, trains_all, seed=1)
    assert expected.num_blocks > 300
    for dtype in (np.int64, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.uint64):
        lengths = LENGTHS.astype(dtype)
        packed, _ = stream_of(lengths, 64, trains_all, seed=1)
        assert_plans_equal(packed, expected)
        assert lengths.tolist() == LENGTHS.tolist()
        assert not np.shares_memory(packed.length, lengths)


def test_golden_streams():
    lengths = np.array([7, 3, 12, 2, 9, 0, 5])
    assert pieces_of_blocks(stream_of(lengths, 8, trains_all, seed=3)[0]) == [
        [(0, 3, 4), (2, 0, 4)],
        [(2, 4, 8)],
        [(4, 8, 1), (3, 0, 2), (1, 0, 3)],
        [(4, 0, 8)],
        [(6, 0, 5), (0, 0, 3)],
    ]


def test_the_blocks_of_a_long_document_are_not_stored_side_by_side():
    """Twenty documents of 200 blocks each: neighbors in a document are neighbors in the store as often as by chance."""
    lengths = np.full(20, 200 * 16)
    packed, _ = stream_of(lengths, 16, trains_all)
    assert packed.num_blocks == 4000
    follows = (np.diff(packed.start) == 16) & (np.diff(packed.document) == 0)
    assert follows.sum() < 10
    assert abs(mixing_of(packed, np.arange(20), blocks=50).index - 1) < 0.02


def test_neighbors_of_the_source_share_a_block_no_more_often_than_by_chance():
    lengths = np.clip(np.random.default_rng(1).lognormal(4, 1, 40_000), 1, 1000).astype(np.int32)
    packed, _ = stream_of(lengths, 1000, trains_all)
    for source in (np.arange(40_000) // 5_000, np.arange(40_000) % 8):
        assert abs(mixing_of(packed, source).index - 1) < 0.01


def test_a_block_that_trains_nothing_is_left_out_with_the_tokens_that_begin_its_pieces():
    """Token 4 is trained, but begins the second block; token 8 is alone in the third."""
    packed, left_out = stream_all(([9], [{1, 4, 8}]), 4)
    assert pieces_of_blocks(packed) == [[(0, 0, 4)]]
    assert reasons_of(left_out, REASONS) == {(0, t): "untrained" for t in range(4, 9)}
    assert left_out.trained.tolist() == [1, 1]
    assert left_out.num_piece_start == 0


@pytest.mark.parametrize("lengths", [np.empty(0, np.int32), np.zeros(3, np.int64)])
def test_no_documents_give_no_blocks(lengths):
    packed, left_out = stream_of(lengths, 8, trains_all)
    assert packed.num_blocks == len(left_out.length) == 0
