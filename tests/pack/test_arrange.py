"""Every mode by the rules of a recipe, against documents cut and placed one by one."""

from collections import Counter
from dataclasses import fields
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pack.cases import STRATEGIES, arranged, corpora, counter_of, packs
from pack.oracles import (
    literal_best_fit_decreasing,
    literal_cut,
    literal_next_fit,
    optimum,
    pieces_of_blocks,
    reasons_of,
)
from whole_documents import stream_of

from packer.pack import REASONS, arrange, select
from packer.recipe.pack_rules import MAX_BLOCK_LEN, Pack

LITERAL = {
    "best_fit": literal_best_fit_decreasing,
    "sequential": literal_next_fit,
}

placing = packs(modes=("isolated", "eos"))


def literal_slots(length, end, pack, stops):
    """Slots of a piece whose last token is ``end``, (document, t)."""
    if pack.mode == "eos" and end not in stops:
        return min(length + 1, pack.block_len)
    return -(-length // pack.align) * pack.align


def slots_of_blocks(plan):
    return [plan.slots[first:last].tolist() for first, last in pairwise(plan.block_offsets.tolist())]


def assert_equal(one, other):
    """Two plans with their ledgers."""
    for a, b in zip(one, other, strict=True):
        for field in fields(a):
            x, y = getattr(a, field.name), getattr(b, field.name)
            assert np.array_equal(x, y), field.name
            assert getattr(x, "dtype", int) == getattr(y, "dtype", int), field.name


@given(corpora(), packs())
def test_each_token_is_in_one_block_or_in_the_ledger(corpus, pack):
    lengths, trained, _ = corpus
    packed, left_out = arranged(corpus, pack)
    blocks = pieces_of_blocks(packed)
    kept = [(d, start + t) for block in blocks for d, start, length in block for t in range(length)]
    reasons = reasons_of(left_out, REASONS)
    assert sorted(kept + list(reasons)) == [(d, t) for d, length in enumerate(lengths) for t in range(length)]
    pieces = [piece for block in blocks for piece in block]
    num_trained = sum(len(trained[d] & set(range(start + 1, start + length))) for d, start, length in pieces)
    num_firsts = sum(start in trained[d] for d, start, _ in pieces)
    assert left_out.num_piece_start == num_firsts
    assert num_trained + num_firsts + left_out.trained.sum() == sum(map(len, trained))
    is_packed = np.isin(np.arange(len(lengths)), packed.document)
    losses = left_out.counts(is_packed)
    assert sum(loss.num_tokens for loss in losses.values()) == len(reasons)
    nowhere = sum(length > 0 for length, packs in zip(lengths, is_packed.tolist(), strict=True) if not packs)
    assert sum(loss.num_documents for loss in losses.values()) == nowhere


@given(corpora(), packs())
def test_blocks_hold_what_they_may(corpus, pack):
    lengths, _, _ = corpus
    packed, _ = arranged(corpus, pack)
    blocks = pieces_of_blocks(packed)
    assert all(blocks)
    assert all(sum(slots) <= pack.block_len for slots in slots_of_blocks(packed))
    assert (packed.slots >= packed.length).all()
    assert not (packed.slots % pack.align).any()
    assert pack.max_documents is None or max(map(len, blocks), default=0) <= pack.max_documents
    assert all(lengths[d] >= pack.min_length for block in blocks for d, _, _ in block)


@given(corpora(), packs(modes=("isolated",)), st.integers(1, 1000), st.data())
def test_documents_with_images_are_whole_and_blocks_keep_the_limit_of_pixels(corpus, pack, most, data):
    pack = msgspec.structs.replace(pack, max_pixels=most)
    of_each = st.just(0) | st.integers(1, 1500)
    pixels = np.array([data.draw(of_each) if length else 0 for length in corpus[0]], np.int64)
    packed, left_out = arranged(corpus, pack, pixels=pixels)
    blocks = pieces_of_blocks(packed)
    assert all(pixels[[d for d, _, _ in block]].sum() <= most for block in blocks)
    assert all(sum(slots) <= pack.block_len for slots in slots_of_blocks(packed))
    pieces = [piece for block in blocks for piece in block if pixels[piece[0]]]
    assert all((start, length) == (0, corpus[0][d]) for d, start, length in pieces)
    fits = [
        d for d, length in enumerate(corpus[0]) if pack.min_length <= length <= pack.block_len and 0 < pixels[d] <= most
    ]
    assert sorted(d for d, _, _ in pieces) == fits
    lost = [d for d in left_out.document.tolist() if pixels[d]]
    assert sorted(lost + fits) == [d for d, length in enumerate(corpus[0]) if length and pixels[d]]


@given(corpora(), placing)
def test_pieces_are_those_of_the_literal_cut_in_the_blocks_of_the_literal_algorithm(corpus, pack):
    lengths, trained, stops = corpus
    packed, left_out = arranged(corpus, pack)
    pieces, reasons = literal_cut(lengths, trained, pack.block_len, pack.overlong, pack.min_length)
    assert reasons_of(left_out, REASONS) == reasons
    found = sorted(piece for block in pieces_of_blocks(packed) for piece in block)
    assert found == [(document, tokens[0], len(tokens)) for document, tokens in pieces]
    slots = [literal_slots(len(tokens), (document, tokens[-1]), pack, stops) for document, tokens in pieces]
    expected = LITERAL[pack.strategy](slots, pack.block_len, pack.max_documents)
    if pack.strategy == "sequential":
        assert slots_of_blocks(packed) == expected
    else:
        assert Counter(map(tuple, slots_of_blocks(packed))) == Counter(map(tuple, expected))


@given(corpora(), packs(modes=("stream",)))
def test_a_stream_is_in_order_where_the_strategy_is_sequential_and_mixed_where_not(corpus, pack):
    lengths, trained, _ = corpus
    found = arranged(corpus, pack)
    expected = stream_of(
        np.array(lengths, np.int32),
        pack.block_len,
        counter_of(lengths, trained),
        in_order=pack.strategy == "sequential",
        seed=pack.seed,
        min_length=pack.min_length,
    )
    assert_equal(found, expected)


@pytest.mark.parametrize("mode", ["isolated", "eos", "stream"])
def test_each_group_is_mixed_in_an_order_of_its_own(mode):
    lengths, pack = np.full(100, 10), Pack(mode=mode, block_len=100)
    rules = select(lengths, pack), pack, lambda d, s, e: e - s, lambda d, e: np.zeros(len(d), bool)
    one, other = (arrange(*rules, group=group)[0] for group in (0, 1))
    assert one.document.tolist() != other.document.tolist()
    assert sorted(one.document.tolist()) == sorted(other.document.tolist()) == list(range(100))


@given(corpora(), packs(modes=("eos",)))
def test_one_slot_follows_a_piece_that_ends_in_no_stop_id_unless_it_fills_its_block(corpus, pack):
    _, _, stops = corpus
    packed, _ = arranged(corpus, pack)
    for document, start, length, slots in zip(
        *(column.tolist() for column in (packed.document, packed.start, packed.length, packed.slots)), strict=True
    ):
        is_open = (document, start + length - 1) not in stops
        assert slots - length == (1 if is_open and length < pack.block_len else 0)


def test_a_separator_is_counted_before_documents_are_placed():
    """Two documents of 4 fill a block of 8 where they end in a stop id; where they do not, each takes 5 slots."""
    pack = Pack(mode="eos", block_len=8)
    closed = arranged(([4, 4], [{1}, {1}], {(0, 3), (1, 3)}), pack)[0]
    assert slots_of_blocks(closed) == [[4, 4]]
    assert slots_of_blocks(arranged(([4, 4], [{1}, {1}], set()), pack)[0]) == [[5], [5]]
    assert slots_of_blocks(arranged(([8, 7], [{1}, {1}], set()), pack)[0]) == [[8], [8]]


@pytest.mark.parametrize(("stops", "last_slots"), [(set(), 3), ({(0, 9)}, 2), ({(0, 3), (0, 7)}, 3)])
def test_every_piece_of_a_split_document_is_asked_about_its_own_last_token(stops, last_slots):
    """A stop id in the middle of a piece, or before its end, is none at its end."""
    packed, _ = arranged(([10], [set(range(1, 10))], stops), Pack(mode="eos", block_len=4, overlong="split"))
    pieces = zip(packed.start.tolist(), packed.length.tolist(), packed.slots.tolist(), strict=True)
    assert sorted(pieces) == [(0, 4, 4), (4, 4, 4), (8, 2, last_slots)]


@pytest.mark.parametrize("mode", ["isolated", "stream"])
def test_only_eos_asks_how_pieces_end(mode):
    def ends_open(document, end):
        raise AssertionError("asked")

    pack = Pack(mode=mode, block_len=4)
    packed, _ = arrange(select(np.array([3, 4]), pack), pack, lambda d, s, e: e - s, ends_open)
    assert packed.num_blocks == 2


@given(corpora(), packs(), st.sampled_from([np.int64, np.uint8, np.uint64]))
def test_the_arrangement_is_the_same_every_time_and_for_every_integer_type(corpus, pack, dtype):
    assert_equal(arranged(corpus, pack), arranged(corpus, pack, dtype))


@given(corpora(max_documents=8), packs(modes=("isolated", "eos")))
def test_blocks_are_as_few_as_the_strategy_promises(corpus, pack):
    """Against the least number of any placing of up to eight pieces, by their slots."""
    packed, _ = arranged(corpus, pack)
    assume(len(packed.slots) <= 8)
    best = optimum(packed.slots.tolist(), pack.block_len, pack.max_documents)
    assert best <= packed.num_blocks
    if pack.max_documents is not None:
        assert packed.num_blocks <= 3 * best
    elif pack.strategy == "sequential":
        assert packed.num_blocks <= max(2 * best - 1, 0)
    else:
        assert 9 * packed.num_blocks <= 11 * best + 6


CORNERS = {
    1: ([1, 2, 3, 0, 1], [set(), {1}, {1, 2}, set(), set()], set()),
    MAX_BLOCK_LEN: (
        [MAX_BLOCK_LEN, MAX_BLOCK_LEN - 1, 1, MAX_BLOCK_LEN + 5, 3],
        [{1}, {MAX_BLOCK_LEN - 2}, set(), {1, MAX_BLOCK_LEN + 1}, {2}],
        {(4, 2)},
    ),
}


def corner(block_len, **rules):
    packed, left_out = arranged(CORNERS[block_len], Pack(block_len=block_len, strategy="sequential", **rules))
    assert packed.length.sum() + left_out.length.sum() == sum(CORNERS[block_len][0])
    rows = list(zip(left_out.document.tolist(), left_out.length.tolist(), left_out.reason.tolist(), strict=True))
    return pieces_of_blocks(packed), [(d, n, REASONS[reason]) for d, n, reason in rows]


@pytest.mark.parametrize("mode", ["isolated", "eos"])
def test_blocks_of_one_token(mode):
    """Documents of one token fit; no piece of another trains anything; no separator has room."""
    ones = [[(0, 0, 1)], [(4, 0, 1)]]
    assert corner(1, mode=mode) == (ones, [(1, 2, "overlong"), (2, 3, "overlong")])
    assert corner(1, mode=mode, overlong="split") == (ones, [(d, 1, "untrained") for d in (1, 1, 2, 2, 2)])
    assert corner(1, mode=mode, overlong="truncate_left") == (
        ones,
        [(1, 1, "truncated"), (1, 1, "untrained"), (2, 2, "truncated"), (2, 1, "untrained")],
    )
    assert corner(1, mode=mode, overlong="truncate_right") == (
        ones,
        [(1, 1, "untrained"), (1, 1, "truncated"), (2, 1, "untrained"), (2, 2, "truncated")],
    )


def test_a_stream_of_blocks_of_one_token_trains_nothing():
    blocks, left_out = corner(1, mode="stream")
    assert blocks == []
    assert [reason for _, _, reason in left_out] == ["untrained"] * 7


def test_the_longest_blocks():
    longest = MAX_BLOCK_LEN
    first, second = (0, 0, longest), (1, 0, longest - 1)
    assert corner(longest, mode="isolated") == (
        [[first], [second, (2, 0, 1)], [(4, 0, 3)]],
        [(3, longest + 5, "overlong")],
    )
    assert corner(longest, mode="eos", overlong="split") == (
        [[first], [second], [(2, 0, 1)], [(3, 0, longest)], [(3, longest, 5), (4, 0, 3)]],
        [],
    )
    assert corner(longest, mode="isolated", align=longest, overlong="truncate_left") == (
        [[first], [second], [(2, 0, 1)], [(3, 5, longest)], [(4, 0, 3)]],
        [(3, 5, "truncated")],
    )
    assert corner(longest, mode="stream") == (
        [[first], [second, (2, 0, 1)], [(3, 0, longest)], [(3, longest, 5), (4, 0, 3)]],
        [],
    )


def test_the_rules_tried_are_all_there_are():
    """The properties draw from the library's own lists: a rule that is added is tried."""
    assert set(LITERAL) == set(STRATEGIES)
