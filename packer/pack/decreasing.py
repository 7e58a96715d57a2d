"""Best-fit decreasing over a histogram of lengths, with the same result as packing item by item.

It takes the items from the longest to the shortest and puts each into the fullest open bin with room, the one opened
first among equals, or into a new one if it fits into none. Johnson, "Near-Optimal Bin Packing Algorithms", 1973: at
most 11/9 of the optimum plus a constant.

The bin that took an item of length l takes the next one too, as long as there is room: it is now the fullest with room
for it. So items of one length are placed together. A bin with r free takes m = r // l of them before another bin is
touched; a new bin takes L // l.

Worked example, L = 10: lengths 6, 6, 4, 3, 3. Two bins take a 6 and have 4 free. The 4 fills bin 0. For the
3s, r = 4 and m = 1: bin 1 takes one and has 1 free. No bin has room for the other: bin 2.

Consecutive bins in the same state are kept as one range. A length adds at most two ranges, and a range is closed
or at least halves its free space each time it is filled, so with D distinct lengths the work is O(D log D log L) and
does not depend on the number of items.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np

from packer.batches import Int64
from packer.layout import concatenated_ranges

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
    """Pack ``counts[i]`` items of ``lengths[i]`` into bins of ``capacity``.

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
