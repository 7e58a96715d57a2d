"""The packing plan: which tokens of which documents go into which block, in any mode of a recipe.

``isolated`` places whole documents, or pieces of those that are longer than a block; ``stream`` cuts wherever a block
ends. The plan is a pure function of its arguments. With ``align``, a piece takes a multiple of that many slots: it is
packed by its padded length. With ``max_pixels``, it is packed by the larger of its shares of a block's slots and
pixels, which keeps both limits. Worked example, blocks of 100 slots and 1,000 pixels: pieces of 30 slots and 50 pixels,
and of 20 slots and 600 pixels, are packed as 30 and 60.

A histogram of sizes in slots is packed by best-fit decreasing, which determines how many pieces of which size go into
which bin: the *fills*. The pieces, by decreasing size and in the order of a keyed hash among equal sizes, are assigned
to the fills in turn, so that neighbors in the source land in blocks far apart. Bins become blocks by a keyed
permutation, so that reading the blocks in order yields a mixture. Within a block, pieces are in the order of its fills,
larger before smaller; those of one fill in source order.

Worked example, capacity 10: sizes [3, 6, 4, 6] are ordered as pieces 3, 1, 2, 0. Bins take [6, 4] and [6, 3]; the fills
are (bin 0, one 6), (bin 1, one 6), (bin 0, one 4), (bin 1, one 3). If bin 0 becomes block 1 and bin 1 block 0, the
fills sorted by block are the second, fourth, first and third, so that their ranks are [2, 0, 3, 1]. The pieces in
that order, sorted by the rank of their fill, are 1, 0, 3, 2: block 0 has pieces 1 and 0, block 1 pieces 3 and 2.

The order takes one sort of 64-bit numbers. From the top, a number consists of how much smaller the item is than the
largest, a hash of the item's number in the remaining bits, and the item's number itself. No two are equal, so every
sorting algorithm produces the same order. With ten million items and sizes up to 4,096, 27 bits remain for the hash;
items with equal hashes come in source order. Worked example: sizes [7, 9, 7], largest 9, and hashes 5, 1, 3: the
numbers are (2, 5, 0), (0, 1, 1) and (2, 3, 2), and the order is 1, 2, 0.

The hash is the output function of splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators",
OOPSLA 2014) of the number plus the key. Its last step is omitted, as it would not change the upper 31 bits.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from packer.batches import Int32, Int64, PackPlan, UInt64
from packer.layout import concatenated_ranges, offsets_of
from packer.pack.pieces import UNTRAINED, CountTrained, DroppedTokens, Pieces, cut, dropped
from packer.permute import permutation_key
from packer.recipe.groups import Pack


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
        count_trained: see :func:`packer.pack.pieces.trained_counter`.
        pixels: of the images of each document, if the rules limit those of a block.  # int64[N]
        group: number of the group: each is mixed in an order of its own.
    """
    if pack.mode == "stream":
        return stream(lengths, pack, count_trained, group=group)
    pieces, lost = cut(lengths, pack, count_trained, pixels)
    own = None if pixels is None else pixels[pieces.document]
    return plan(pieces, pack, pixels=own, group=group), lost


def stream(
    lengths: npt.NDArray[np.integer], pack: Pack, count_trained: CountTrained, *, group: int = 0
) -> tuple[PackPlan, DroppedTokens]:
    """Cut the stream of a group of documents into blocks.

    A document continues in the next block; nothing is overlong, and only the last block has padding. Each part of a
    document in a block is a piece, and its first token is masked as everywhere: in a new block there is nothing before
    it to predict it from, and after another document it would be predicted from that.

    Documents come in the order of a keyed hash, so that a block mixes sources. Blocks are stored in such an order too,
    since a long document fills many consecutive ones. A block that would train nothing is left out.

    A piece begins where a document or a block does. Worked example, ``block_len`` 4, documents of 3, 4 and 1 tokens:
    documents begin at 0, 3, 7 and blocks at 0, 4; pieces at 0, 3, 4 and 7, of documents 0, 1, 1, 2.

    Returns:
        the plan, and what is dropped: the pieces of blocks that would train nothing
    """
    sizes = lengths.astype(np.int64)
    documents = shuffled(len(sizes), order_key("pack.stream", pack.seed, group))
    documents = documents[sizes[documents] > 0]
    begins = offsets_of(sizes[documents])
    total = int(begins[-1])
    place = np.union1d(begins[:-1], np.arange(0, total, pack.block_len))
    which = np.searchsorted(begins, place, side="right") - 1
    start, length = place - begins[which], np.diff(place, append=total)
    num_pieces = np.bincount(place // pack.block_len)
    stored = shuffled(len(num_pieces), order_key("pack.stream.store", pack.seed, group))
    moved = concatenated_ranges(offsets_of(num_pieces)[:-1][stored], num_pieces[stored])
    which, start, length, num_pieces = which[moved], start[moved], length[moved], num_pieces[stored]
    block = np.repeat(np.arange(len(num_pieces)), num_pieces)
    document, end = documents[which], start + length
    targets = count_trained(document, start + 1, end)
    is_kept = np.bincount(block, targets, minlength=len(num_pieces)) > 0
    kept = is_kept[block]
    tokens = length[kept].astype(np.int32)
    plan_of_stream = PackPlan(
        document=document[kept],
        start=start[kept],
        length=tokens,
        slots=tokens,
        block_offsets=offsets_of(num_pieces[is_kept]),
    )
    reason = np.full(len(document), UNTRAINED, np.uint8)
    return plan_of_stream, dropped(document, start, end, reason=reason, kept=kept, count_trained=count_trained)


def plan(pieces: Pieces, pack: Pack, *, pixels: Int64 | None = None, group: int = 0) -> PackPlan:
    """Place pieces of documents in blocks. Every piece is in exactly one.

    Args:
        pieces: from :func:`packer.pack.pieces.cut`; none is longer than a block.
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


BinRange: TypeAlias = tuple[int, int, int, int]
"""Consecutive bins in the same state: the first bin, the number of bins, and for each its free space (at least 1) and
the number of runs that have filled it. A plain tuple: thousands are created."""


Run: TypeAlias = tuple[int, int, int, int, int]
"""What the columns of :class:`BinRuns` have of one run, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BinRuns:
    """The assignment: run i puts ``items_per_bin[i]`` items into each of ``num_bins[i]`` consecutive bins.  # R runs

    The runs take the items in order of decreasing length, from the first to the last. No bin has two runs of the same
    length.
    """

    first_bin: Int64  # [R]
    num_bins: Int64  # [R]
    items_per_bin: Int64  # [R]
    length: Int64  # [R] of each item
    depth: Int64  # [R] runs that these bins were filled by before
    total_bins: int

    def bins(self) -> Int64:
        """Return the bins of each run, concatenated.  # int64[Σ num_bins]"""
        return concatenated_ranges(self.first_bin, self.num_bins)


class _OpenBins:
    """The open bins by free space."""

    def __init__(self) -> None:
        self._spaces: list[int] = []  # sorted; only spaces that have bins
        self._ranges: dict[int, list[BinRange]] = {}  # heaps: the lowest bin number is used first

    def put(self, bins: BinRange) -> None:
        space = bins[2]
        ranges = self._ranges.get(space)
        if ranges is None:
            insort(self._spaces, space)
            self._ranges[space] = [bins]
        else:
            heappush(ranges, bins)

    def take(self, length: int) -> BinRange | None:
        """Remove and return the fullest bins with room for an item of this length, or None."""
        at = bisect_left(self._spaces, length)
        if at == len(self._spaces):
            return None
        space = self._spaces[at]
        ranges = self._ranges[space]
        if len(ranges) > 1:
            return heappop(ranges)
        del self._spaces[at]
        del self._ranges[space]
        return ranges[0]


def decreasing(lengths: Int64, counts: Int64, capacity: int) -> BinRuns:
    """Pack ``counts[i]`` items of ``lengths[i]`` into bins of ``capacity`` by best-fit decreasing.

    That takes the items from the longest to the shortest and puts each into the fullest open bin with room, the one
    opened first among equals, or into a new one if it fits into none. Johnson, "Near-Optimal Bin Packing Algorithms",
    1973: at most 11/9 of the optimum plus a constant.

    The bin that took an item of length l takes the next one too, as long as there is room: it is now the fullest with
    room for it. So items of one length are placed together. A bin with r free takes m = r // l of them before another
    bin is touched; a new bin takes L // l. Consecutive bins in the same state are kept as one range. A length adds at
    most two ranges, and a range is closed or at least halves its free space each time it is filled, so with D distinct
    lengths the work is O(D log D log L) and does not depend on the number of items.

    Worked example, L = 10: lengths 6, 6, 4, 3, 3. Two bins take a 6 and have 4 free. The 4 fills bin 0. For the 3s,
    r = 4 and m = 1: bin 1 takes one and has 1 free. No bin has room for the other: bin 2.

    Args:
        lengths: distinct, decreasing, each from 1 to ``capacity``.  # int64[D]
        counts: at least 1 each.  # int64[D]
        capacity: of a bin.
    """
    open_bins = _OpenBins()
    runs: list[Run] = []
    total_bins = 0
    for length, count in zip(lengths.tolist(), counts.tolist(), strict=True):
        left = count
        while left and (bins := open_bins.take(length)):
            left = _fill(bins, length, left, open_bins, runs)
        if left:
            needed = -(-left // (capacity // length))
            _fill((total_bins, needed, capacity, 0), length, left, open_bins, runs)
            total_bins += needed
    first_bin, num_bins, items_per_bin, item_length, depth = np.array(runs, np.int64).reshape(-1, 5).T
    return BinRuns(
        first_bin=first_bin,
        num_bins=num_bins,
        items_per_bin=items_per_bin,
        length=item_length,
        depth=depth,
        total_bins=total_bins,
    )


def _fill(bins: BinRange, length: int, count: int, open_bins: _OpenBins, runs: list[Run]) -> int:
    """Place items of one length in bins of the same state, and return how many are left.

    The bins part into those that are filled, at most one that takes fewer items than have room, and untouched ones.
    """
    first, available, space, depth = bins
    per_bin = space // length
    full = min(available, count // per_bin)
    if full:
        runs.append((first, full, per_bin, length, depth))
        rest = space - per_bin * length
        if rest:
            open_bins.put((first, full, rest, depth + 1))
        first += full
        available -= full
        count -= full * per_bin
    if not available:
        return count
    if count:
        runs.append((first, 1, count, length, depth))  # fewer than fill it, so it stays open
        open_bins.put((first, 1, space - count * length, depth + 1))
        first += 1
        available -= 1
    if available:
        open_bins.put((first, available, space, depth))
    return 0
