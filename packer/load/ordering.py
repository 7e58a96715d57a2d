"""The orders in which rows are read: how a loader names them, and the classes that compute them.

The order Ω of an epoch is a function from a position to a row, fixed by the content fingerprint, the seed and the
epoch. World size, micro-batch size, accumulation, workers and prefetch have no influence. No order shuffles a table
or depends on what it returned before, so every order resumes in constant time, on any number of ranks.

``random`` is a keyed permutation of the row numbers (of blocks, or of documents).

``length_bucketed`` puts documents of similar length next to each other, so that batches need little padding. The random
order is cut into windows. The documents of a window are sorted by length and cut into buckets of neighbors, and the
buckets are shuffled. So a micro-batch no larger than a bucket has documents of nearly one length, while steps still
come in random order and every document comes once per epoch. The order does not depend on any batch size.

Worked example, windows of 8, buckets of 2, lengths 5 1 4 2 9 3 8 6 of the documents Ω[0:8] = a b c d e f g h: sorted
b d f c a h g e, buckets bd fc ah ge, shuffled for example ah bd ge fc.

The windows correspond to the mega-batches of transformers' ``LengthGroupedSampler``, which only moves the longest one
to the front; here the buckets are shuffled.

A function of the epoch gives the row numbers itself; :func:`weighted` returns such a function.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from packer.batches import Int32, Int64
from packer.permute import permutation_key, permute

OrderName: TypeAlias = Literal["random", "sequential", "length_bucketed", "function"]
RowsOfEpoch: TypeAlias = Callable[[int], npt.ArrayLike]
"""A pure function from an epoch to its row numbers, as in ``step.block_ids``: in any order, any of them, any number of
times. Epochs may differ in length. With an attribute ``num_rows``, it is refused for a split of another size."""

WINDOW = 8192
"""Documents that ``length_bucketed`` sorts together."""

BUCKET = 64
"""Documents of similar length that stay together; part of the order's definition."""

SLICE = 4096
"""Rows of an order computed per call: the permutation costs as much for one row as for hundreds."""


@dataclass(frozen=True, slots=True, eq=False)
class _SampledRows:
    """What :func:`weighted` returns: a value that can be pickled, for processes that are spawned."""

    cumulative: npt.NDArray[np.float64]
    seed: int

    @property
    def num_rows(self) -> int:
        return len(self.cumulative)

    def __call__(self, epoch: int) -> Int64:
        key = permutation_key("packer.load.weighted", self.seed, epoch)
        first = float(key[0] >> np.uint64(11)) / 2**53
        positions = permute(np.arange(self.num_rows), self.num_rows, key)
        points = (positions + first) * (self.cumulative[-1] / self.num_rows)
        last = np.searchsorted(self.cumulative, self.cumulative[-1])  # rounding must not lead past it
        rows: Int64 = np.minimum(np.searchsorted(self.cumulative, points, side="right"), last)
        return rows


def weighted(weights: npt.ArrayLike, *, seed: int = 0) -> RowsOfEpoch:
    """Return the rows of an epoch as a function of it, sampled by weight and shuffled: for a loader's `order`.

    An epoch has as many rows as there are weights. A row with a fraction w of the total weight comes n·w times in an
    epoch of n, rounded up or down; one of weight 0 never. The weights are laid end to end on a line, and n equally
    spaced points select the rows that they fall on; where the first one lies is drawn for each epoch.

    Worked example, weights 3 1 0 2, n = 4, points 1.5 apart from 0.6 on: 0.6 2.1 3.6 5.1 fall on rows 0 0 1 3; they
    come shuffled, for example 3 0 1 0.

    This is systematic sampling: W. G. Madow and L. H. Madow, "On the Theory of Systematic Sampling, I", The Annals of
    Mathematical Statistics 15 (1944); with unequal weights W. G. Madow, "II", the same 20 (1949).

    Args:
        weights: one for each row of the split, none negative.
        seed: of the drawing and the shuffling.

    Raises:
        TypeError: a seed that is not an integer.
        ValueError: no weight above 0, or one that is negative or not finite.
    """
    values = np.asarray(weights, np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or values.min(initial=0) < 0 or not values.any():
        raise ValueError(f"weights of shape {values.shape}; expected a number for each row, none below 0, some above")
    return _SampledRows(np.cumsum(values), index(seed))


Ordering: TypeAlias = Literal["random", "sequential", "length_bucketed"] | RowsOfEpoch


def order_name(order: Ordering) -> OrderName:
    """Return the name of an order's kind."""
    return order if isinstance(order, str) else "function"


def window_start(position: int) -> int:
    """Return where the window of ``length_bucketed`` that a position of an epoch is in begins."""
    return position - position % WINDOW


class Order(ABC):
    """The rows of every epoch in order; caches the last computed slice. Not thread-safe."""

    def __init__(self, num_items: int) -> None:
        self.num_items = num_items
        """Rows of an epoch, unless :meth:`length` says otherwise."""

        self._slice = SLICE
        self._cached_slice: tuple[int, int, Int64] = (-1, 0, np.zeros(0, np.int64))  # epoch, start, rows

    def rows(self, epoch: int, start: int = 0, stop: int | None = None) -> Int64:
        """Return Ω[start:stop] of an epoch, by default all of it, with stop <= its length, as a read-only array."""
        stop = self.length(epoch) if stop is None else stop
        cached_epoch, cached_start, rows = self._cached_slice
        offset = start - cached_start
        if epoch != cached_epoch or offset < 0 or stop - cached_start > len(rows):
            rows = self._computed(epoch, start, min(start + max(stop - start, self._slice), self.length(epoch)))
            rows.flags.writeable = False  # steps hold views of it
            self._cached_slice, offset = (epoch, start, rows), 0
        return rows[offset : offset + stop - start]

    def length(self, epoch: int) -> int:  # noqa: ARG002 - only functions of the epoch use it
        """Return the number of rows of an epoch."""
        return self.num_items

    def taken(self, *, epoch: int, cursor: int) -> tuple[int, ...] | None:  # noqa: ARG002 - only mixtures use it
        """Return, for a mixture, the rows taken of each cache before a position, over all epochs."""
        return None

    @abstractmethod
    def _computed(self, epoch: int, start: int, stop: int) -> Int64:
        """Compute Ω[start:stop] of an epoch.  # int64[stop - start]"""


class EpochOrder(Order):
    """Every row once per epoch; the cost of a slice depends only on its length, and no table is kept in memory.

    The content fingerprint of the cache is part of the key, like `seed`. If not `shuffled`, the order is that stored.
    """

    def __init__(self, *, fingerprint: str, seed: int, num_items: int, shuffled: bool) -> None:
        super().__init__(num_items)
        self.fingerprint, self.seed = fingerprint, seed
        self._shuffled = shuffled

    def _computed(self, epoch: int, start: int, stop: int) -> Int64:
        places = np.arange(start, stop, dtype=np.int64)
        if not self._shuffled:
            return places
        return permute(places, self.num_items, permutation_key("packer.load.order", self.fingerprint, self.seed, epoch))


class FunctionOrder(Order):
    """The rows that a function returns for each epoch, in its order; ValueError if wrong."""

    def __init__(self, rows_of_epoch: Any, num_rows: int) -> None:
        self._rows_of_epoch, self._num_rows = rows_of_epoch, num_rows
        self._epoch: tuple[int, Int64] = (0, self._checked_rows(0))
        super().__init__(len(self._epoch[1]))

    def length(self, epoch: int) -> int:
        return len(self._cached_rows(epoch))

    def _computed(self, epoch: int, start: int, stop: int) -> Int64:
        return self._cached_rows(epoch)[start:stop].copy()

    def _cached_rows(self, epoch: int) -> Int64:
        cached = self._epoch  # read once: another thread may ask for another epoch
        if cached[0] != epoch:
            cached = self._epoch = (epoch, self._checked_rows(epoch))
        return cached[1]

    def _checked_rows(self, epoch: int) -> Int64:
        expected = getattr(self._rows_of_epoch, "num_rows", self._num_rows)
        if expected != self._num_rows:
            raise ValueError(f"order: weights of {expected} rows; the split has {self._num_rows}")
        rows = np.asarray(self._rows_of_epoch(epoch))
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise ValueError(f"order: epoch {epoch} is {rows.dtype} {list(rows.shape)}; expected the numbers of rows")
        if not len(rows) or rows.min() < 0 or rows.max() >= self._num_rows:
            raise ValueError(f"order: epoch {epoch}: expected some of the rows 0 to {self._num_rows - 1}")
        return rows.astype(np.int64)


class BucketedOrder(Order):
    """A random order with windows sorted by length and their buckets shuffled. A slice costs its windows.

    For a mixture, the windows are cut from the mixed order, so that proportions hold at the end of each window.
    """

    def __init__(self, order: Order, lengths: Int32, *, fingerprint: str, seed: int) -> None:
        super().__init__(order.num_items)
        self._order, self._lengths = order, lengths
        self._key = (fingerprint, seed)
        self._slice = WINDOW  # so that a window is sorted at most twice
        self._taken_before: dict[
            tuple[int, int], tuple[int, ...] | None
        ] = {}  # each window, by its epoch and first row

    def taken(self, *, epoch: int, cursor: int) -> tuple[int, ...] | None:
        first = window_start(cursor)
        if (epoch, first) not in self._taken_before:
            self._taken_before[epoch, first] = self._order.taken(epoch=epoch, cursor=first)
        return self._taken_before[epoch, first]

    def _computed(self, epoch: int, start: int, stop: int) -> Int64:
        first = window_start(start)
        windows = [self._sorted_window(epoch, begin) for begin in range(first, stop, WINDOW)]
        return np.concatenate([np.zeros(0, np.int64), *windows])[start - first : stop - first]

    def _sorted_window(self, epoch: int, first: int) -> Int64:
        self.taken(epoch=epoch, cursor=first)  # now, before the slice below moves the mixed order past it
        rows = self._order.rows(epoch, first, min(first + WINDOW, self.num_items))
        ascending = rows[np.argsort(self._lengths[rows], kind="stable")]
        key = permutation_key("packer.load.bucketed", *self._key, epoch, first // WINDOW)
        num_buckets = -(-len(rows) // BUCKET)
        buckets = permute(np.arange(num_buckets), num_buckets, key)
        positions = (buckets[:, None] * BUCKET + np.arange(BUCKET)).reshape(-1)  # the last bucket may be shorter
        bucketed: Int64 = ascending[positions[positions < len(rows)]]
        return bucketed
