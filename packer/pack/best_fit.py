"""Best-fit decreasing over a histogram of lengths: exactly what packing item by item gives, at the cost of the lengths.

Best-fit decreasing takes the items in decreasing length and puts each into the fullest bin that still holds it, the one
opened first among equals, or into a new bin (Johnson, "Near-Optimal Bin Packing Algorithms", 1973: at most 11/9 of the
optimum and a constant).

Items of one length are placed together. Let l be the length, r the smallest free space of at least l, and m = r // l.
The first item goes to a bin with r free and leaves r - l. If that is still at least l, this bin is now the fullest that
holds the next item, since no other had between l and r free; so the bin takes m items before another one is touched.
With c items left and k bins that have r free, min(k, c // m) bins take m items each, one more takes what is left if c
runs out, and otherwise the next larger free space is looked for. When there is none, new bins take L // l items each.

Worked example, L = 10: lengths 6, 6, 4, 3, 3. Two bins take a 6 and have 4 free. The 4 fills bin 0. For the 3s, r = 4
and m = 1: bin 1 takes one and has 1 free. No free space holds the other: bin 2.

Bins with the same free space are kept as ranges of bin numbers. A length adds at most three ranges, and a range at
least halves its free space each time it is used, so the work is O(D log D log L) for D distinct lengths, and does not
depend on how many items there are.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from packer.batches import Int64
from packer.layout import concatenated_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class BinRuns:
    """Who goes where: run i puts ``items_per_bin[i]`` items into each of ``num_bins[i]`` consecutive bins.  # R runs

    The runs take the items in order of decreasing length, from the first to the last.
    """

    first_bin: Int64  # [R]
    num_bins: Int64  # [R]
    items_per_bin: Int64  # [R]
    total_bins: int

    def item_bins(self) -> Int64:
        """Bin of each item, the items in decreasing length.  # int64[M]

        Worked example: first_bin [0, 5], num_bins [2, 1], items_per_bin [2, 3] give [0, 0, 1, 1, 5, 5, 5].
        """
        bins = concatenated_ranges(self.first_bin, self.num_bins)
        items: Int64 = np.repeat(bins, np.repeat(self.items_per_bin, self.num_bins))
        return items


def best_fit_decreasing(lengths: Int64, counts: Int64, capacity: int) -> BinRuns:
    """Pack ``counts[i]`` items of ``lengths[i]`` into bins of ``capacity``.

    Args:
        lengths: distinct, decreasing, each from 1 to ``capacity``.  # int64[D]
        counts: at least 1 each.  # int64[D]
        capacity: of a bin.

    """
    bins = _Bins(capacity)
    for length, count in zip(lengths.tolist(), counts.tolist(), strict=True):
        left = bins.fill_open(length, count)
        if left:
            bins.fill_new(length, left)
    runs = np.array(bins.runs, np.int64).reshape(-1, 3)
    return BinRuns(first_bin=runs[:, 0], num_bins=runs[:, 1], items_per_bin=runs[:, 2], total_bins=bins.num_bins)


class _Bins:
    """Bins in the making: for each free space, the ranges (first bin, number of bins) that have it."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.num_bins = 0
        self.runs: list[tuple[int, int, int]] = []
        self._spaces: list[int] = []  # sorted; those that have bins
        self._ranges: dict[int, list[tuple[int, int]]] = {}  # heaps: the lowest bin number is used first

    def fill_open(self, length: int, count: int) -> int:
        """Place items in bins that have room, and return how many are left."""
        while count:
            at = bisect_left(self._spaces, length)
            if at == len(self._spaces):
                break
            space = self._spaces[at]
            ranges = self._ranges[space]
            first, available = heappop(ranges)
            if not ranges:
                del self._spaces[at]
                del self._ranges[space]
            count = self._fill(first, available, space, length, count)
        return count

    def fill_new(self, length: int, count: int) -> None:
        """Place items in as many new bins as they need."""
        needed = -(-count // (self.capacity // length))
        first = self.num_bins
        self.num_bins += needed
        self._fill(first, needed, self.capacity, length, count)

    def _fill(self, first: int, available: int, space: int, length: int, count: int) -> int:
        """Place items in a range of bins with the same free space, and return how many are left."""
        per_bin = space // length
        full = min(available, count // per_bin)
        self._place(first, full, space, length, per_bin)
        first, available, count = first + full, available - full, count - full * per_bin
        if available and count:
            self._place(first, 1, space, length, count)
            first, available, count = first + 1, available - 1, 0
        self._open(first, available, space)
        return count

    def _place(self, first: int, num_bins: int, space: int, length: int, per_bin: int) -> None:
        if num_bins:
            self.runs.append((first, num_bins, per_bin))
            self._open(first, num_bins, space - per_bin * length)

    def _open(self, first: int, num_bins: int, space: int) -> None:
        if num_bins and space:
            if space not in self._ranges:
                insort(self._spaces, space)
                self._ranges[space] = []
            heappush(self._ranges[space], (first, num_bins))
