"""The rows a loader reads, from one cache or a mixture: their order, and the steps cut from it.

The order is that of each cache, mixed if there are several. It is built for each iteration, as iterations run in
different threads.
"""

import warnings
from collections.abc import Iterator
from fractions import Fraction
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np

from packer.batches import Int64
from packer.errors import UsageError
from packer.load.arguments import MAX_INT32, LoaderOptions, check_integer, open_cache
from packer.load.batching import Packed, TokenBudget, check_rows_fit
from packer.load.mixture import Mixture, MixtureOrder
from packer.load.ordered_rows import OrderedRows, RowKind, check_weights
from packer.load.ordering import WINDOW, BucketedOrder, EpochOrder, FunctionOrder, LengthBucketed, Order, order_name
from packer.load.state import STATE_VERSION, ZERO_COUNTERS, ReaderState
from packer.load.step_plan import StepPlan, check_batch_size, check_fits, plan_step, steps_left
from packer.store.cache import Cache
from packer.store.files import CacheFiles


class RowSource:
    """The rows of a split in the order of every epoch. Safe to read from two threads: each iteration has its own order.

    Raises:
        UsageError: caches that cannot be mixed; a batching, an order or sizes that do not suit the rows.
        InputError: the split has no rows, or the cutoff leaves none.
        ValueError: invalid row numbers.
    """

    def __init__(self, source: Cache | Mixture, options: LoaderOptions) -> None:
        self._options = options
        self._mixture = source if isinstance(source, Mixture) else None
        self.caches = source.caches if isinstance(source, Mixture) else (source,)
        kind: RowKind = "blocks" if isinstance(options.batching, Packed) else "documents"
        self._counts_tokens = isinstance(options.batching, TokenBudget)
        self._is_function = order_name(options.order) == "function"
        self._check_order(kind)
        self.rows = rows = OrderedRows(self.caches, options.split, kind=kind, cutoff_len=options.cutoff_len)
        self.unit = "pairs" if rows.num_sides == 2 else kind
        """What one row is: ``blocks``, ``documents`` or ``pairs``."""

        self._fingerprint = rows.parts[0].fingerprint if self._mixture is None else self._mixture.fingerprint
        self._mean_lengths = [Fraction(1)] * len(rows.parts)
        if self._mixture is not None and self._mixture.by == "tokens":
            self._mean_lengths = [Fraction(part.num_tokens(), part.num_ordered) for part in rows.parts]
        self._num_items = self._order().num_items
        check_weights(weighted=rows.weighted, wanted=options.form.weighted)
        self.check_size(options.global_batch_size)
        check_rows_fit(options.batching, options.micro_batch_size, rows)
        if len(rows.untrained):
            warnings.warn(
                f"{len(rows.untrained)} of {len(rows)} documents of split '{options.split}' have no trained "
                f"token among their first {options.cutoff_len} and are left out; loader.untrained names them",
                stacklevel=4,  # the caller who opens the loader
            )

    def initial_state(self) -> ReaderState:
        """Return the state of a loader that has returned no step yet."""
        options, mixture = self._options, self._mixture
        return ReaderState(
            version=STATE_VERSION,
            fingerprint=self._fingerprint,
            split=options.split,
            batching=options.batching.name,
            padded=options.batching.padded,
            cutoff_len=options.cutoff_len,
            order=order_name(options.order),
            order_by=self._order_by(),
            seed=options.seed,
            end=options.end,
            schedule=_schedule_name(options.schedule),
            epoch=0,
            cursor=0,
            batch_size=options.global_batch_size,
            opened_batch_size=options.global_batch_size,
            micro_batch_size=options.micro_batch_size,
            shares=None if mixture is None else tuple(map(str, mixture.shares)),
            taken=self._order().taken(epoch=0, cursor=0),
            counters=ZERO_COUNTERS,
        )

    def steps(self, state: ReaderState, *, last_epoch: int | None) -> Iterator[StepPlan]:
        """Yield the plans of the steps from a state on, to the end of `last_epoch` or endlessly; no row is read."""
        order, schedule = self.order_at(state), self._options.schedule
        index, epoch, cursor = state.counters.steps, state.epoch, state.cursor
        size = state.batch_size
        lengths = self.rows.lengths if self._counts_tokens else None
        last_scheduled = -1  # the last step the schedule was called for: once per step, even if an epoch ends before it
        while last_epoch is None or epoch <= last_epoch:
            if schedule is not None and last_scheduled != index:
                size = check_integer("the schedule's size", schedule(index, size), maximum=MAX_INT32)
                self._check_division(size)
                last_scheduled = index
            plan = plan_step(
                order,
                epoch=epoch,
                cursor=cursor,
                size=size,
                end=self._options.end,
                lengths=lengths,
            )
            if plan is None:
                epoch, cursor = epoch + 1, 0
                continue
            yield plan
            index, epoch, cursor = index + 1, plan.next_epoch, plan.next_cursor

    def steps_until(self, state: ReaderState, epoch: int) -> int:
        """Count the steps from a state on that begin before an epoch: by arithmetic, unless sizes or epochs vary."""
        if self._options.schedule is not None or self._counts_tokens or self._is_function:
            return sum(1 for _ in self.steps(state, last_epoch=epoch - 1))
        return steps_left(
            num_items=self.length(state.epoch),
            cursor=state.cursor,
            size=state.batch_size,
            end=self._options.end,
            num_epochs=epoch - state.epoch,
        )

    def steps_of_epoch(self, state: ReaderState) -> int:
        """Count the steps of the state's whole epoch at the state's batch size; with ``wrap``, those that begin in it.

        Raises:
            TypeError: the number depends on what was read before: sizes vary, or steps counted in tokens wrap around.
        """
        end, is_planned = self._options.end, self._counts_tokens or self._is_function
        is_scheduled = self._options.schedule is not None
        if is_scheduled or (is_planned and end == "wrap"):
            kind = "sizes follow a schedule" if is_scheduled else "steps of varying size wrap around"
            raise TypeError(f"an epoch has no fixed number of steps where {kind}: use steps_left or steps_until(epoch)")
        if is_planned:
            return self.steps_until(self.state_at_epoch(state, state.epoch), state.epoch + 1)
        # Worked example, 7 rows, steps of 4 that wrap: if the cursor is 5, steps of this epoch began at 1 and 5.
        cursor = state.cursor % state.batch_size if end == "wrap" else 0
        return steps_left(num_items=self.length(state.epoch), cursor=cursor, size=state.batch_size, end=end)

    def rows_left(self, state: ReaderState) -> Int64:
        """Return the rows left in the state's epoch.  # int64[n]"""
        return self.order_at(state).rows(state.epoch, state.cursor, self.length(state.epoch)).copy()

    def state_at_epoch(self, state: ReaderState, epoch: int) -> ReaderState:
        """Return the state moved to the beginning of an epoch."""
        taken = self.order_at(state).taken(epoch=epoch, cursor=0)
        return msgspec.structs.replace(state, epoch=epoch, cursor=0, taken=taken)

    def length(self, epoch: int) -> int:
        """Return the number of rows of an epoch."""
        return self._order().length(epoch) if self._is_function else self._num_items

    def check_size(self, batch_size: int) -> None:
        """Refuse a size that cannot be divided among the ranks, or that no epoch fills.

        Raises:
            UsageError: a step is not a whole number of micro-batches, or every row would be dropped.
        """
        self._check_division(batch_size)
        if self._options.end != "drop":
            return
        if not self._counts_tokens:
            check_fits(size=batch_size, num_items=self._num_items, unit=self.unit)
        elif self._mixture is None and not self._is_function:
            check_fits(size=batch_size, num_items=self.rows.parts[0].num_tokens(), unit="tokens")

    def order_at(self, state: ReaderState) -> Order:
        """Return the order, ready to continue from a state.

        Raises:
            ValueError: the state's record of a mixture is impossible.
        """
        return self._order(state.epoch, state.cursor, state.taken)

    def fetch(self) -> None:
        """Download what is in a bucket and not here yet, as nearly every order needs all of it soon.

        A loader that prefetches no step, as for a look at one, gets the shards when it reads them.
        """
        for part in self.rows.parts if self._options.prefetch else ():
            CacheFiles(part.shards.folder).fetch_all(shard.path for shard in part.shards.shards)

    def _order(self, epoch: int = 0, cursor: int = 0, taken: tuple[int, ...] | None = None) -> Order:
        order, mixture = self._options.order, self._mixture
        if mixture is None and taken is not None:
            raise ValueError("rows taken of each cache, but there is only one cache")
        if self._is_function:
            return FunctionOrder(self._rows_of_function)
        start = cursor - cursor % order.window if isinstance(order, LengthBucketed) else cursor
        orders = [self._cache_order(number) for number in range(len(self.caches))]
        found: Order = orders[0]
        if mixture is not None:
            shares = mixture.of_rows(mixture.shares, self._mean_lengths)
            num_items = mixture.num_items(shares, [part.num_ordered for part in self.rows.parts])
            found = MixtureOrder(
                orders,
                shares,
                num_items,
                bases=self.rows.bounds[:-1].tolist(),
                start=epoch * num_items + start,
                taken=taken,
            )
        if not isinstance(order, LengthBucketed):
            return found
        lengths, seed = self.rows.lengths, self._options.seed
        return BucketedOrder(found, lengths, fingerprint=self._fingerprint, seed=seed, window=order.window)

    def _cache_order(self, number: int) -> EpochOrder:
        """Build the order of the rows of one cache."""
        part = self.rows.parts[number]
        return EpochOrder(
            fingerprint=part.fingerprint,
            seed=self._options.seed,
            num_items=part.num_ordered,
            shuffled=self._options.order != "sequential",
            rows=part.ordered,
        )

    def _rows_of_function(self, epoch: int) -> Int64:
        """Return the rows that an order of one's own gives for an epoch, checked, without those that train nothing."""
        order: Any = self._options.order
        num_rows = getattr(order, "num_rows", len(self.rows))
        if num_rows != len(self.rows):
            raise ValueError(f"order: weights of {num_rows} rows; the split has {len(self.rows)} {self.unit}")
        rows = np.asarray(order(epoch))
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise ValueError(f"order: epoch {epoch} is {rows.dtype} {list(rows.shape)}; expected the numbers of rows")
        if not len(rows) or rows.min() < 0 or rows.max() >= len(self.rows):
            raise ValueError(f"order: epoch {epoch}: expected some of the rows 0 to {len(self.rows) - 1}")
        kept: Int64 = rows[~np.isin(rows, self.rows.untrained)].astype(np.int64)
        if not len(kept):
            raise ValueError(f"order: epoch {epoch} has no row with a trained token")
        return kept

    def _order_by(self) -> str | None:
        """Return what identifies the order's parameters in a state."""
        order = self._options.order
        if isinstance(order, LengthBucketed):
            return None if order.window == WINDOW else str(order.window)
        return sha256(self._rows_of_function(0).tobytes()).hexdigest()[:16] if self._is_function else None

    def _check_order(self, kind: RowKind) -> None:
        """Refuse an order that is impossible for rows of this kind or for a mixture."""
        options, mixture = self._options, self._mixture
        is_bucketed = isinstance(options.order, LengthBucketed)
        if kind == "blocks" and options.cutoff_len is not None:
            raise UsageError(
                "cutoff_len is for documents; blocks were cut when they were packed",
                hint="choose a batching of documents, or build with another --block-len",
            )
        if kind == "blocks" and is_bucketed:
            raise UsageError(
                "order='length_bucketed' is for documents; all blocks are of one length",
                hint="choose batching='padded', 'padding_free' or 'token_budget'",
            )
        if mixture is not None and self._is_function:
            raise UsageError(
                "a function of the epoch says which row comes next, and so do the proportions of a mixture"
            )

    def _check_division(self, size: int) -> None:
        options = self._options
        check_batch_size(size, micro_batch_size=options.micro_batch_size, world_size=options.world_size)


def opened_source(source: Any, *, cache_dir: Any = None) -> Cache | Mixture:
    """Return a mixture as it is, or open a cache as :func:`packer.load.arguments.open_cache` does."""
    return source if isinstance(source, Mixture) and cache_dir is None else open_cache(source, cache_dir=cache_dir)


def _schedule_name(schedule: Any) -> str | None:
    return None if schedule is None else str(getattr(schedule, "__qualname__", "a callable"))
