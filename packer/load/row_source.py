"""The rows a loader reads, from one cache or a mixture: their order, and the steps cut from it."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from packer.batches import Int64
from packer.errors import UsageError
from packer.load.arguments import MAX_INT32, check_integer
from packer.load.batching import Packed, TokenBudget, check_rows_fit, name_of, padded_of
from packer.load.layouts import Ids
from packer.load.mixture import Mixture, MixtureOrder, Shares
from packer.load.options import Options
from packer.load.ordering import Order, order_name
from packer.load.plan import StepPlan, check_batch_size, check_fits, plan_step, steps_left
from packer.load.row_orders import RowOrders, check_order
from packer.load.rows import RowKind, Rows, check_weights
from packer.load.state import STATE_VERSION, ZERO_COUNTERS, ReaderState
from packer.store.cache import Cache
from packer.store.manifest import Manifest


class RowSource:
    """The rows of a split in the order of every epoch. Safe to read from two threads: each iteration has its own order.

    Raises:
        UsageError: caches that cannot be mixed; a batching, an order or sizes that do not suit the rows.
        InputError: the split has no rows, or the cutoff leaves none.
        ValueError: invalid weights or row numbers.
    """

    def __init__(self, source: Cache | Mixture, options: Options) -> None:
        self._options = options
        self._mixture = source if isinstance(source, Mixture) else None
        caches = source.caches if isinstance(source, Mixture) else (source,)
        kind: RowKind = "blocks" if isinstance(options.batching, Packed) else "documents"
        self._counts_tokens = isinstance(options.batching, TokenBudget)
        check_order(kind, options, self._mixture)
        self.rows = Rows(caches, options.split, kind=kind, cutoff_len=options.cutoff_len)
        manifest = caches[0].manifest
        special = np.array(sorted({*manifest.model.control_ids, *manifest.model.stop_ids}), np.int64)
        separated = np.array([cache.manifest.recipe["pack"]["mode"] == "eos" for cache in caches])
        self.ids = Ids(
            pad=pad_id_of(manifest), special=special, separated=lambda rows: separated[self.rows.caches_of(rows)]
        )
        self.orders = RowOrders(self.rows, source, options)
        self.unit = "pairs" if self.rows.num_sides == 2 else kind
        """What one row is: ``blocks``, ``documents`` or ``pairs``."""

        self._epochs_vary = callable(options.order)
        self._num_items = self.orders.build().num_items
        self._checked_micro_batch_size = 0  # a micro-batch size that every row is known to fit into
        check_weights(weighted=self.rows.weighted, wanted=options.form.weighted)
        self.check_sizes(options.global_batch_size, options.micro_batch_size)
        if len(self.rows.untrained):
            warnings.warn(
                f"{len(self.rows.untrained)} of {len(self.rows)} documents of split '{options.split}' have no trained "
                f"token among their first {options.cutoff_len} and are left out; loader.untrained names them",
                stacklevel=3,  # the caller who opens the loader
            )

    def initial_state(self) -> ReaderState:
        """Return the state of a loader that has returned no step yet."""
        options, mixture = self._options, self._mixture
        zeros = (0,) * (1 if mixture is None else len(mixture.caches))
        shares = None if mixture is None else tuple(map(str, mixture.shares))
        return ReaderState(
            version=STATE_VERSION,
            fingerprint=self.orders.fingerprint,
            split=options.split,
            batching=name_of(options.batching),
            padded=padded_of(options.batching),
            cutoff_len=options.cutoff_len,
            order=order_name(options.order),
            order_by=self.orders.order_by(),
            seed=options.seed,
            end=options.end,
            schedule=_schedule_name(options.schedule),
            share_schedule=None if mixture is None else _schedule_name(mixture.schedule),
            epoch=0,
            cursor=0,
            batch_size=options.global_batch_size,
            opened_batch_size=options.global_batch_size,
            micro_batch_size=options.micro_batch_size,
            opened_micro_batch_size=options.micro_batch_size,
            shares=shares,
            mix=None if shares is None else Shares(shares=shares, since=zeros, lead=zeros),
            taken=self.orders.build().taken(epoch=0, cursor=0),
            counters=ZERO_COUNTERS,
        )

    def steps(self, state: ReaderState, *, last_epoch: int | None) -> Iterator[StepPlan]:
        """Yield the plans of the steps from a state on, to the end of `last_epoch` or endlessly; no row is read."""
        order, mix, schedule = self.order_at(state), state.mix, self._options.schedule
        index, epoch, cursor = state.counters.steps, state.epoch, state.cursor
        size, micro_batch_size = state.batch_size, state.micro_batch_size
        lengths = self.rows.lengths if self._counts_tokens else None
        last_scheduled = -1  # the last step the schedule was called for: once per step, even if an epoch ends before it
        while last_epoch is None or epoch <= last_epoch:
            if schedule is not None and last_scheduled != index:
                size, micro_batch_size = self._scheduled_sizes(schedule(index, size), micro_batch_size)
                last_scheduled = index
            # Proportions change where a step begins; rows that an epoch leaves over still come in the old proportions.
            step_order, step_mix = self._with_scheduled_shares(order, mix, index, epoch, cursor)
            plan = plan_step(
                step_order,
                epoch=epoch,
                cursor=cursor,
                size=size,
                end=self._options.end,
                lengths=lengths,
                micro_batch_size=micro_batch_size,
                mix=step_mix,
            )
            if plan is None:
                epoch, cursor = epoch + 1, 0
                continue
            order, mix = step_order, step_mix
            yield plan
            index, epoch, cursor = index + 1, plan.next_epoch, plan.next_cursor

    def steps_until(self, state: ReaderState, epoch: int) -> int:
        """Count the steps from a state on that begin before an epoch: by arithmetic, unless sizes or epochs vary."""
        if self._options.schedule is not None or self._counts_tokens or self._epochs_vary:
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
        end, is_planned = self._options.end, self._counts_tokens or self._epochs_vary
        mixes_tokens = self._counts_tokens and self._mixture is not None and self._mixture.schedule is not None
        is_scheduled = self._options.schedule is not None or mixes_tokens
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
        return self.order_at(state).slice(epoch=state.epoch, start=state.cursor, stop=self.length(state.epoch)).copy()

    def state_at_epoch(self, state: ReaderState, epoch: int) -> ReaderState:
        """Return the state moved to the beginning of an epoch."""
        taken = self.order_at(state).taken(epoch=epoch, cursor=0)
        return msgspec.structs.replace(state, epoch=epoch, cursor=0, taken=taken)

    def length(self, epoch: int) -> int:
        """Return the number of rows of an epoch."""
        return self.orders.build().length(epoch) if self._epochs_vary else self._num_items

    def with_shares(self, state: ReaderState, proportions: Sequence[float]) -> ReaderState:
        """Return a state whose mixture continues with other proportions.

        Raises:
            UsageError: not a mixture, an invalid proportion, a schedule, or windows that are mixed already.
        """
        mixture, order = self._mixture, self.order_at(state)
        if mixture is None or not isinstance(order, MixtureOrder):
            raise UsageError("proportions can be set only for a Mixture whose windows are not sorted by length")
        if mixture.schedule is not None:
            raise UsageError("the proportions of this mixture follow its schedule", hint="open it without one")
        mix = order.change_shares(mixture.shares_of(proportions), epoch=state.epoch, cursor=state.cursor)
        return msgspec.structs.replace(state, mix=mix)

    def check_sizes(self, batch_size: int, micro_batch_size: int) -> None:
        """Refuse sizes that cannot be divided among the ranks, that no epoch fills, or that a row does not fit into.

        Raises:
            UsageError: a step is not a whole number of micro-batches, every row would be dropped, or a row does not
                fit.
        """
        self._check_division(batch_size, micro_batch_size)
        if self._options.end != "drop":
            return
        if not self._counts_tokens:
            check_fits(size=batch_size, num_items=self._num_items, unit=self.unit)
        elif self._mixture is None and not self._epochs_vary:
            check_fits(size=batch_size, num_items=self.rows.num_tokens(0), unit="tokens")

    def order_at(self, state: ReaderState) -> Order:
        """Return the order, ready to continue from a state.

        Raises:
            ValueError: the state's record of a mixture is impossible.
        """
        return self.orders.build(state.epoch, state.cursor, state.taken, state.mix)

    def _scheduled_sizes(self, returned: Any, micro_batch_size: int) -> tuple[int, int]:
        """Check and return what a schedule returned, as step size and micro-batch size."""
        size, micro_batch_size = returned if isinstance(returned, tuple) else (returned, micro_batch_size)
        size = check_integer("the schedule's size", size, maximum=MAX_INT32)
        micro_batch_size = check_integer(
            "the schedule's micro-batch size", micro_batch_size, minimum=1, maximum=MAX_INT32
        )
        self._check_division(size, micro_batch_size)
        return size, micro_batch_size

    def _with_scheduled_shares(
        self, order: Order, mix: Shares | None, index: int, epoch: int, cursor: int
    ) -> tuple[Order, Shares | None]:
        """Return the order and proportions of a mixture that its schedule sets for a step."""
        mixture = self._mixture
        if mixture is None or mixture.schedule is None or mix is None:
            return order, mix
        shares = mixture.shares_of(mixture.schedule(index))
        if mix.shares == tuple(map(str, shares)):
            return order, mix
        assert isinstance(order, MixtureOrder)
        changed = order.change_shares(shares, epoch=epoch, cursor=cursor)
        return self.orders.build(epoch, cursor, changed.since, changed), changed

    def _check_division(self, size: int, micro_batch_size: int) -> None:
        check_batch_size(size, micro_batch_size=micro_batch_size, world_size=self._options.world_size)
        if micro_batch_size != self._checked_micro_batch_size:
            check_rows_fit(self._options.batching, micro_batch_size, self.rows)
            self._checked_micro_batch_size = micro_batch_size


def _schedule_name(schedule: Any) -> str | None:
    return None if schedule is None else str(getattr(schedule, "__qualname__", "a callable"))


def pad_id_of(manifest: Manifest) -> int:
    """Return the id used for padding: the recipe's, else the tokenizer's."""
    pad_id = manifest.recipe.get("pack", {}).get("pad_id")
    return manifest.model.pad_id if pad_id is None else int(pad_id)
