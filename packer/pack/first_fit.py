"""First-fit decreasing: each item goes into the bin opened first among those that hold it.

Johnson, "Near-Optimal Bin Packing Algorithms", 1973: at most 11/9 of the optimum and a constant, as best fit.

Items of one length may be placed together (:mod:`packer.pack.bins`), since the first bin that holds an item is still
the first after it took one, as long as there is room. Lengths never grow, so a bin that holds one length holds all that
come later until it is filled; the others wait until the lengths have come down to their free space.
"""

from heapq import heappop, heappush

from packer.batches import Int64
from packer.pack.bins import BinRange, BinRuns, pack_decreasing


def first_fit_decreasing(lengths: Int64, counts: Int64, capacity: int, *, max_items: int | None = None) -> BinRuns:
    """First-fit decreasing; arguments as for :func:`packer.pack.bins.pack_decreasing`."""
    return pack_decreasing(lengths, counts, capacity, _LowestFirst(), max_items=max_items)


class _LowestFirst:
    """Open bins by their number, as far as they hold the current length."""

    def __init__(self) -> None:
        self._holding: list[BinRange] = []  # heap by number: room for the last length asked for
        self._waiting: list[tuple[int, BinRange]] = []  # heap by falling space: perhaps too little room

    def put(self, bins: BinRange) -> None:
        heappush(self._waiting, (-bins[2], bins))

    def take(self, length: int) -> BinRange | None:
        while self._waiting and -self._waiting[0][0] >= length:
            heappush(self._holding, heappop(self._waiting)[1])
        return heappop(self._holding) if self._holding else None
