"""Which row comes when: the order of an epoch. Arithmetic alone.

The order Ω of an epoch is a keyed permutation of the row numbers (of blocks, or of documents), fixed by (content
fingerprint, seed, epoch). World size, micro-batch size, accumulation, workers and prefetch never enter.

With ``length_bucketed`` neighbours are of about one length, so that batches of them need little padding. Ω is cut into
windows. In a window the documents are sorted by length and cut into buckets of neighbours, and the buckets are
shuffled. So a micro-batch no larger than a bucket holds documents of nearly one length, while steps still come in
random order and every document once an epoch. It does not depend on any batch size.

Worked example, windows of 8, buckets of 2, lengths 5 1 4 2 9 3 8 6 of the documents Ω[0:8] = a b c d e f g h: sorted
b d f c a h g e, buckets bd fc ah ge, shuffled for example ah bd ge fc.

The windows are what transformers calls mega-batches in its ``LengthGroupedSampler``; the buckets are shuffled here, as
there only the longest one is moved.
"""

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np

from packer.batches import Int32, Int64
from packer.permute import permutation_key, permute

OrderKind = Literal["random", "sequential", "length_bucketed"]

WINDOW = 8192
"""Documents sorted together; part of the order's definition."""

BUCKET = 64
"""Documents of neighbouring lengths that stay together; part of the order's definition."""

_SLICE = 4096
"""Rows of an order computed in one call: a call of the permutation costs as much for one row as for hundreds."""


class Order(ABC):
    """The rows of every epoch in their order, and the last slice that was computed. Not for two threads at a time.

    Args:
        num_items: rows of an epoch.

    """

    def __init__(self, num_items: int) -> None:
        self.num_items = num_items
        self._known: tuple[int, int, Int64] = (-1, 0, np.zeros(0, np.int64))  # epoch, start, rows

    def slice(self, *, epoch: int, start: int, stop: int) -> Int64:
        """Ω[start:stop] of an epoch, with 0 <= start <= stop <= num_items; not to be written to."""
        known_epoch, known_start, rows = self._known
        offset = start - known_start
        if epoch != known_epoch or offset < 0 or stop - known_start > len(rows):
            rows = self._rows(epoch, start, min(start + max(stop - start, _SLICE), self.num_items))
            rows.flags.writeable = False  # steps hold views of it
            self._known, offset = (epoch, start, rows), 0
        return rows[offset : offset + stop - start]

    def taken(self, *, epoch: int, cursor: int) -> tuple[int, ...] | None:  # noqa: ARG002 - of a mixture alone
        """For a mixture, the rows of each cache before a place, over all epochs."""
        return None

    @abstractmethod
    def _rows(self, epoch: int, start: int, stop: int) -> Int64:
        """Ω[start:stop] of an epoch.  # int64[stop - start]"""


class EpochOrder(Order):
    """Every row once an epoch; any slice costs only that slice, and no table is kept in memory.

    Args:
        fingerprint: content fingerprint of the cache.
        seed: of the permutation.
        num_items: rows of an epoch.
        shuffled: False: as stored, every epoch alike.
        rows: the rows to be put in order, `num_items` of them; None: 0 to num_items.

    """

    def __init__(
        self, *, fingerprint: str, seed: int, num_items: int, shuffled: bool, rows: Int64 | None = None
    ) -> None:
        super().__init__(num_items)
        self.fingerprint = fingerprint
        self.seed = seed
        self._shuffled = shuffled
        self._numbers = rows

    def _rows(self, epoch: int, start: int, stop: int) -> Int64:
        index = np.arange(start, stop, dtype=np.int64)
        if self._shuffled:
            key = permutation_key("packer.load.order", self.fingerprint, self.seed, epoch)
            index = permute(index, self.num_items, key)
        return index if self._numbers is None else self._numbers[index]


class LengthBucketed(Order):
    """A random order, windows of it sorted by length, their buckets shuffled. A slice costs its windows.

    Args:
        order: the random order.
        lengths: tokens of every row.

    """

    def __init__(self, order: EpochOrder, lengths: Int32) -> None:
        super().__init__(order.num_items)
        self._order = order
        self._lengths = lengths

    def _rows(self, epoch: int, start: int, stop: int) -> Int64:
        first = start // WINDOW
        windows = [self._window(epoch, window) for window in range(first, -(-stop // WINDOW))]
        return np.concatenate([np.zeros(0, np.int64), *windows])[start - first * WINDOW : stop - first * WINDOW]

    def _window(self, epoch: int, window: int) -> Int64:
        first = window * WINDOW
        rows = self._order.slice(epoch=epoch, start=first, stop=min(first + WINDOW, self.num_items))
        ascending = rows[np.argsort(self._lengths[rows], kind="stable")]
        key = permutation_key("packer.load.bucketed", self._order.fingerprint, self._order.seed, epoch, window)
        num_buckets = -(-len(rows) // BUCKET)
        buckets = permute(np.arange(num_buckets), num_buckets, key)
        places = (buckets[:, None] * BUCKET + np.arange(BUCKET)).reshape(-1)  # the last bucket may be shorter
        bucketed: Int64 = ascending[places[places < len(rows)]]
        return bucketed
