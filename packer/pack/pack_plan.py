"""The packing plan: which document, or piece of a document longer than a block, goes into which block.

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
fills sorted by block are the second, fourth, first and third, so that their ranks are [2, 0, 3, 1]. The pieces in that
order, sorted by the rank of their fill, are 1, 0, 3, 2: block 0 has pieces 1 and 0, block 1 pieces 3 and 2.

The order takes one sort of 64-bit numbers. From the top, a number consists of how much smaller the item is than the
largest, a hash of the item's number in the remaining bits, and the item's number itself. No two are equal, so every
sorting algorithm produces the same order. With ten million items and sizes up to 4,096, 27 bits remain for the hash;
items with equal hashes come in source order. Worked example: sizes [7, 9, 7], largest 9, and hashes 5, 1, 3: the
numbers are (2, 5, 0), (0, 1, 1) and (2, 3, 2), and the order is 1, 2, 0.

The hash is the output function of splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators",
OOPSLA 2014) of the number plus the key. Its last step is omitted, as it would not change the upper 31 bits.
"""

import numpy as np
import numpy.typing as npt

from packer.batches import Int32, Int64, PackPlan, UInt64
from packer.layout import offsets_of
from packer.pack.decreasing import decreasing
from packer.pack.overlong import CountTrained, DroppedTokens, Pieces, cut
from packer.permute import permutation_key
from packer.recipe.pack_rules import Pack


def arrange(
    lengths: npt.NDArray[np.integer],
    pack: Pack,
    count_trained: CountTrained,
    *,
    pixels: Int64 | None = None,
    group: int = 0,
) -> tuple[PackPlan, DroppedTokens]:
    """Plan the blocks of a group of documents, which share blocks with no others.

    Args:
        lengths: tokens of each document.  # integers [N], at least 0
        pack: the mode is not ``none``.
        count_trained: see :func:`packer.pack.overlong.trained_counter`.
        pixels: of the images of each document, if the rules limit those of a block.  # int64[N]
        group: number of the group: each is mixed in an order of its own.
    """
    pieces, dropped = cut(lengths, pack, count_trained, pixels)
    own = None if pixels is None else pixels[pieces.document]
    return plan(pieces, pack, pixels=own, group=group), dropped


def plan(pieces: Pieces, pack: Pack, *, pixels: Int64 | None = None, group: int = 0) -> PackPlan:
    """Place pieces of documents in blocks. Every piece is in exactly one.

    Args:
        pieces: from :func:`packer.pack.overlong.cut`; none is longer than a block.
        pack: the recipe's packing rules.
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


_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))


def order_key(*parts: int | str) -> np.uint64:
    """Return a key that is a pure function of the parts, on every platform."""
    key: np.uint64 = permutation_key(*parts)[0]
    return key


def keyed_order(sizes: Int32, key: np.uint64) -> Int64:
    """Return the items by decreasing size, equal ones in the order of the hash.  # int64[N]

    Args:
        sizes: at least 0.  # int32[N], N < 2^32
        key: from :func:`order_key`.
    """
    index = np.arange(len(sizes), dtype=np.uint64)
    largest = int(sizes.max(initial=0))
    size_bits, index_bits = largest.bit_length(), max(len(sizes) - 1, 0).bit_length()
    index_mask = np.uint64(2**index_bits - 1)
    numbers = _hash(index + key)
    numbers >>= np.uint64(size_bits)
    numbers &= np.uint64(2 ** (64 - size_bits) - 1) ^ index_mask
    numbers |= index
    if size_bits:
        numbers |= (largest - sizes).astype(np.uint64) << np.uint64(64 - size_bits)
    numbers.sort()
    numbers &= index_mask
    return numbers.view(np.int64)


def shuffled(n: int, key: np.uint64) -> Int64:
    """Return a permutation of ``range(n)``, n < 2^32.  # int64[n]"""
    return keyed_order(np.zeros(n, np.int32), key)


def _hash(numbers: UInt64) -> UInt64:
    for shift, multiplier in _ROUNDS:
        numbers ^= numbers >> shift
        numbers *= multiplier
    return numbers
