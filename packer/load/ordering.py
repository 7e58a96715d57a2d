"""The orders in which rows are read: how a loader names them, what computes them, and a reader's position in one.

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

A function of the epoch gives the row numbers itself.

The state of a reader records what decides the order, and a position in it, but nothing about sizes and about who reads:
a few numbers, the same on every rank. So it is restored in constant time on another world size, micro-batch size or
global batch size, and resumes at the same row.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from packer.batches import Int32, Int64
from packer.errors import CheckError
from packer.permute import permutation_key, permute
from packer.recipe.groups import BatchingName

OrderName: TypeAlias = Literal["random", "sequential", "length_bucketed", "function"]
RowsOfEpoch: TypeAlias = Callable[[int], npt.ArrayLike]
"""A pure function from an epoch to its row numbers, as in ``step.block_ids``: in any order, any of them, any number of
times. Epochs may differ in length."""

WINDOW = 8192
"""Documents that ``length_bucketed`` sorts together."""

BUCKET = 64
"""Documents of similar length that stay together; part of the order's definition."""

SLICE = 4096
"""Rows of an order computed per call: the permutation costs as much for one row as for hundreds."""


End: TypeAlias = Literal["drop", "pad", "short"]

Ordering: TypeAlias = Literal["random", "sequential", "length_bucketed"] | RowsOfEpoch


def order_name(order: Ordering) -> OrderName:
    """Return the name of an order's kind."""
    return order if isinstance(order, str) else "function"


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
        rows = np.asarray(self._rows_of_epoch(epoch))
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise ValueError(f"order: epoch {epoch} is {rows.dtype} {list(rows.shape)}; expected the numbers of rows")
        if not len(rows) or rows.min() < 0 or rows.max() >= self._num_rows:
            raise ValueError(f"order: epoch {epoch}: expected some of the rows 0 to {self._num_rows - 1}")
        return rows.astype(np.int64)


class BucketedOrder(Order):
    """A random order with windows sorted by length and their buckets shuffled. A slice costs its windows."""

    def __init__(self, order: EpochOrder, lengths: Int32, *, fingerprint: str, seed: int) -> None:
        super().__init__(order.num_items)
        self._order, self._lengths = order, lengths
        self._key = (fingerprint, seed)
        self._slice = WINDOW  # so that a window is sorted at most twice

    def _computed(self, epoch: int, start: int, stop: int) -> Int64:
        first = start - start % WINDOW
        windows = [self._sorted_window(epoch, begin) for begin in range(first, stop, WINDOW)]
        return np.concatenate([np.zeros(0, np.int64), *windows])[start - first : stop - first]

    def _sorted_window(self, epoch: int, first: int) -> Int64:
        rows = self._order.rows(epoch, first, min(first + WINDOW, self.num_items))
        ascending = rows[np.argsort(self._lengths[rows], kind="stable")]
        key = permutation_key("packer.load.bucketed", *self._key, epoch, first // WINDOW)
        num_buckets = -(-len(rows) // BUCKET)
        buckets = permute(np.arange(num_buckets), num_buckets, key)
        positions = (buckets[:, None] * BUCKET + np.arange(BUCKET)).reshape(-1)  # the last bucket may be shorter
        bucketed: Int64 = ascending[positions[positions < len(rows)]]
        return bucketed


STATE_VERSION: Final = 7

UNCHANGED: Final = "pass what state_dict() returned, unchanged"

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Counters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Totals returned since the beginning, over all ranks and epochs."""

    steps: Count
    rows: Count
    """Blocks or documents; padding rows are not counted."""

    trained: Count
    tokens: Count
    slots: Count
    """Positions, including padding: what the model worked on."""

    @property
    def padding_share(self) -> float:
        """Fraction of the positions that were padding, 0 to 1."""
        return 1 - self.tokens / self.slots if self.slots else 0.0


ZERO_COUNTERS: Final = Counters(steps=0, rows=0, trained=0, tokens=0, slots=0)


class ReaderState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides the rows of the steps to come.

    No field has a default: a checkpoint that lacks one is refused.
    """

    version: Literal[7]
    fingerprint: str
    """Content fingerprint of the cache (not that of its bytes); for a mixture, of all its caches and how its epochs
    end."""

    split: str
    batching: BatchingName
    """Decides whether blocks or documents are ordered, and what sizes count."""

    order: OrderName
    order_by: str | None
    """Of a function of the epoch, a hash of its rows of epoch 0."""

    seed: int
    end: End
    epoch: Count
    cursor: Count
    """Rows of the epoch's order that were returned."""

    shares: tuple[str, ...] | None
    """For a mixture, the proportion of each cache, as a fraction of integers."""

    taken: tuple[Count, ...] | None
    """For a mixture, the rows of each cache before this position, over all epochs."""

    counters: Counters

    def to_dict(self) -> dict[str, Any]:
        """Return plain ints and strings, fit for JSON and for any checkpoint."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return plain


def decode_state(value: Any) -> ReaderState:
    """Decode a saved state."""
    if isinstance(value, dict) and value.get("version", STATE_VERSION) != STATE_VERSION:
        raise CheckError(
            f"reader state: expected version {STATE_VERSION}, found {value['version']!r}",
            hint="it was saved by another release of packer: continue with that one, or start over",
        )
    try:
        return msgspec.convert(value, ReaderState)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise CheckError(f"reader state: {error}", hint=UNCHANGED) from None


def restore(value: Any, *, reader: ReaderState, length: Callable[[int], int]) -> ReaderState:
    """Return a saved state, after checking that it belongs to the reader's data.

    `reader` is any state of the reader that is to continue, `length` gives the number of rows of an epoch.
    """
    state = decode_state(value)
    for name, hint in _HINTS.items():
        expected, found = getattr(reader, name), getattr(state, name)
        if expected != found:
            raise CheckError(
                f"reader state: it was saved with {name} {found!r}, this reader has {expected!r}", hint=hint
            )
    if state.cursor > length(state.epoch):
        rows = "blocks" if state.batching == "packed" else "documents"
        raise CheckError(f"reader state: cursor {state.cursor} is beyond the {length(state.epoch)} {rows} of an epoch")
    return state


_HINTS = {
    "fingerprint": "the cache's data has changed since the state was saved: open the earlier cache, or start over",
    "shares": "mix with the proportions the state was saved with, or start over",
} | {
    name: f"open the loader with the {name} the state was saved with, or start over"
    for name in ("split", "batching", "order", "order_by", "seed", "end")
}
"""Fields that decide which rows a step has, each with the hint to give if it differs."""
