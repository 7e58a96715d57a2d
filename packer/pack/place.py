"""Pieces placed in blocks, for one pack group at a time.

A piece takes so many slots of a block; one that takes none is in no block. Everything here counts pieces and blocks
from the first of the group.

The decreasing strategies pack a histogram of the slots and say how many pieces of which size go into which bin: the
*fills*. Pieces, in decreasing size, are handed to the fills one after another. Bins become blocks by a keyed
permutation, so that reading the blocks in order gives a mixture. In a block, pieces lie in the order they were placed,
the larger before the smaller; equal ones in source order.

Worked example, capacity 10: sizes [3, 6, 4, 6] are ordered as pieces 3, 1, 2, 0. Bins take [6, 4] and [6, 3]; the fills
are (bin 0, one 6), (bin 1, one 6), (bin 0, one 4), (bin 1, one 3). If bin 0 becomes block 1 and bin 1 block 0, the
fills sorted by block are the second, fourth, first and third, so that their ranks are [2, 0, 3, 1]. The pieces in
that order, sorted by the rank of their fill, are 1, 0, 3, 2: block 0 holds pieces 1 and 0, block 1 pieces 3 and 2.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from packer.batches import Int32, Int64, UInt64
from packer.layout import offsets_of
from packer.pack.decreasing import best_fit_decreasing, first_fit_decreasing
from packer.pack.keyed_order import order_key, order_keys, shuffled, sorted_items
from packer.pack.next_fit import next_fit

Strategy: TypeAlias = Literal["best_fit", "first_fit", "sequential"]

_DECREASING = {"best_fit": best_fit_decreasing, "first_fit": first_fit_decreasing}
_COUNTED = 2**20  # sizes counted at a time: numpy makes 64-bit numbers of them first
_HANDED = 2**13  # fills at a time: what they are handed stays in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Pieces in block order. M pieces in B blocks, of n pieces in the group."""

    piece: Int64  # [M]
    slots: Int32  # [M]
    num_pieces: Int64  # [B] of each block
    block_of: Int64  # [n] -1 where a piece is in no block


def place(slots: Int32, capacity: int, *, strategy: Strategy, max_pieces: int | None, seed: int, group: int) -> Placed:
    """Place the pieces of a group.

    Args:
        slots: of each piece, at most ``capacity``; 0 where it is in no block.  # int32[n], n < 2^32
        capacity: slots of a block.
        strategy: which piece goes into which block.
        max_pieces: of a block.
        seed: of the permutations.
        group: number of the group; each has permutations of its own.

    """
    if not slots.any():
        return _nothing(len(slots))
    if strategy == "sequential":
        return _sequential(slots, capacity, max_pieces)
    keys = order_keys(slots, order_key("pack.deal", seed, group))
    fills = _stored_fills(_histogram(slots, capacity), strategy, max_pieces, order_key("pack.store", seed, group))
    by_rank, by_piece = _hand_out(sorted_items(keys, len(slots)), fills)
    piece = _in_order(by_rank, _bits(len(slots))).view(np.int64)
    block_of = _in_order(by_piece, _bits(len(fills.pieces_of_blocks) + 1)).view(np.int64)
    block_of -= 1
    return Placed(piece=piece, slots=fills.slots_of_pieces(), num_pieces=fills.pieces_of_blocks, block_of=block_of)


def _nothing(num_pieces: int) -> Placed:
    empty = np.empty(0, np.int64)
    return Placed(
        piece=empty, slots=empty.astype(np.int32), num_pieces=empty, block_of=np.full(num_pieces, -1, np.int64)
    )


def _sequential(slots: Int32, capacity: int, max_pieces: int | None) -> Placed:
    piece = np.flatnonzero(slots)
    are_all = len(piece) == len(slots)
    sizes = slots.copy() if are_all else slots[piece]
    num_pieces = np.diff(next_fit(sizes, capacity, max_items=max_pieces))
    block = np.repeat(np.arange(len(num_pieces)), num_pieces)
    if are_all:
        block_of = block
    else:
        block_of = np.full(len(slots), -1, np.int64)
        block_of[piece] = block
    return Placed(piece=piece, slots=sizes, num_pieces=num_pieces, block_of=block_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fills:
    """Pieces of one size that one block takes. F fills, those of larger pieces first; B blocks."""

    block: UInt64  # [F]
    num_pieces: Int64  # [F]
    rank: UInt64  # [F] place of each fill when they are sorted by block, within a block as they are
    takes: Int64  # [F] by rank: pieces in the high half, slots of each in the low one
    pieces_of_blocks: Int64  # [B]

    def slots_of_pieces(self) -> Int32:
        """Slots of each piece, in block order.  # int32[M]"""
        return np.repeat(self.takes.astype(np.int32), self.takes >> 32)


def _stored_fills(counts: Int64, strategy: Strategy, max_pieces: int | None, key: np.uint64) -> _Fills:
    """Pack a histogram of slots, from 0 to those of a whole block, and number the blocks.

    The fills of one run have filled their bins equally deep, so the place of a fill among those of its block is known,
    and its rank is that place behind the fills of the blocks before.
    """
    distinct = np.flatnonzero(counts[1:])[::-1] + 1
    runs = _DECREASING[strategy](distinct, counts[distinct], len(counts) - 1, max_items=max_pieces)
    bins = runs.bins()
    block_of_bin = shuffled(runs.total_bins, key).view(np.int64)
    fills_of_block = np.empty(runs.total_bins, np.int64)
    fills_of_block[block_of_bin] = np.bincount(bins)
    fills_before = offsets_of(fills_of_block)[:-1]
    rank = fills_before[block_of_bin][bins]
    rank += np.repeat(runs.depth, runs.num_bins)
    # What a fill takes is written in no order: two numbers in one, and once.
    takes = np.empty(len(bins), np.int64)
    takes[rank] = np.repeat(runs.items_per_bin << 32 | runs.length, runs.num_bins)
    return _Fills(
        block=block_of_bin.view(np.uint64)[bins],
        num_pieces=np.repeat(runs.items_per_bin, runs.num_bins),
        rank=rank.view(np.uint64),
        takes=takes,
        pieces_of_blocks=np.add.reduceat(takes >> 32, fills_before),
    )


def _histogram(slots: Int32, capacity: int) -> Int64:
    counts = np.zeros(capacity + 1, np.int64)
    for first in range(0, len(slots), _COUNTED):
        counted = np.bincount(slots[first : first + _COUNTED])
        counts[: len(counted)] += counted
    return counts


def _hand_out(pieces: UInt64, fills: _Fills) -> tuple[UInt64, UInt64]:
    """Hand the pieces, in their order, to the fills: numbers that say who lies where, to be sorted.

    One sort gives the pieces of each block, another the block of each piece. Writing the blocks to their pieces in no
    order needs no sort, and takes longer where pieces are many: hardly one is in the cache.

    Returns:
        rank of its fill above the number of each piece that is in a block.  # uint64[M]
        number of each piece above its block plus 1, or 0 where it is in none; takes the memory of ``pieces``.  # [n]

    """
    by_rank = np.empty(int(fills.num_pieces.sum()), np.uint64)
    index_bits, block_bits = _bits(len(pieces)), _bits(len(fills.pieces_of_blocks) + 1)
    place = 0
    for first in range(0, len(fills.rank), _HANDED):
        handed = slice(first, first + _HANDED)
        num_pieces = fills.num_pieces[handed]
        end = place + int(num_pieces.sum())
        mine = pieces[place:end]
        np.bitwise_or(np.repeat(fills.rank[handed] << index_bits, num_pieces), mine, out=by_rank[place:end])
        mine <<= block_bits
        mine |= np.repeat(fills.block[handed] + np.uint64(1), num_pieces)
        place = end
    pieces[place:] <<= block_bits
    return by_rank, pieces


def _in_order(numbers: UInt64, low_bits: np.uint64) -> UInt64:
    """Sort numbers in place, and leave of each its low bits."""
    numbers.sort()
    numbers &= np.uint64(2 ** int(low_bits) - 1)
    return numbers


def _bits(count: int) -> np.uint64:
    """Bits that hold a number below ``count``."""
    return np.uint64((count - 1).bit_length())
