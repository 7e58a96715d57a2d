"""The rows a loader reads, from one cache or a mixture: their order, and the steps cut from it.

Ω is the order of an epoch's rows: that of each cache, mixed if there are several. It is built for each iteration, as
iterations run in different threads. A step of G rows takes Ω[c : c + G] and advances the cursor c by G; a step of G
tokens takes as many rows as fit into G tokens. World size, micro-batch size, accumulation, workers and prefetch have no
influence: they only decide who reads which part of a step.

Worked example, seven blocks, Ω = [4, 1, 6, 0, 5, 2, 3], G = 4:

    step 0    Ω[0:4] = 4 1 6 0, cursor 4
    step 1    three blocks are left: ``drop`` ends the epoch; ``pad`` yields 5 2 3 and a masked row;
              ``short`` yields 5 2 3

Worked example in tokens, G = 9, documents of 5 3 4 2 6 tokens in Ω: one step takes 5 3, the next 4 2, and the document
of 6 is left at the end of the epoch.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256

import msgspec
import numpy as np

from packer.batches import Int32, Int64
from packer.errors import UsageError
from packer.load.arguments import LoaderOptions
from packer.load.mixture import Mixture, MixtureOrder
from packer.load.ordered_rows import PADDING_ROW, OrderedRows, RowKind, check_rows_fit
from packer.load.ordering import (
    STATE_VERSION,
    ZERO_COUNTERS,
    BucketedOrder,
    End,
    EpochOrder,
    FunctionOrder,
    Order,
    ReaderState,
    order_name,
)
from packer.store.cache import Cache
from packer.store.files import CacheFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """The rows of one step over all ranks, and the reader's position after it."""

    epoch: int
    rows: Int64  # [n]; PADDING_ROW where a row is padding, always at the end
    num_rows: int
    coverage: float
    """Fraction of `epoch` that has been taken after this step, 0 to 1."""

    next_cursor: int
    """Rows of the epoch's order that are taken after this step."""

    taken: tuple[int, ...] | None = None
    """For a mixture, the rows of each cache up to the end of this step."""

    @property
    def real_rows(self) -> Int64:
        """Rows that are not padding.  # int64[num_rows]"""
        return self.rows[: self.num_rows]


_FIRST_ROWS = 64
"""Number of rows whose lengths are looked up first for a step of tokens."""


class RowSource:
    """The rows of a split in the order of every epoch. Safe to read from two threads: each has an order of its own."""

    def __init__(self, source: Cache | Mixture, options: LoaderOptions) -> None:
        self._options = options
        self._mixture = source if isinstance(source, Mixture) else None
        self.caches = source.caches if isinstance(source, Mixture) else (source,)
        kind: RowKind = "blocks" if options.batching == "packed" else "documents"
        self._counts_tokens = options.batching == "token_budget"
        self._is_function = order_name(options.order) == "function"
        self._check_order(kind)
        self.rows = rows = OrderedRows(self.caches, options.split, kind=kind)
        self.unit = "pairs" if rows.num_sides == 2 else kind
        """What one row is: ``blocks``, ``documents`` or ``pairs``."""

        of_caches = self.caches[0].manifest.content_fingerprint if self._mixture is None else self._mixture.fingerprint
        self._fingerprint = of_caches
        if self._mixture is not None:
            sizes = np.diff(rows.bounds).tolist()
            self._shares = self._mixture.shares_of_rows([*map(Fraction, rows.tokens_of_caches(), sizes)])
            self._num_items = self._mixture.num_items(self._shares, sizes)
        else:
            self._num_items = self._order().num_items
        self._check_size()
        check_rows_fit(rows, options)
        if self._is_function and (np.diff(self._order().rows(0)) > 0).all() and self._num_items > 1:
            warnings.warn(
                "order: the function's rows of epoch 0 come in the order of the files; shuffle them, as in "
                "np.random.default_rng(epoch).permutation(rows), or say order='sequential'",
                stacklevel=4,
            )

    def initial_state(self) -> ReaderState:
        """Return the state of a loader that has returned no step yet."""
        options, mixture = self._options, self._mixture
        return ReaderState(
            version=STATE_VERSION,
            fingerprint=self._fingerprint,
            split=options.split,
            batching=options.batching,
            order=order_name(options.order),
            order_by=self._function_digest(),
            seed=options.seed,
            end=options.end,
            epoch=0,
            cursor=0,
            shares=None if mixture is None else tuple(map(str, mixture.shares)),
            taken=self._order().taken(epoch=0, cursor=0),
            counters=ZERO_COUNTERS,
        )

    def steps(self, state: ReaderState, *, last_epoch: int | None) -> Iterator[StepPlan]:
        """Yield the plans of the steps from a state on, to the end of `last_epoch` or endlessly; no row is read."""
        order, size = self.order_at(state), self._options.global_batch_size
        epoch, cursor = state.epoch, state.cursor
        lengths = self.rows.lengths if self._counts_tokens else None
        while last_epoch is None or epoch <= last_epoch:
            plan = plan_step(order, epoch=epoch, cursor=cursor, size=size, end=self._options.end, lengths=lengths)
            if plan is None:
                epoch, cursor = epoch + 1, 0
                continue
            yield plan
            cursor = plan.next_cursor

    def steps_until(self, state: ReaderState, epoch: int) -> int:
        """Count the steps from a state on that begin before an epoch: by arithmetic, unless these vary."""
        if self._counts_tokens or self._is_function:
            return sum(1 for _ in self.steps(state, last_epoch=epoch - 1))
        return steps_left(
            num_items=self.length(state.epoch),
            cursor=state.cursor,
            size=self._options.global_batch_size,
            end=self._options.end,
            num_epochs=epoch - state.epoch,
        )

    def steps_of_epoch(self, state: ReaderState) -> int:
        """Count the steps of the state's whole epoch."""
        return self.steps_until(self.state_at_epoch(state, state.epoch), state.epoch + 1)

    def state_at_epoch(self, state: ReaderState, epoch: int) -> ReaderState:
        """Return the state moved to the beginning of an epoch."""
        taken = self.order_at(state).taken(epoch=epoch, cursor=0)
        return msgspec.structs.replace(state, epoch=epoch, cursor=0, taken=taken)

    def length(self, epoch: int) -> int:
        """Return the number of rows of an epoch."""
        return self._order().length(epoch) if self._is_function else self._num_items

    def order_at(self, state: ReaderState) -> Order:
        """Return the order, ready to continue from a state; ValueError if what it took of a mixture is impossible."""
        return self._order(state.epoch, state.cursor, state.taken)

    def fetch(self) -> None:
        """Download what is in a bucket and not here yet, as nearly every order needs all of it soon.

        A loader that prefetches no step, as for a look at one, gets the shards when it reads them.
        """
        for shards, cache in zip(self.rows.shards, self.caches, strict=True) if self._options.prefetch else ():
            documents = cache.documents(self._options.split).shards if self._options.columns else ()
            CacheFiles(shards.folder).fetch_all(shard.path for shard in (*shards.shards, *documents))

    def _order(self, epoch: int = 0, cursor: int = 0, taken: tuple[int, ...] | None = None) -> Order:
        order, mixture = self._options.order, self._mixture
        if mixture is None and taken is not None:
            raise ValueError("rows taken of each cache, but there is only one cache")
        if self._is_function:
            return FunctionOrder(order, len(self.rows))
        orders = [
            EpochOrder(
                fingerprint=cache.manifest.content_fingerprint,
                seed=self._options.seed,
                num_items=size,
                shuffled=order != "sequential",
            )
            for cache, size in zip(self.caches, np.diff(self.rows.bounds).tolist(), strict=True)
        ]
        if mixture is not None:
            bases, start = self.rows.bounds[:-1].tolist(), epoch * self._num_items + cursor
            return MixtureOrder(orders, self._shares, self._num_items, bases=bases, start=start, taken=taken)
        if order != "length_bucketed":
            return orders[0]
        return BucketedOrder(orders[0], self.rows.lengths, fingerprint=self._fingerprint, seed=self._options.seed)

    def _function_digest(self) -> str | None:
        """Return what identifies the function of `order` in a state: its rows of epoch 0; None if it is none."""
        return sha256(self._order().rows(0).tobytes()).hexdigest()[:16] if self._is_function else None

    def _check_order(self, kind: RowKind) -> None:
        """Refuse an order that is impossible for rows of this kind or for a mixture."""
        options = self._options
        if kind != "blocks" and options.static_shapes:
            raise UsageError("static_shapes is for blocks", hint="batching=Padded(length=N) gives documents one shape")
        if kind == "blocks" and options.order == "length_bucketed":
            raise UsageError(
                "order='length_bucketed' is for documents; all blocks are of one length",
                hint="choose batching='padded', 'padding_free' or 'token_budget'",
            )
        if self._mixture is not None and options.order not in ("random", "sequential"):
            raise UsageError(
                "the shares of a mixture say which row comes next: its order is random or sequential",
                hint="batching='padding_free' or 'token_budget' needs no order by length",
            )

    def _check_size(self) -> None:
        """Refuse a size that cannot be divided among the ranks, or that no epoch fills."""
        options, size = self._options, self._options.global_batch_size
        check_batch_size(size, micro_batch_size=options.micro_batch_size, world_size=options.world_size)
        if options.end != "drop":
            return
        if not self._counts_tokens:
            check_fits(size=size, num_items=self._num_items, unit=self.unit)
        elif self._mixture is None and not self._is_function:
            check_fits(size=size, num_items=self.rows.tokens_of_caches()[0], unit="tokens")


def plan_step(
    order: Order, *, epoch: int, cursor: int, size: int, end: End, lengths: Int32 | None = None
) -> StepPlan | None:
    """Return the step that begins at `cursor`, or None if the epoch has no step left.

    It takes rows as long as they fit. If the rest of an epoch does not fill a step, ``drop`` leaves it out, ``pad``
    adds padding rows, and ``short`` returns it as a smaller step (so does ``pad`` if sizes count tokens).

    Sizes count rows; if `lengths` has the tokens of every row, none longer than `size`, they count tokens.
    """
    rows = _rows_that_fit(order, lengths, epoch, cursor, size)
    if not len(rows):
        return None
    stop, remaining = cursor + len(rows), size - _total(rows, lengths)
    length = order.length(epoch)
    num_rows = len(rows)
    if stop == length and remaining:
        if end == "drop":
            if cursor == 0:
                check_fits(size=size, num_items=size - remaining, unit="rows" if lengths is None else "tokens")
            return None
        if end == "pad" and lengths is None:
            rows = np.concatenate([rows, np.full(remaining, PADDING_ROW, np.int64)])
    return StepPlan(
        epoch=epoch,
        rows=rows,
        num_rows=num_rows,
        coverage=stop / length,
        next_cursor=stop,
        taken=order.taken(epoch=epoch, cursor=stop),
    )


def steps_left(*, num_items: int, cursor: int, size: int, end: End, num_epochs: int) -> int:
    """Count the steps of `size` rows that begin in the rest of an epoch and in the epochs after it.

    Worked example: 7 rows per epoch, 2 of them taken, 2 epochs, steps of 4. ``drop``: 1 + 1. ``pad`` and ``short``:
    2 + 2.
    """
    if num_epochs < 1:
        return 0
    left = num_items - cursor
    first, whole = (rows // size if end == "drop" else -(-rows // size) for rows in (left, num_items))
    return first + (num_epochs - 1) * whole


def check_batch_size(global_batch_size: int, *, micro_batch_size: int, world_size: int) -> None:
    """Refuse a global batch that is not a whole number of micro-batches on every rank."""
    unit = micro_batch_size * world_size
    if global_batch_size > 0 and global_batch_size % unit == 0:
        return
    below = global_batch_size // unit * unit
    nearest = f"{below} or {below + unit}" if below > 0 else str(unit)
    raise UsageError(
        f"global_batch_size {global_batch_size} is not a positive multiple of micro_batch_size {micro_batch_size} "
        f"x world_size {world_size} = {unit}",
        hint=f"nearest: {nearest}",
    )


def check_fits(*, size: int, num_items: int, unit: str) -> None:
    """Refuse a step that is larger than an epoch, for ``end="drop"``."""
    if size > num_items:
        raise UsageError(
            f"global_batch_size {size} exceeds the {num_items} {unit} of an epoch; end='drop' would drop them all",
            hint=f"global_batch_size={num_items} or less, or end='pad' or 'short'",
        )


def _total(rows: Int64, lengths: Int32 | None) -> int:
    return len(rows) if lengths is None else int(lengths[rows].sum(dtype=np.int64))


def _rows_that_fit(order: Order, lengths: Int32 | None, epoch: int, start: int, remaining: int) -> Int64:
    """Return the rows from `start` on that fit into `remaining` rows or tokens, within the epoch.  # int64[n]"""
    num_requested, length = remaining if lengths is None else _FIRST_ROWS, order.length(epoch)
    while True:
        stop = min(start + num_requested, length)
        rows = order.rows(epoch, start, stop)
        if lengths is None:
            return rows
        num_fitting = int(np.searchsorted(np.cumsum(lengths[rows], dtype=np.int64), remaining, side="right"))
        if num_fitting < len(rows) or stop == length:
            return rows[:num_fitting]
        num_requested *= 2
