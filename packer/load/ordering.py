"""Which row comes when: what a loader is told, a name or a value that says more, and the order that follows from it.

The order Ω of an epoch is a function from a place to a row, fixed by the content fingerprint, the seed and the epoch.
World size, micro-batch size, accumulation, workers and prefetch never enter. No order has a table that is shuffled,
none remembers what it gave, so all are resumed in constant time, on any number of ranks.

``random`` is a keyed permutation of the row numbers (of blocks, or of documents).

``length_bucketed``: neighbours are of about one length, so that batches of them need little padding. The random order
is cut into windows. In a window the documents are sorted by length and cut into buckets of neighbours, and the buckets
are shuffled. So a micro-batch no larger than a bucket holds documents of nearly one length, while steps still come in
random order and every document once an epoch. It does not depend on any batch size.

Worked example, windows of 8, buckets of 2, lengths 5 1 4 2 9 3 8 6 of the documents Ω[0:8] = a b c d e f g h: sorted
b d f c a h g e, buckets bd fc ah ge, shuffled for example ah bd ge fc.

The windows are what transformers calls mega-batches in its ``LengthGroupedSampler``; the buckets are shuffled here, as
there only the longest one is moved.

``weighted`` deals n places of an epoch to rows by their weights, and shuffles the places as it does rows. The weights
are laid end to end on a line, and n points at equal distances mark the rows they fall on, so that a row with a share w
of all weights gets ⌊n·w⌋ or ⌈n·w⌉ places. Where the first point lies is drawn anew in every epoch.

Worked example, weights 3 1 0 2, n = 4, points 1.5 apart from 0.6 on: 0.6 2.1 3.6 5.1 fall on rows 0 0 1 3; the places
come shuffled, for example 3 0 1 0.

This is systematic sampling: W. G. Madow and L. H. Madow, "On the Theory of Systematic Sampling, I", The Annals of
Mathematical Statistics 15 (1944); with unequal weights W. G. Madow, "II", the same 20 (1949).

``windowed`` is defined in :mod:`packer.load.windows`.
"""

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from packer.batches import Int32, Int64
from packer.load.arguments import MOST, whole
from packer.permute import permutation_key, permute

OrderName: TypeAlias = Literal["random", "sequential", "length_bucketed", "windowed", "weighted", "curriculum"]
Column: TypeAlias = Literal["length", "num_trained"]
"""Numbers that are stored of every row."""

Float64: TypeAlias = npt.NDArray[np.float64]

WINDOW = 8192
"""Documents that ``length_bucketed`` sorts together."""

BUCKET = 64
"""Neighbours in length that stay together; part of the order's definition."""

_KEPT_WINDOWS = 16

SLICE = 4096
"""Rows of an order computed in one call: a call of the permutation costs as much for one row as for hundreds."""


@dataclass(frozen=True, slots=True)
class LengthBucketed:
    """A random order, sorted by length within windows."""

    window: int = WINDOW
    """Documents sorted together: the more, the less padding and the less random."""


@dataclass(frozen=True, slots=True)
class Windowed:
    """Shards in a random order, the rows of some of them shuffled together: for caches larger than this machine's disk.

    Of each cache of a mixture, its own shards. The order depends on how rows were divided among shards, so a state
    belongs to these.
    """

    window: int | None = None
    """Shards that are shuffled together: the more, the more random, and the more room and time to begin they take. None
    is as many as have 4 GiB, on average."""


@dataclass(frozen=True, slots=True, eq=False)
class Weighted:
    """Rows as often as they weigh: one of twice the weight comes twice as often, one of weight 0 never.

    An epoch has as many rows as the split, and each of them as often as its share of the weights says, rounded up or
    down. With equal weights it is the random order.
    """

    by: Mapping[str, float] | npt.ArrayLike | Column
    """A weight for each row, numbered as in ``step.block_ids``; a column; or for documents a weight for each input, by
    the manifest's name of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Curriculum:
    """Rows in an order of your own."""

    by: Callable[[int], npt.ArrayLike] | npt.ArrayLike | Column
    """From an epoch to the numbers of its rows, which need not be all of them, nor as many in every epoch: a pure
    function. Or the numbers, the same in every epoch; or a column to sort by, least first."""


Ordering: TypeAlias = LengthBucketed | Windowed | Weighted | Curriculum
OrderKind: TypeAlias = Literal["random", "sequential", "length_bucketed", "windowed"] | Ordering

_NAMES: dict[type, OrderName] = {
    LengthBucketed: "length_bucketed",
    Windowed: "windowed",
    Weighted: "weighted",
    Curriculum: "curriculum",
}
_DEFAULTS: dict[str, Ordering] = {"length_bucketed": LengthBucketed(), "windowed": Windowed()}


def ordering_of(order: Any) -> Ordering | Literal["random", "sequential"]:
    """What a name stands for, or the value itself.

    Raises:
        ValueError: no such order.

    """
    if isinstance(order, str) and order in _DEFAULTS:
        return _DEFAULTS[order]
    if isinstance(order, LengthBucketed | Windowed) and order != Windowed():
        whole("window", order.window, least=1, most=MOST)
    by = getattr(order, "by", None)
    is_value = isinstance(order, Ordering) and not (isinstance(by, str) and by not in get_args(Column))
    if not is_value and (not isinstance(order, str) or order not in ("random", "sequential")):
        raise ValueError(
            f"order is {reprlib.repr(order)}; expected random, sequential, length_bucketed, windowed, or a "
            "value like Weighted(weights) or Curriculum('length')"
        )
    return order  # type: ignore[no-any-return]


def order_name(order: Ordering | str) -> OrderName:
    """The name of its kind."""
    return order if isinstance(order, str) else _NAMES[type(order)]  # type: ignore[return-value]


class Order(ABC):
    """The rows of every epoch in their order, and the last slice that was computed. Not for two threads at a time.

    Args:
        num_items: rows of an epoch, unless :meth:`length` says otherwise.

    """

    def __init__(self, num_items: int) -> None:
        self.num_items = num_items
        self._known: tuple[int, int, Int64] = (-1, 0, np.zeros(0, np.int64))  # epoch, start, rows

    def slice(self, *, epoch: int, start: int, stop: int) -> Int64:
        """Ω[start:stop] of an epoch, with 0 <= start <= stop <= its length; not to be written to."""
        known_epoch, known_start, rows = self._known
        offset = start - known_start
        if epoch != known_epoch or offset < 0 or stop - known_start > len(rows):
            rows = self._rows(epoch, start, min(start + max(stop - start, SLICE), self.length(epoch)))
            rows.flags.writeable = False  # steps hold views of it
            self._known, offset = (epoch, start, rows), 0
        return rows[offset : offset + stop - start]

    def length(self, epoch: int) -> int:  # noqa: ARG002 - of a curriculum alone
        """Rows of an epoch."""
        return self.num_items

    def taken(self, *, epoch: int, cursor: int) -> tuple[int, ...] | None:  # noqa: ARG002 - of a mixture alone
        """For a mixture, the rows of each cache before a place, over all epochs: what going on from there needs."""
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
        self.fingerprint, self.seed = fingerprint, seed
        self._shuffled, self._numbers = shuffled, rows

    def _rows(self, epoch: int, start: int, stop: int) -> Int64:
        index = np.arange(start, stop, dtype=np.int64)
        if self._shuffled:
            key = permutation_key("packer.load.order", self.fingerprint, self.seed, epoch)
            index = permute(index, self.num_items, key)
        return index if self._numbers is None else self._numbers[index]


class WeightedOrder(EpochOrder):
    """Rows as often as they weigh, shuffled; a slice costs that slice and a search for each of its rows.

    Args:
        fingerprint: as of :class:`EpochOrder`, as `seed` is.
        seed: of the permutation, and of where the first point lies.
        weights: of the rows, none below 0 and some above.  # float64[n]
        rows: the n rows; None: 0 to n.

    """

    def __init__(self, *, fingerprint: str, seed: int, weights: Float64, rows: Int64 | None = None) -> None:
        super().__init__(fingerprint=fingerprint, seed=seed, num_items=len(weights), shuffled=True)
        self._of_places = rows
        self._ends = np.cumsum(weights)
        self._last = int(np.flatnonzero(weights)[-1])

    def _rows(self, epoch: int, start: int, stop: int) -> Int64:
        places = super()._rows(epoch, start, stop)
        key = permutation_key("packer.load.weighted", self.fingerprint, self.seed, epoch)
        first = float(key[0] >> np.uint64(11)) / 2**53
        points = (places + first) * (self._ends[-1] / self.num_items)
        rows: Int64 = np.minimum(np.searchsorted(self._ends, points, side="right"), self._last)
        return rows if self._of_places is None else self._of_places[rows]


class CurriculumOrder(Order):
    """The rows that a function gives of each epoch, in its order.

    Args:
        of_epoch: the rows of an epoch, at least one, checked.

    """

    def __init__(self, of_epoch: Callable[[int], Int64]) -> None:
        self._of_epoch = of_epoch
        self._epoch: tuple[int, Int64] = (0, of_epoch(0))
        super().__init__(len(self._epoch[1]))

    def length(self, epoch: int) -> int:
        return len(self._whole(epoch))

    def _rows(self, epoch: int, start: int, stop: int) -> Int64:
        return self._whole(epoch)[start:stop].copy()

    def _whole(self, epoch: int) -> Int64:
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._of_epoch(epoch))
        return self._epoch[1]


class BucketedOrder(Order):
    """A random order, windows of it sorted by length, their buckets shuffled. A slice costs its windows.

    Of a mixture, the windows are those of the mixed order, so that proportions hold at the end of each.

    Args:
        order: the random order.
        lengths: tokens of every row.
        fingerprint: of what is read.
        seed: of the buckets.
        window: rows sorted together.

    """

    def __init__(self, order: Order, lengths: Int32, *, fingerprint: str, seed: int, window: int = WINDOW) -> None:
        super().__init__(order.num_items)
        self._order, self._lengths = order, lengths
        self._key = (fingerprint, seed)
        self._size = window
        self._taken: dict[tuple[int, int], tuple[int, ...] | None] = {}  # before each of the last windows

    def taken(self, *, epoch: int, cursor: int) -> tuple[int, ...] | None:
        first = cursor - cursor % self._size
        if (epoch, first) not in self._taken:
            self._taken[epoch, first] = self._order.taken(epoch=epoch, cursor=first)
            for old in list(self._taken)[:-_KEPT_WINDOWS]:
                del self._taken[old]
        return self._taken[epoch, first]

    def _rows(self, epoch: int, start: int, stop: int) -> Int64:
        first = start // self._size
        windows = [self._window(epoch, window) for window in range(first, -(-stop // self._size))]
        rows = np.concatenate([np.zeros(0, np.int64), *windows])
        return rows[start - first * self._size : stop - first * self._size]

    def _window(self, epoch: int, window: int) -> Int64:
        first = window * self._size
        self.taken(epoch=epoch, cursor=first)  # while it is no place to go back to
        rows = self._order.slice(epoch=epoch, start=first, stop=min(first + self._size, self.num_items))
        ascending = rows[np.argsort(self._lengths[rows], kind="stable")]
        key = permutation_key("packer.load.bucketed", *self._key, epoch, window)
        num_buckets = -(-len(rows) // BUCKET)
        buckets = permute(np.arange(num_buckets), num_buckets, key)
        places = (buckets[:, None] * BUCKET + np.arange(BUCKET)).reshape(-1)  # the last bucket may be shorter
        bucketed: Int64 = ascending[places[places < len(rows)]]
        return bucketed
