"""Where a loader's rows come from: one cache or a mixture, put in order, and the steps that are cut from it."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from packer.batches import Int64
from packer.errors import UsageError
from packer.load.arguments import MOST, whole
from packer.load.batching import Packed, TokenBudget, check_room, name_of, padded_of
from packer.load.layouts import Ids
from packer.load.mixture import Mixture, MixtureOrder, Shares
from packer.load.options import Options
from packer.load.ordering import (
    WINDOW,
    BucketedOrder,
    Curriculum,
    CurriculumOrder,
    EpochOrder,
    Float64,
    LengthBucketed,
    Order,
    Weighted,
    WeightedOrder,
    order_name,
)
from packer.load.plan import StepPlan, check_batch_size, check_fits, plan_step, steps_left
from packer.load.rows import RowKind, Rows, check_weights
from packer.load.state import NOTHING_RETURNED, STATE_VERSION, ReaderState
from packer.store.cache import Cache
from packer.store.manifest import Manifest


class RowSource:
    """The rows of a split in the order of every epoch. Safe to read from two threads: each iteration has its own order.

    Args:
        source: a cache, or several.
        options: of the loader.

    Raises:
        UsageError: caches that cannot be mixed; a batching, an order or sizes the rows do not have.
        InputError: the split has no rows, or a cutoff leaves none.
        ValueError: weights or row numbers that are none.

    """

    def __init__(self, source: Cache | Mixture, options: Options) -> None:
        self._options = options
        self._mixture = source if isinstance(source, Mixture) else None
        self._caches = source.caches if isinstance(source, Mixture) else (source,)
        self._kind: RowKind = "blocks" if isinstance(options.batching, Packed) else "documents"
        self._counts_tokens = isinstance(options.batching, TokenBudget)
        _check_order(self._kind, options, self._mixture)
        self.rows = Rows(self._caches, options.split, kind=self._kind, cutoff_len=options.cutoff_len)
        manifest = self._caches[0].manifest
        self._fingerprint = self._mixture.fingerprint if self._mixture else manifest.content_fingerprint
        special = np.array(sorted({*manifest.model.control_ids, *manifest.model.stop_ids}), np.int64)
        separated = manifest.recipe["pack"]["mode"] == "eos"
        self.ids = Ids(pad=pad_id_of(manifest), special=special, separated=separated)
        if options.reference is not None:
            if self.rows.content != "pairs" or len(self._caches) > 1:
                raise UsageError("a reference is that of the pairs of one cache", hint="leave it out")
            options.reference.check(self._caches[0].documents(options.split))
        self._own = [self._ordered_rows(number) for number in range(len(self._caches))]
        self._weights = self._checked_weights(options.order.by) if isinstance(options.order, Weighted) else None
        self._varies = isinstance(options.order, Curriculum)
        self._mean_lengths = [Fraction(1)] * len(self._caches)
        if self._mixture is not None and self._mixture.by == "tokens":
            lengths = self.rows.lengths
            sums = [int(lengths[own].sum(dtype=np.int64)) for own in self._own]
            self._mean_lengths = [Fraction(tokens, self._num_ordered(number)) for number, tokens in enumerate(sums)]
        self._num_items = self._order().num_items
        self._with_room = 0  # a size of micro-batches that every row fits into
        check_weights(weighted=self.rows.weighted, wanted=options.form.weighted)
        self.check_sizes(options.global_batch_size, options.micro_batch_size)
        if len(self.rows.untrained):
            warnings.warn(
                f"{len(self.rows.untrained)} of {len(self.rows)} documents of split '{options.split}' have no trained "
                f"token among their first {options.cutoff_len} and are left out; loader.untrained names them",
                stacklevel=3,  # whoever opens the loader
            )

    @property
    def unit(self) -> str:
        """What a row is."""
        return "pairs" if self.rows.num_sides == 2 else self._kind

    def beginning(self) -> ReaderState:
        """The state of a loader that has returned nothing."""
        options, mixture, zeros = self._options, self._mixture, (0,) * len(self._caches)
        shares = None if mixture is None else tuple(map(str, mixture.shares))
        return ReaderState(
            version=STATE_VERSION,
            fingerprint=self._fingerprint,
            split=options.split,
            batching=name_of(options.batching),
            padded=padded_of(options.batching),
            cutoff_len=options.cutoff_len,
            order=order_name(options.order),
            order_by=self._order_by(),
            seed=options.seed,
            end=options.end,
            schedule=_name(options.schedule),
            share_schedule=None if mixture is None else _name(mixture.schedule),
            epoch=0,
            cursor=0,
            batch_size=options.global_batch_size,
            opened_batch_size=options.global_batch_size,
            micro_batch_size=options.micro_batch_size,
            opened_micro_batch_size=options.micro_batch_size,
            shares=shares,
            mix=None if shares is None else Shares(shares=shares, since=zeros, lead=zeros),
            taken=self._order().taken(epoch=0, cursor=0),
            counters=NOTHING_RETURNED,
        )

    def steps(self, state: ReaderState, *, last_epoch: int | None) -> Iterator[StepPlan]:
        """Steps from a state on, not read yet, up to the end of `last_epoch` or without end."""
        order, mix, schedule = self.order_at(state), state.mix, self._options.schedule
        index, epoch, cursor = state.counters.steps, state.epoch, state.cursor
        size, micro_batch_size = state.batch_size, state.micro_batch_size
        lengths = self.rows.lengths if self._counts_tokens else None
        asked = -1  # the schedule, for the step of this index: once, whether or not an epoch ends before it
        while last_epoch is None or epoch <= last_epoch:
            if schedule is not None and asked != index:
                size, micro_batch_size = self._scheduled(schedule(index, size), micro_batch_size)
                asked = index
            # Proportions change where a step begins: what an epoch leaves over is still dealt by the old ones.
            own_order, own_mix = self._with_scheduled_shares(order, mix, index, epoch, cursor)
            plan = plan_step(
                own_order,
                epoch=epoch,
                cursor=cursor,
                size=size,
                end=self._options.end,
                lengths=lengths,
                micro_batch_size=micro_batch_size,
                mix=own_mix,
            )
            if plan is None:
                epoch, cursor = epoch + 1, 0
                continue
            order, mix = own_order, own_mix
            yield plan
            index, epoch, cursor = index + 1, plan.next_epoch, plan.next_cursor

    def steps_until(self, state: ReaderState, epoch: int) -> int:
        """Steps from a state on that begin before an epoch does: arithmetic, unless sizes or epochs vary."""
        if self._options.schedule is not None or self._counts_tokens or self._varies:
            return sum(1 for _ in self.steps(state, last_epoch=epoch - 1))
        return steps_left(
            num_items=self.length(state.epoch),
            cursor=state.cursor,
            size=state.batch_size,
            end=self._options.end,
            num_epochs=epoch - state.epoch,
        )

    def steps_of_epoch(self, state: ReaderState) -> int:
        """Steps of the whole epoch of a state, all of its size; with ``wrap``, those that begin in it.

        Raises:
            TypeError: their number follows from what was read before: sizes vary, or ``wrap`` goes on within tokens.

        """
        end, is_planned = self._options.end, self._counts_tokens or self._varies
        mixes_tokens = self._counts_tokens and self._mixture is not None and self._mixture.schedule is not None
        is_scheduled = self._options.schedule is not None or mixes_tokens
        if is_scheduled or (is_planned and end == "wrap"):
            kind = "sizes follow a schedule" if is_scheduled else "steps of varying size wrap around"
            raise TypeError(f"an epoch has no fixed number of steps where {kind}: use steps_left or steps_until(epoch)")
        if is_planned:
            return self.steps_until(self.at_epoch(state, state.epoch), state.epoch + 1)
        # Worked example, 7 rows, steps of 4 that wrap: where the cursor is 5, steps began at 1 and 5 of this epoch.
        cursor = state.cursor % state.batch_size if end == "wrap" else 0
        return steps_left(num_items=self.length(state.epoch), cursor=cursor, size=state.batch_size, end=end)

    def rest(self, state: ReaderState) -> Int64:
        """The rows that the epoch of a state has left.  # int64[n]"""
        return self.order_at(state).slice(epoch=state.epoch, start=state.cursor, stop=self.length(state.epoch)).copy()

    def at_epoch(self, state: ReaderState, epoch: int) -> ReaderState:
        """The state moved to the beginning of an epoch."""
        taken = self.order_at(state).taken(epoch=epoch, cursor=0)
        return msgspec.structs.replace(state, epoch=epoch, cursor=0, taken=taken)

    def length(self, epoch: int) -> int:
        """Rows of an epoch."""
        return self._order().length(epoch) if self._varies else self._num_items

    def with_shares(self, state: ReaderState, proportions: Sequence[float]) -> ReaderState:
        """A state whose mixture goes on with other proportions.

        Raises:
            UsageError: no mixture, a proportion that is none, a schedule, or windows that are mixed already.

        """
        mixture, order = self._mixture, self.order_at(state)
        if mixture is None or not isinstance(order, MixtureOrder):
            raise UsageError("proportions can be set of a Mixture, and not where its windows are sorted by length")
        if mixture.schedule is not None:
            raise UsageError("the proportions of this mixture follow its schedule", hint="open it without one")
        mix = order.changed(mixture.shares_of(proportions), epoch=state.epoch, cursor=state.cursor)
        return msgspec.structs.replace(state, mix=mix)

    def check_sizes(self, batch_size: int, micro_batch_size: int) -> None:
        """Refuse sizes that cannot be divided among the ranks, that no epoch fills, or that no row fits into.

        Raises:
            UsageError: a step is no whole number of micro-batches, or every row would be dropped, or has no room.

        """
        self._check_division(batch_size, micro_batch_size)
        if self._options.end != "drop":
            return
        if not self._counts_tokens:
            check_fits(size=batch_size, num_items=self._num_items, unit=self.unit)
        elif self._mixture is None and not isinstance(self._options.order, Weighted | Curriculum):
            num_tokens = int(self.rows.lengths[self._own[0]].sum(dtype=np.int64))
            check_fits(size=batch_size, num_items=num_tokens, unit="tokens")

    def order_at(self, state: ReaderState) -> Order:
        """The order, ready to go on from a state.

        Raises:
            ValueError: the state says of a mixture what cannot be.

        """
        return self._order(state.epoch, state.cursor, state.taken, state.mix)

    def _order(
        self, epoch: int = 0, cursor: int = 0, taken: tuple[int, ...] | None = None, mix: Shares | None = None
    ) -> Order:
        """The order, ready to go on from a place: iterations are in different threads, and each needs its own."""
        order, seed = self._options.order, self._options.seed
        if self._mixture is None and (taken is not None or mix is not None):
            raise ValueError("rows taken of each cache, where there is one cache")
        if isinstance(order, Curriculum):
            return CurriculumOrder(lambda epoch: self._of_epoch(order.by, epoch))
        made = [self._of_cache(number) for number in range(len(self._caches))]
        start = cursor - cursor % order.window if isinstance(order, LengthBucketed) else cursor
        mixed = made[0] if self._mixture is None else self._mixed(made, epoch, start, taken, mix)
        if isinstance(order, LengthBucketed):
            lengths, fingerprint = self.rows.lengths, self._fingerprint
            return BucketedOrder(mixed, lengths, fingerprint=fingerprint, seed=seed, window=order.window)
        return mixed

    def _mixed(
        self,
        orders: list[EpochOrder],
        epoch: int,
        cursor: int,
        taken: tuple[int, ...] | None,
        mix: Shares | None,
    ) -> MixtureOrder:
        mixture = self._mixture
        assert mixture is not None
        opened = mixture.of_rows(mixture.shares, self._mean_lengths)
        num_items = mixture.num_items(opened, [order.num_items for order in orders])
        shares = opened if mix is None else mixture.of_rows(mix.fractions(len(orders)), self._mean_lengths)
        return MixtureOrder(
            orders,
            shares,
            num_items,
            bases=self.rows.bounds[:-1].tolist(),
            start=epoch * num_items + cursor,
            taken=taken,
            mix=mix,
        )

    def _of_cache(self, number: int) -> EpochOrder:
        """The order of the rows of one cache."""
        seed, own, rows = self._options.seed, self._own[number], self.rows.trained_of(number)
        fingerprint = self._caches[number].manifest.content_fingerprint
        if self._weights is not None:
            return WeightedOrder(fingerprint=fingerprint, seed=seed, weights=self._weights[own], rows=rows)
        shuffled, num_items = self._options.order != "sequential", self._num_ordered(number)
        return EpochOrder(fingerprint=fingerprint, seed=seed, num_items=num_items, shuffled=shuffled, rows=rows)

    def _ordered_rows(self, number: int) -> slice | Int64:
        """The rows of one cache that are put in order, numbered through."""
        first, end = self.rows.bounds[number : number + 2].tolist()
        trained = self.rows.trained_of(number)
        return slice(first, end) if trained is None else first + trained

    def _num_ordered(self, number: int) -> int:
        own = self._own[number]
        return own.stop - own.start if isinstance(own, slice) else len(own)

    def _order_by(self) -> str | None:
        """What a state says that the order goes by."""
        order = self._options.order
        if isinstance(order, LengthBucketed):
            return None if order.window == WINDOW else str(order.window)
        if isinstance(order, Curriculum):
            return sha256(self._of_epoch(order.by, 0).tobytes()).hexdigest()[:16]
        return None if self._weights is None else sha256(self._weights.tobytes()).hexdigest()[:16]

    def _checked_weights(self, by: Any) -> Float64:
        if isinstance(by, Mapping):
            by = self.rows.of_inputs(self._caches, by)
        weights = np.asarray(self._column(by), np.float64)
        if weights.shape != (len(self.rows),) or not np.isfinite(weights).all() or weights.min(initial=0) < 0:
            raise ValueError(f"weights of shape {weights.shape}; expected {len(self.rows)} numbers, none below 0")
        for cache, own in zip(self._caches, self._own, strict=True):
            if not weights[own].any():
                raise ValueError(f"no row of {cache.folder} has a weight above 0")
        return weights

    def _of_epoch(self, by: Any, epoch: int) -> Int64:
        """The rows of an epoch of a curriculum."""
        given = by(epoch) if callable(by) else by
        rows = np.argsort(self._column(given), kind="stable") if isinstance(given, str) else np.asarray(given)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise ValueError(f"a curriculum of {rows.dtype} {list(rows.shape)}; expected the numbers of rows")
        if not len(rows) or rows.min() < 0 or rows.max() >= len(self.rows):
            raise ValueError(f"a curriculum's epoch {epoch}: expected some of the rows 0 to {len(self.rows) - 1}")
        kept: Int64 = rows[~np.isin(rows, self.rows.untrained)].astype(np.int64)
        if not len(kept):
            raise ValueError(f"a curriculum's epoch {epoch} has no row with a trained token")
        return kept

    def _column(self, by: Any) -> npt.ArrayLike:
        if not isinstance(by, str):
            return by  # type: ignore[no-any-return]
        return self.rows.lengths if by == "length" else self.rows.num_trained

    def _scheduled(self, given: Any, micro_batch_size: int) -> tuple[int, int]:
        """The sizes that a schedule gives: of a step, or of a step and its micro-batches."""
        size, own = given if isinstance(given, tuple) else (given, micro_batch_size)
        size = whole("the schedule's size", size, most=MOST)
        own = whole("the schedule's micro-batch size", own, least=1, most=MOST)
        self._check_division(size, own)
        return size, own

    def _with_scheduled_shares(
        self, order: Order, mix: Shares | None, index: int, epoch: int, cursor: int
    ) -> tuple[Order, Shares | None]:
        """The order of a mixture with the proportions that its schedule has for a step."""
        mixture = self._mixture
        if mixture is None or mixture.schedule is None or mix is None:
            return order, mix
        shares = mixture.shares_of(mixture.schedule(index))
        if mix.shares == tuple(map(str, shares)):
            return order, mix
        assert isinstance(order, MixtureOrder)
        changed = order.changed(shares, epoch=epoch, cursor=cursor)
        return self._order(epoch, cursor, changed.since, changed), changed

    def _check_division(self, size: int, micro_batch_size: int) -> None:
        check_batch_size(size, micro_batch_size=micro_batch_size, world_size=self._options.world_size)
        if micro_batch_size != self._with_room:
            check_room(self._options.batching, micro_batch_size, self.rows)
            self._with_room = micro_batch_size


def _check_order(kind: RowKind, options: Options, mixture: Mixture | None) -> None:
    order = options.order
    if kind == "blocks" and options.cutoff_len is not None:
        raise UsageError(
            "cutoff_len is for documents; blocks were cut when they were packed",
            hint="choose a batching of documents, or packer pack --block-len",
        )
    if kind == "blocks" and isinstance(order, LengthBucketed):
        raise UsageError(
            "order='length_bucketed' is for documents; all blocks are of one length",
            hint="choose batching='padded', 'padding_free' or 'token_budget'",
        )
    if mixture is not None and isinstance(order, Curriculum):
        raise UsageError("a curriculum says which row comes next, and so do the proportions of a mixture")
    if mixture is not None and mixture.schedule is not None and isinstance(order, LengthBucketed):
        raise UsageError("proportions cannot follow a schedule where windows of a mixture are sorted by length")


def _name(schedule: Any) -> str | None:
    return None if schedule is None else str(getattr(schedule, "__qualname__", "a callable"))


def pad_id_of(manifest: Manifest) -> int:
    """The id micro-batches are padded with: the recipe's, else the tokenizer's."""
    named = manifest.recipe.get("pack", {}).get("pad_id")
    return manifest.model.pad_id if named is None else int(named)
