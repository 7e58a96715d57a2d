"""Best-fit decreasing: each item goes into the fullest bin that holds it, the one opened first among equals.

Johnson, "Near-Optimal Bin Packing Algorithms", 1973: at most 11/9 of the optimum and a constant.

Items of one length l may be placed together (:mod:`packer.pack.bins`), since after a bin with r free took one, no other
has between l and r free: the bin is now the fullest that holds the next. A bin that holds as many items as it may is no
longer open, and the next smallest free space is looked for.
"""

from bisect import bisect_left, insort
from heapq import heappop, heappush

from packer.batches import Int64
from packer.pack.bins import BinRange, BinRuns, pack_decreasing


def best_fit_decreasing(lengths: Int64, counts: Int64, capacity: int, *, max_items: int | None = None) -> BinRuns:
    """Best-fit decreasing; arguments as for :func:`packer.pack.bins.pack_decreasing`."""
    return pack_decreasing(lengths, counts, capacity, _FullestFirst(), max_items=max_items)


class _FullestFirst:
    """Open bins by their free space."""

    def __init__(self) -> None:
        self._spaces: list[int] = []  # sorted; those that have bins
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
