"""Which row comes when: the order of an epoch. Pure arithmetic, or nearly.

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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from packer.batches import Int32, Int64
from packer.permute import permutation_key, permute

OrderKind = Literal["random", "sequential", "length_bucketed"]

WINDOW = 8192
"""Documents sorted together; part of the order's definition."""

BUCKET = 64
"""Documents of neighbouring lengths that stay together; part of the order's definition."""

_LONGEST_SLICE = 4096
"""Numbers of an order made in one go: a call of the permutation costs as much for one of them as for hundreds."""


class Order(Protocol):
    """The rows of every epoch in their order."""

    @property
    def num_items(self) -> int:
        """Rows of an epoch."""

    def slice(self, *, epoch: int, start: int, stop: int) -> Int64:
        """Ω[start:stop] of an epoch, with 0 <= start <= stop <= num_items.  # int64[stop - start]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOrder:
    """Every row once an epoch; any slice costs only that slice, and nothing is kept in memory."""

    fingerprint: str
    """Content fingerprint of the cache."""

    seed: int
    num_items: int
    shuffled: bool
    """False: as stored, every epoch alike."""

    rows: Int64 | None = None
    """Those there are, `num_items` of them; None: 0 to num_items."""

    def slice(self, *, epoch: int, start: int, stop: int) -> Int64:
        index = np.arange(start, stop, dtype=np.int64)
        if self.shuffled:
            key = permutation_key("packer.load.order", self.fingerprint, self.seed, epoch)
            index = permute(index, self.num_items, key)
        return index if self.rows is None else self.rows[index]


class LengthBucketed:
    """A random order, windows of it sorted by length, their buckets shuffled. A slice costs its windows.

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

    def slice(self, *, epoch: int, start: int, stop: int) -> Int64:
        """Ω[start:stop] of an epoch.  # int64[stop - start]"""
        parts = [np.zeros(0, np.int64)]
        for window in range(start // WINDOW, -(-stop // WINDOW)):
            first = window * WINDOW
            parts.append(self._window(epoch, window)[max(start - first, 0) : stop - first])
        return np.concatenate(parts)

    def _window(self, epoch: int, window: int) -> Int64:
        if self._last[:2] != (epoch, window):
            first = window * WINDOW
            numbers = self._order.slice(epoch=epoch, start=first, stop=min(first + WINDOW, self.num_items))
            ascending = numbers[np.argsort(self._lengths(numbers), kind="stable")]
            key = permutation_key("packer.load.bucketed", self._order.fingerprint, self._order.seed, epoch, window)
            num_buckets = -(-len(numbers) // BUCKET)
            buckets = permute(np.arange(num_buckets), num_buckets, key)
            places = (buckets[:, None] * BUCKET + np.arange(BUCKET)).reshape(-1)  # the last bucket may be shorter
            self._last = (epoch, window, ascending[places[places < len(numbers)]])
        return self._last[2]


class Ahead:
    """An order whose next slices were made before they are asked for: longer ones each time, up to a limit.

    The first slice is no longer than what is asked, so that a loader's first step waits for nothing else.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._made: tuple[int, int, Int64] = (-1, 0, np.zeros(0, np.int64))  # epoch, start, numbers

    @property
    def num_items(self) -> int:
        return self._order.num_items

    def slice(self, *, epoch: int, start: int, stop: int) -> Int64:
        """Ω[start:stop] of an epoch; not to be written to."""
        made_epoch, made_start, made = self._made
        offset = start - made_start
        if epoch != made_epoch or offset < 0 or stop - made_start > len(made):
            size = max(stop - start, min(2 * len(made), _LONGEST_SLICE))
            made = self._order.slice(epoch=epoch, start=start, stop=min(start + size, self.num_items))
            made.flags.writeable = False  # steps hand out views of it
            self._made, offset = (epoch, start, made), 0
        return made[offset : offset + stop - start]
