"""Every mode by the rules of a recipe, against documents cut and placed one by one."""

from collections import Counter
from dataclasses import fields
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack.cases import arranged, corpora, packs
from pack.oracles import literal_best_fit_decreasing, literal_cut, literal_stream, pieces_of_blocks, reasons_of

from packer.pack.pack_plan import arrange, order_key, shuffled
from packer.pack.pieces import REASONS, DropCount
from packer.recipe.groups import MAX_BLOCK_LEN, Pack


def slots_of_blocks(plan):
    return [plan.slots[first:last].tolist() for first, last in pairwise(plan.block_offsets.tolist())]


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


@given(corpora(), packs(modes=("isolated",)))
def test_a_document_that_is_nowhere_counts_once_under_the_reason_that_decided(corpus, pack):
    packed, left_out = arranged(corpus, pack)
    _, reasons = literal_cut(*corpus, pack.block_len, pack.overlong)
    is_packed = np.isin(np.arange(len(corpus[0])), packed.document)
    expected = dict.fromkeys(REASONS, 0)
    for document in np.flatnonzero(~is_packed).tolist():
        mine = {reason for (d, _), reason in reasons.items() if d == document}
        if mine:
            expected[next(name for name in ("overlong", "untrained", "truncated") if name in mine)] += 1
    losses = left_out.counts(is_packed)
    assert {name: loss.num_documents for name, loss in losses.items()} == expected
    tokens = {name: list(reasons.values()).count(name) for name in REASONS}
    assert {name: loss.num_tokens for name, loss in losses.items()} == tokens


def test_reasons_are_named_with_what_they_cost():
    _, left_out = arranged(([20, 3], [{5, 6}, {1}]), Pack(block_len=8, overlong="reject"))
    assert left_out.counts(np.array([False, True])) == {
        "overlong": DropCount(num_documents=1, num_parts=1, num_tokens=20, num_trained=2),
        "truncated": DropCount(num_documents=0, num_parts=0, num_tokens=0, num_trained=0),
        "untrained": DropCount(num_documents=0, num_parts=0, num_tokens=0, num_trained=0),
    }
    assert left_out.num_piece_start == 0


def test_a_whole_document_that_is_kept_is_not_asked_about():
    asked = []

    def count(document, start, end):
        asked.extend(document.tolist())
        return end - start

    arrange(np.array([3, 20, 0, 5]), Pack(block_len=8, overlong="split"), count)
    assert set(asked) == {1}


@given(corpora(), packs(modes=("stream",)), st.integers(0, 3))
def test_a_stream_is_the_literal_one_of_the_documents_in_the_order_that_the_key_of_their_group_gives(
    corpus, pack, group
):
    packed, left_out = arranged(corpus, pack, group=group)
    order = shuffled(len(corpus[0]), order_key("pack.stream", pack.seed, group)).tolist()
    blocks, reasons = literal_stream(order, *corpus, pack.block_len)
    assert sorted(pieces_of_blocks(packed)) == sorted(blocks)
    assert reasons_of(left_out, REASONS) == reasons
    assert packed.slots.tolist() == packed.length.tolist()


@pytest.mark.parametrize("mode", ["isolated", "stream"])
def test_each_group_is_mixed_in_an_order_of_its_own(mode):
    lengths, pack = np.full(100, 10), Pack(mode=mode, block_len=100)
    rules = lengths, pack, lambda d, s, e: e - s
    one, other = (arrange(*rules, group=group)[0] for group in (0, 1))
    assert one.document.tolist() != other.document.tolist()
    assert sorted(one.document.tolist()) == sorted(other.document.tolist()) == list(range(100))


@given(corpora(), packs(), st.sampled_from([np.int64, np.uint8, np.uint64]))
def test_the_arrangement_is_the_same_every_time_and_for_every_integer_type(corpus, pack, dtype):
    for one, other in zip(arranged(corpus, pack), arranged(corpus, pack, dtype), strict=True):
        for field in fields(one):
            x, y = getattr(one, field.name), getattr(other, field.name)
            assert np.array_equal(x, y), field.name
            assert getattr(x, "dtype", int) == getattr(y, "dtype", int), field.name


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
