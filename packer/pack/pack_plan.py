"""The packing plan: which piece of which document lies in which block.

The plan is a pure function of its arguments. Documents are packed group by group, each group of consecutive documents
by itself, and the blocks of a group come before those of the next; so however large a corpus is, a block is gathered
from a bounded part of it. With ``align``, a piece takes a multiple of that many slots: it is packed by its padded
length.

``sequential`` keeps documents and blocks in source order. ``best_fit`` and ``first_fit`` pack a histogram of the slots
and say how many pieces of which size go into which bin: the *fills*. Pieces, in decreasing size and equal ones in the
order of a keyed hash, are handed to the fills one after another, so that neighbours of the source land in blocks far
apart. Bins become blocks by a keyed permutation, so that reading the blocks in order gives a mixture. In a block,
pieces lie in the order of its fills, the larger before the smaller; those of one fill in source order.

Worked example, capacity 10: sizes [3, 6, 4, 6] are ordered as pieces 3, 1, 2, 0. Bins take [6, 4] and [6, 3]; the fills
are (bin 0, one 6), (bin 1, one 6), (bin 0, one 4), (bin 1, one 3). If bin 0 becomes block 1 and bin 1 block 0, the
fills sorted by block are the second, fourth, first and third, so that their ranks are [2, 0, 3, 1]. The pieces in
that order, sorted by the rank of their fill, are 1, 0, 3, 2: block 0 holds pieces 1 and 0, block 1 pieces 3 and 2.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from packer.batches import Int32, Int64, PackPlan
from packer.layout import offsets_of
from packer.pack.decreasing import decreasing
from packer.pack.keyed_order import keyed_order, order_key, shuffled
from packer.pack.overlong import Pieces
from packer.recipe import Pack


def plan(pieces: Pieces, pack: Pack, *, slots: Int32 | None = None, first_group: int = 0) -> PackPlan:
    """Place pieces of documents in blocks. Every piece is in exactly one.

    Args:
        pieces: from :func:`packer.pack.overlong.cut`; none is longer than a block.
        pack: the rules, as a recipe may have them; its mode is ``isolated`` or ``eos``.
        slots: that each piece needs, where it needs more than its length; at most those of a block.  # int32[P]
        first_group: number of the group that the documents begin with.

    """
    align = np.int32(pack.align)
    units = -(-(pieces.length if slots is None else slots) // align)
    num_documents = int(pieces.document.max(initial=-1)) + 1
    bounds = np.searchsorted(pieces.document, group_bounds(num_documents, pack.group_documents))
    placed, num_pieces = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for group, (first, last) in enumerate(pairwise(bounds.tolist()), start=first_group):
        of_group, counts = _place(units[first:last], pack, group)
        placed.append(first + of_group)
        num_pieces.append(counts)
    piece = np.concatenate(placed)
    return PackPlan(
        document=pieces.document[piece],
        start=pieces.start[piece],
        length=pieces.length[piece],
        slots=units[piece] * align,
        block_offsets=offsets_of(np.concatenate(num_pieces)),
    )


def group_bounds(num_documents: int, group_documents: int) -> Int64:
    """First document of each group, and the end of the last.  # int64[G + 1]"""
    return np.append(np.arange(0, num_documents, group_documents, dtype=np.int64), num_documents)


def _place(units: Int32, pack: Pack, group: int) -> tuple[Int64, Int64]:
    """Place the pieces of a group, n < 2^32, each by the units of ``align`` slots that it takes.

    Returns:
        the pieces in block order, counted from the first of the group, and how many each block holds.  # int64[n], [B]

    """
    capacity = pack.block_len // pack.align
    if pack.strategy == "sequential":
        return np.arange(len(units)), np.diff(next_fit(units, capacity, max_items=pack.max_documents))
    counts = np.bincount(units)
    sizes = np.flatnonzero(counts)[::-1]
    runs = decreasing(sizes, counts[sizes], capacity, pack.strategy, max_items=pack.max_documents)
    block_of_bin = shuffled(runs.total_bins, order_key("pack.store", pack.seed, group))
    block = block_of_bin[runs.bins()]  # of each fill
    taken = np.repeat(runs.items_per_bin, runs.num_bins)  # pieces of each fill
    # The fills of one run have filled their bins equally deep: each stands that deep among those of its block.
    fills_before = offsets_of(np.bincount(block, minlength=runs.total_bins))
    rank = fills_before[block] + np.repeat(runs.depth, runs.num_bins)
    piece = keyed_order(units, order_key("pack.deal", pack.seed, group))
    # One sort of numbers that hold the rank of a piece's fill above the piece.
    bits = np.int64(len(units).bit_length())
    numbers = (np.repeat(rank, taken) << bits | piece).view(np.uint64)
    numbers.sort()
    piece = (numbers & np.uint64(2 ** int(bits) - 1)).view(np.int64)
    return piece, np.bincount(block, taken, minlength=runs.total_bins).astype(np.int64)


def next_fit(sizes: npt.NDArray[np.integer], capacity: int, *, max_items: int | None = None) -> Int64:
    """Where each block begins, and where the last one ends: where the next document does not fit.  # int64[B + 1]

    Which document a block ends before depends only on the one it begins with, and is looked up for all documents at
    once, in their cumulative lengths. What is left to do one by one is a step from block to block.

    Worked example, capacity 10: sizes 4, 5, 3, 7, 2 lie from 0, 4, 9, 12, 19. A block that begins at 0 has room to 10,
    which lies in the third document: it holds two. The next begins at 9 and has room to 19: it holds two. The last
    holds one.

    Args:
        sizes: each from 1 to ``capacity``.  # integers [N]
        capacity: of a block.
        max_items: documents of a block at most.

    """
    offsets = offsets_of(sizes)
    ends = np.searchsorted(offsets, offsets[:-1] + capacity, side="right") - 1
    if max_items is not None:
        ends = np.minimum(ends, np.arange(len(sizes)) + max_items)
    bounds = [0]
    while bounds[-1] < len(sizes):
        bounds.append(int(ends[bounds[-1]]))
    return np.array(bounds, np.int64)
