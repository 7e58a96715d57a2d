"""Every mode by the rules of a recipe, against documents cut and placed one by one."""

from collections import Counter
from dataclasses import fields
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pack.cases import arranged, corpora, counter_of, packs
from pack.oracles import literal_best_fit_decreasing, literal_cut, optimum, pieces_of_blocks, reasons_of
from whole_documents import stream_of

from packer.pack.pack_plan import arrange
from packer.pack.pieces import REASONS
from packer.recipe.groups import MAX_BLOCK_LEN, Pack


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
    lengths, trained = corpus
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
    packed, _ = arranged(corpus, pack)
    blocks = pieces_of_blocks(packed)
    assert all(blocks)
    assert all(sum(slots) <= pack.block_len for slots in slots_of_blocks(packed))
    assert (packed.slots >= packed.length).all()
    assert not (packed.slots % pack.align).any()


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
    fits = [d for d, length in enumerate(corpus[0]) if 0 < length <= pack.block_len and 0 < pixels[d] <= most]
    assert sorted(d for d, _, _ in pieces) == fits
    lost = [d for d in left_out.document.tolist() if pixels[d]]
    assert sorted(lost + fits) == [d for d, length in enumerate(corpus[0]) if length and pixels[d]]


@given(corpora(), packs(modes=("isolated",)))
def test_pieces_are_those_of_the_literal_cut_in_the_blocks_of_the_literal_algorithm(corpus, pack):
    packed, left_out = arranged(corpus, pack)
    pieces, reasons = literal_cut(*corpus, pack.block_len, pack.overlong)
    assert reasons_of(left_out, REASONS) == reasons
    found = sorted(piece for block in pieces_of_blocks(packed) for piece in block)
    assert found == [(document, tokens[0], len(tokens)) for document, tokens in pieces]
    slots = [-(-len(tokens) // pack.align) * pack.align for _, tokens in pieces]
    expected = literal_best_fit_decreasing(slots, pack.block_len)
    assert Counter(map(tuple, slots_of_blocks(packed))) == Counter(map(tuple, expected))


@given(corpora(), packs(modes=("stream",)))
def test_a_stream_is_arranged_as_such(corpus, pack):
    lengths, trained = corpus
    expected = stream_of(np.array(lengths, np.int32), pack.block_len, counter_of(lengths, trained), seed=pack.seed)
    assert_equal(arranged(corpus, pack), expected)


@pytest.mark.parametrize("mode", ["isolated", "stream"])
def test_each_group_is_mixed_in_an_order_of_its_own(mode):
    lengths, pack = np.full(100, 10), Pack(mode=mode, block_len=100)
    rules = lengths, pack, lambda d, s, e: e - s
    one, other = (arrange(*rules, group=group)[0] for group in (0, 1))
    assert one.document.tolist() != other.document.tolist()
    assert sorted(one.document.tolist()) == sorted(other.document.tolist()) == list(range(100))


@given(corpora(), packs(), st.sampled_from([np.int64, np.uint8, np.uint64]))
def test_the_arrangement_is_the_same_every_time_and_for_every_integer_type(corpus, pack, dtype):
    assert_equal(arranged(corpus, pack), arranged(corpus, pack, dtype))


@given(corpora(max_documents=8), packs(modes=("isolated",)))
def test_blocks_are_as_few_as_best_fit_decreasing_promises(corpus, pack):
    """Against the least number of any placing of up to eight pieces, by their slots."""
    packed, _ = arranged(corpus, pack)
    assume(len(packed.slots) <= 8)
    best = optimum(packed.slots.tolist(), pack.block_len)
    assert best <= packed.num_blocks
    assert 9 * packed.num_blocks <= 11 * best + 6


CORNERS = {
    1: ([1, 2, 3, 0, 1], [set(), {1}, {1, 2}, set(), set()]),
    MAX_BLOCK_LEN: (
        [MAX_BLOCK_LEN, MAX_BLOCK_LEN - 1, 1, MAX_BLOCK_LEN + 5, 3],
        [{1}, {MAX_BLOCK_LEN - 2}, set(), {1, MAX_BLOCK_LEN + 1}, {2}],
    ),
}


def corner(block_len, **rules):
    """The pieces of each block, in any order of blocks, and what is left out."""
    packed, left_out = arranged(CORNERS[block_len], Pack(block_len=block_len, **rules))
    assert packed.length.sum() + left_out.length.sum() == sum(CORNERS[block_len][0])
    rows = list(zip(left_out.document.tolist(), left_out.length.tolist(), left_out.reason.tolist(), strict=True))
    return sorted(map(sorted, pieces_of_blocks(packed))), [(d, n, REASONS[reason]) for d, n, reason in rows]


def test_blocks_of_one_token():
    """Documents of one token fit; no piece of another trains anything."""
    ones = [[(0, 0, 1)], [(4, 0, 1)]]
    assert corner(1) == (ones, [(1, 2, "overlong"), (2, 3, "overlong")])
    assert corner(1, overlong="split") == (ones, [(d, 1, "untrained") for d in (1, 1, 2, 2, 2)])
    assert corner(1, overlong="truncate_right") == (
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
    assert corner(longest) == ([[first], [second, (2, 0, 1)], [(4, 0, 3)]], [(3, longest + 5, "overlong")])
    assert corner(longest, overlong="split") == (
        [[first], [second, (2, 0, 1)], [(3, 0, longest)], [(3, longest, 5), (4, 0, 3)]],
        [],
    )
    assert corner(longest, align=longest, overlong="truncate_right") == (
        [[first], [second], [(2, 0, 1)], [(3, 0, longest)], [(4, 0, 3)]],
        [(3, 5, "truncated")],
    )


def test_documents_with_more_pixels_together_than_a_block_may_have_do_not_share_one():
    """Their tokens would all fit into one."""
    pixels = np.array([6, 6, 5, 0, 4, 1])
    packed, _ = arranged(([2] * 6, [{1}] * 6), Pack(block_len=100, max_pixels=10), pixels=pixels)
    blocks = [[document for document, _, _ in block] for block in pieces_of_blocks(packed)]
    assert len(blocks) == 3
    assert all(pixels[block].sum() <= 10 for block in blocks)
