"""An order in which neighbours are of about the same length, so that batches of them need little padding.

The epoch's random order is cut into windows. In a window the documents are sorted by length and cut into runs of
neighbours, and the runs are shuffled. So a micro-batch no larger than a run holds documents of nearly one length, while
steps still come in random order and every document once an epoch. It does not depend on any batch size.

Worked example, windows of 8, runs of 2, lengths 5 1 4 2 9 3 8 6 of the documents Ω[0:8] = a b c d e f g h: sorted
b d f c a h g e, runs bd fc ah ge, shuffled for example ah bd ge fc.

The windows are what transformers calls mega-batches in its ``LengthGroupedSampler``; the runs are shuffled here, as
there only the longest one is moved.
"""

from collections.abc import Callable

import numpy as np

from packer.batches import Int32, Int64
from packer.load.order import EpochOrder
from packer.permute import permutation_key, permute

WINDOW = 8192
"""Documents sorted together; part of the order's definition."""

RUN = 64
"""Documents of neighbouring lengths that stay together; part of the order's definition."""


class LengthBucketed:
    """A random order, windows of it sorted by length, their runs shuffled. A stretch costs its windows.

    Args:
        order: the random order.
        lengths: tokens of some documents.

    """

    def __init__(self, order: EpochOrder, lengths: Callable[[Int64], Int32]) -> None:
        self._order = order
        self._lengths = lengths
        self._last: tuple[int, int, Int64] = (-1, -1, np.zeros(0, np.int64))

    @property
    def num_items(self) -> int:
        return self._order.num_items

    def stretch(self, *, epoch: int, start: int, stop: int) -> Int64:
        """Ω[start:stop] of an epoch.  # int64[stop - start]"""
        parts = []
        for window in range(start // WINDOW, -(-stop // WINDOW)):
            first = window * WINDOW
            numbers = self._window(epoch, window)
            parts.append(numbers[max(start - first, 0) : stop - first])
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _window(self, epoch: int, window: int) -> Int64:
        if self._last[:2] != (epoch, window):
            first = window * WINDOW
            numbers = self._order.stretch(epoch=epoch, start=first, stop=min(first + WINDOW, self.num_items))
            ascending = numbers[np.argsort(self._lengths(numbers), kind="stable")]
            key = permutation_key("packer.load.bucketed", self._order.fingerprint, self._order.seed, epoch, window)
            self._last = (epoch, window, ascending[_shuffled_runs(len(numbers), key)])
        return self._last[2]


def _shuffled_runs(num_items: int, key: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> Int64:
    """Places in the sorted window, run after run in their shuffled order; the last run may be shorter."""
    num_runs = -(-num_items // RUN)
    runs: Int32 = permute(np.arange(num_runs), num_runs, key).astype(np.int32)
    places = (runs[:, None].astype(np.int64) * RUN + np.arange(RUN)).reshape(-1)
    return places[places < num_items]
