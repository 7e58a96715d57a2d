"""Where a loader's rows come from: one cache or a mixture, their order, and the steps that are cut from it."""

import warnings
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from packer.batches import Int64
from packer.errors import UsageError
from packer.load.arguments import MOST, whole
from packer.load.batching import Packed, TokenBudget, name_of, padded_of
from packer.load.layouts import Ids
from packer.load.mixture import Mixture
from packer.load.options import Options
from packer.load.order import Order
from packer.load.ordering import Curriculum, LengthBucketed, Weighted, order_name
from packer.load.row_orders import RowOrders
from packer.load.rows import RowKind, Rows, check_weights
from packer.load.state import NOTHING_RETURNED, STATE_VERSION, ReaderState, Shares
from packer.load.steps import StepPlan, check_batch_size, check_fits, plan_step, steps_left
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

    """

    def __init__(self, source: Cache | Mixture, options: Options) -> None:
        self.options = options
        self._mixture = source if isinstance(source, Mixture) else None
        self._caches = source.caches if isinstance(source, Mixture) else (source,)
        self._kind: RowKind = "blocks" if isinstance(options.batching, Packed) else "documents"
        self._by_tokens = isinstance(options.batching, TokenBudget)
        _check(self._kind, options)
        self.rows = Rows(self._caches, options.split, kind=self._kind, cutoff_len=options.cutoff_len)
        manifest = self._caches[0].manifest
        special = np.array(sorted({*manifest.model.control_ids, *manifest.model.stop_ids}), np.int64)
        separated = manifest.recipe["pack"]["mode"] == "eos"
        self.ids = Ids(pad=pad_id_of(manifest), special=special, separated=separated)
        if options.reference is not None:
            if self.rows.content != "pairs" or len(self._caches) > 1:
                raise UsageError("a reference is that of the pairs of one cache", hint="leave it out")
            options.reference.check(self._caches[0].documents(options.split))
        self._orders = RowOrders(source, self.rows, options)
        self._num_items = self._orders.at().num_items
        self._is_planned = (
            self._by_tokens or self._orders.varies
        )  # how many steps there are shows when they are planned
        check_weights(weighted=self.rows.weighted, wanted=options.form.weighted)
        _check_room(self.rows, options)
        self.check_size(options.global_batch_size)
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
        options, order = self.options, self._orders.at()
        shares = None if self._mixture is None else tuple(str(share) for share in self._mixture.shares)
        return ReaderState(
            version=STATE_VERSION,
            fingerprint=self._orders.fingerprint,
            split=options.split,
            batching=name_of(options.batching),
            padded=padded_of(options.batching),
            cutoff_len=options.cutoff_len,
            order=order_name(options.order),
            order_by=self._orders.by,
            seed=options.seed,
            end=options.end,
            schedule=None if options.schedule is None else getattr(options.schedule, "__qualname__", "a callable"),
            micro_batch_size=options.micro_batch_size,
            epoch=0,
            cursor=0,
            batch_size=options.global_batch_size,
            opened_batch_size=options.global_batch_size,
            shares=shares,
            mix=None if shares is None else Shares(shares=shares, since=(0,) * len(shares)),
            taken=order.taken(epoch=0, cursor=0),
            counters=NOTHING_RETURNED,
        )

    def steps(self, state: ReaderState, *, last_epoch: int | None) -> Iterator[StepPlan]:
        """Steps from a state on, not read yet, up to the end of `last_epoch` or without end."""
        order, schedule = self.order_at(state), self.options.schedule
        index, size, epoch, cursor = state.counters.steps, state.batch_size, state.epoch, state.cursor
        asked = -1  # the schedule, for the step of this index: once, whether or not an epoch ends before it
        while last_epoch is None or epoch <= last_epoch:
            if schedule is not None and asked != index:
                size, asked = whole("the schedule's size", schedule(index, size), most=MOST), index
                self._check_divisible(size)
            lengths = self.rows.lengths if self._by_tokens else None
            plan = plan_step(order, epoch=epoch, cursor=cursor, size=size, end=self.options.end, lengths=lengths)
            if plan is None:
                epoch, cursor = epoch + 1, 0
                continue
            yield plan
            index, epoch, cursor = index + 1, plan.next_epoch, plan.next_cursor

    def steps_until(self, state: ReaderState, epoch: int) -> int:
        """Steps from a state on that begin before an epoch does: arithmetic, unless sizes or epochs vary."""
        if self.options.schedule is not None or self._is_planned:
            return sum(1 for _ in self.steps(state, last_epoch=epoch - 1))
        return steps_left(
            num_items=self.length(state.epoch),
            cursor=state.cursor,
            size=state.batch_size,
            end=self.options.end,
            num_epochs=epoch - state.epoch,
        )

    def steps_of_epoch(self, state: ReaderState) -> int:
        """Steps of the whole epoch of a state, all of its size; with ``wrap``, those that begin in it.

        Raises:
            TypeError: their number follows from what was read before: sizes vary, or ``wrap`` goes on within tokens.

        """
        end, is_scheduled = self.options.end, self.options.schedule is not None
        if is_scheduled or (self._is_planned and end == "wrap"):
            kind = "sizes follow a schedule" if is_scheduled else "steps of varying size wrap around"
            raise TypeError(f"an epoch has no fixed number of steps where {kind}: use steps_left or steps_until(epoch)")
        if self._is_planned:
            first = msgspec.structs.replace(state, cursor=0, taken=self.taken_before(state.epoch, state))
            return self.steps_until(first, state.epoch + 1)
        # Worked example, 7 rows, steps of 4 that wrap: where the cursor is 5, steps began at 1 and 5 of this epoch.
        cursor = state.cursor % state.batch_size if end == "wrap" else 0
        return steps_left(num_items=self.length(state.epoch), cursor=cursor, size=state.batch_size, end=end)

    def rest(self, state: ReaderState) -> Int64:
        """The rows that the epoch of a state has left.  # int64[n]"""
        return self.order_at(state).slice(epoch=state.epoch, start=state.cursor, stop=self.length(state.epoch)).copy()

    def taken_before(self, epoch: int, state: ReaderState) -> tuple[int, ...] | None:
        """For a mixture, the rows of each cache before an epoch, counted from a state."""
        return self.order_at(state).taken(epoch=epoch, cursor=0)

    def length(self, epoch: int) -> int:
        """Rows of an epoch."""
        return self._orders.at().length(epoch) if self._orders.varies else self._num_items

    def with_shares(self, state: ReaderState, proportions: Sequence[float]) -> ReaderState:
        """A state whose mixture goes on with other proportions.

        Raises:
            UsageError: no mixture, a proportion that is none, or windows that are mixed already.

        """
        if self._mixture is None or isinstance(self.options.order, LengthBucketed):
            raise UsageError("proportions can be set of a Mixture, and not where its windows are sorted by length")
        shares = tuple(str(share) for share in self._mixture.shares_of(proportions))
        assert state.taken is not None
        return msgspec.structs.replace(state, mix=Shares(shares=shares, since=state.taken))

    def check_size(self, size: int) -> None:
        """Refuse a size that cannot be divided among the ranks, or that no epoch fills.

        Raises:
            UsageError: it is no whole number of micro-batches, or every row would be dropped.

        """
        self._check_divisible(size)
        if self.options.end != "drop":
            return
        if not self._by_tokens:
            check_fits(size=size, num_items=self._num_items, unit=self.unit)
        elif self._mixture is None and not isinstance(self.options.order, Weighted | Curriculum):
            check_fits(size=size, num_items=int(self.rows.ordered_lengths().sum(dtype=np.int64)), unit="tokens")

    def set_options(self, options: Options, *, batch_size: int) -> None:
        """Take options that differ in the size of micro-batches.

        Raises:
            UsageError: steps of `batch_size` cannot be divided so, or a document has no room.

        """
        check_batch_size(batch_size, micro_batch_size=options.micro_batch_size, world_size=options.world_size)
        _check_room(self.rows, options)
        self.options = options

    def _check_divisible(self, size: int) -> None:
        options = self.options
        check_batch_size(size, micro_batch_size=options.micro_batch_size, world_size=options.world_size)

    def order_at(self, state: ReaderState) -> Order:
        """The order, ready to go on from a state.

        Raises:
            ValueError: the state says of a mixture what cannot be.

        """
        return self._orders.at(epoch=state.epoch, cursor=state.cursor, taken=state.taken, shares=state.mix)


def _check(kind: RowKind, options: Options) -> None:
    if kind == "blocks" and options.cutoff_len is not None:
        raise UsageError(
            "cutoff_len is for documents; blocks were cut when they were packed",
            hint="choose a batching of documents, or packer pack --block-len",
        )
    if kind == "blocks" and isinstance(options.order, LengthBucketed):
        raise UsageError(
            "order='length_bucketed' is for documents; all blocks are of one length",
            hint="choose batching='padded', 'padding_free' or 'token_budget'",
        )


def _check_room(rows: Rows, options: Options) -> None:
    """Refuse documents that no micro-batch has room for.

    Raises:
        UsageError: names how many there are and how long the longest is.

    """
    batching, size, num_sides = options.batching, options.micro_batch_size, rows.num_sides
    padded, what = padded_of(batching), "pairs" if num_sides == 2 else "documents"
    limits = []
    if padded is not None and padded.length is not None:
        limits.append((padded.length, rows.lengths_of_sides.max(1), f"micro-batches are padded to {padded.length}"))
    if isinstance(batching, TokenBudget):
        limits.append((size, rows.lengths, "a micro-batch holds no more"))
    for longest, of_rows, reason in limits:
        lengths = np.delete(of_rows, rows.untrained)
        too_long = int(np.count_nonzero(lengths > longest))
        if too_long:
            raise UsageError(
                f"{too_long} of {len(lengths)} {what} have more than {longest} tokens, the longest {lengths.max()}: "
                f"{reason}",
                hint="make the micro-batch larger, or set cutoff_len, which trains their beginning alone",
            )
    if isinstance(batching, TokenBudget) and padded is not None:
        widest = num_sides * padded.rounded(int(np.delete(rows.lengths_of_sides, rows.untrained, 0).max()))
        if widest > size:
            raise UsageError(
                f"a row padded to {widest} tokens does not fit into a micro-batch of {size}",
                hint="make the micro-batch larger, or multiple_of smaller",
            )


def pad_id_of(manifest: Manifest) -> int:
    """The id micro-batches are padded with: the recipe's, else the tokenizer's."""
    named = manifest.recipe.get("pack", {}).get("pad_id")
    return manifest.model.pad_id if named is None else int(named)
