"""The packing plan: which piece of which document goes into which block.

The plan is a pure function of its arguments. With ``align``, a piece takes a multiple of that many slots: it is packed
by its padded length. With ``max_pixels``, it is packed by the larger of its shares of a block's slots and pixels, which
keeps both limits. Worked example, blocks of 100 slots and 1,000 pixels: pieces of 30 slots and 50 pixels, and of 20
slots and 600 pixels, are packed as 30 and 60.

A histogram of sizes in slots is packed by best-fit decreasing, which determines how many pieces of which size go into
which bin: the *fills*. The pieces, by decreasing size and in the order of a keyed hash among equal sizes, are assigned
to the fills in turn, so that neighbors in the source land in blocks far apart. Bins become blocks by a keyed
permutation, so that reading the blocks in order yields a mixture. Within a block, pieces are in the order of its fills,
larger before smaller; those of one fill in source order.

Worked example, capacity 10: sizes [3, 6, 4, 6] are ordered as pieces 3, 1, 2, 0. Bins take [6, 4] and [6, 3]; the fills
are (bin 0, one 6), (bin 1, one 6), (bin 0, one 4), (bin 1, one 3). If bin 0 becomes block 1 and bin 1 block 0, the
fills sorted by block are the second, fourth, first and third, so that their ranks are [2, 0, 3, 1]. The pieces in
that order, sorted by the rank of their fill, are 1, 0, 3, 2: block 0 has pieces 1 and 0, block 1 pieces 3 and 2.
"""

import numpy as np

from packer.batches import Int32, Int64, PackPlan
from packer.layout import offsets_of
from packer.pack.decreasing import decreasing
from packer.pack.keyed_order import keyed_order, order_key, shuffled
from packer.pack.overlong import Pieces
from packer.recipe.groups import Pack


def plan(pieces: Pieces, pack: Pack, *, pixels: Int64 | None = None, group: int = 0) -> PackPlan:
    """Place pieces of documents in blocks. Every piece is in exactly one.

    Args:
        pieces: from :func:`packer.pack.overlong.cut`; none is longer than a block.
        pack: the recipe's packing rules; the mode is ``isolated``.
        pixels: of each piece, if the rules limit those of a block; at most that limit.  # int64[P]
        group: number of these documents among those that are packed separately; part of the key.
    """
    align = np.int32(pack.align)
    units = -(-pieces.length // align)
    room = units
    if pixels is not None and pack.max_pixels is not None:
        room = np.maximum(units, -(-pixels * (pack.block_len // pack.align) // pack.max_pixels)).astype(np.int32)
    piece, num_pieces = _place(room, pack, group)
    return PackPlan(
        document=pieces.document[piece],
        start=pieces.start[piece],
        length=pieces.length[piece],
        slots=units[piece] * align,
        block_offsets=offsets_of(num_pieces),
    )


def _place(units: Int32, pack: Pack, group: int) -> tuple[Int64, Int64]:
    """Place n < 2^32 pieces, given the units of ``align`` slots that each takes.

    Returns:
        the pieces in block order, and the number in each block.  # int64[n], [B]
    """
    capacity = pack.block_len // pack.align
    counts = np.bincount(units)
    sizes = np.flatnonzero(counts)[::-1]
    runs = decreasing(sizes, counts[sizes], capacity)
    block_of_bin = shuffled(runs.total_bins, order_key("pack.store", pack.seed, group))
    block = block_of_bin[runs.bins()]  # of each fill
    taken = np.repeat(runs.items_per_bin, runs.num_bins)  # pieces of each fill
    # All fills of one run have the same depth in their bins, which is their index among the fills of their block.
    fills_before = offsets_of(np.bincount(block, minlength=runs.total_bins))
    rank = fills_before[block] + np.repeat(runs.depth, runs.num_bins)
    piece = keyed_order(units, order_key("pack.deal", pack.seed, group))
    # One sort of numbers with the rank of a piece's fill in the high bits and the piece in the low ones.
    bits = np.int64(len(units).bit_length())
    numbers = (np.repeat(rank, taken) << bits | piece).view(np.uint64)
    numbers.sort()
    piece = (numbers & np.uint64(2 ** int(bits) - 1)).view(np.int64)
    return piece, np.bincount(block, taken, minlength=runs.total_bins).astype(np.int64)
