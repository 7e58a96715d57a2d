"""From plans to tensors: divides the rows of steps among ranks, reads this rank's ahead and counts everyone's."""

import atexit
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakSet

import msgspec
import numpy as np
from torch import Tensor
from torch.utils._pytree import tree_map_only

from packer.batches import Int64
from packer.layout import offsets_of
from packer.load.arguments import LoaderOptions
from packer.load.batching import TokenBudget, costs_of, split_by_tokens
from packer.load.layouts import layout_of
from packer.load.pixels import images_of
from packer.load.row_source import RowSource
from packer.load.sides import with_sides
from packer.load.state import Counters, ReaderState
from packer.load.step import MicroBatch, Step, shift_labels
from packer.load.step_plan import PADDING_ROW, StepPlan
from packer.store.cache import FoundDocuments
from packer.store.manifest import Manifest

T = TypeVar("T")

_MAX_STEPS = 16
"""Steps that are read together, to spread the fixed cost of reading over several of them."""

_MAX_TOKENS = 1 << 18
"""Upper bound of one rank's tokens in steps that are read together; a column of int64 is then 2 MB."""


class EpochSummary(NamedTuple):
    """Totals over some steps."""

    steps: int
    micro_batches: int
    """Micro-batches of one rank; every rank has the same number."""

    num_items: int | float
    """Sum of the steps' `num_items_in_batch`."""


class StepReader:
    """Reads one rank's rows of planned steps, into page-locked memory for a GPU. Not thread-safe."""

    def __init__(self, source: RowSource, options: LoaderOptions) -> None:
        form, block_len = options.form, source.rows.block_len
        pad_id = pad_id_of(source.caches[0].manifest)
        self._rows = source.rows
        self._batching, self._padded = options.batching, options.batching.padded
        self._layout = layout_of(options.batching, block_len=block_len, pad_id=pad_id, form=form)
        fills = source.rows.content == "examples"
        self._images = (
            images_of(source.caches, options.batching, options.cutoff_len, pad_id=pad_id, fills=fills)
            if options.images
            else None
        )
        self.has_images = self._images is not None
        self._rank, self._world_size = options.rank, options.world_size
        self._micro_batch_size, self._shifted = options.micro_batch_size, form.shifted
        self._sums_weights = form.weighted and source.rows.weighted  # else every target has weight 1
        self._pin = options.device.type == "cuda"
        self._max_rows = max(int(_MAX_TOKENS * self._world_size / max(source.rows.mean_length, 1)), 1)

    def steps(
        self, plans: Iterator[StepPlan], state: ReaderState, *, worker: tuple[int, int, int] = (0, 0, 1)
    ) -> Iterator[tuple[Step | None, ReaderState]]:
        """Yield the steps of consecutive plans, each with the loader's state after returning it.

        Args:
            plans: from the state on.
            state: of the loader.
            worker: (first, w, W): from the step of index `first` on, every W-th step is read, beginning with the w-th.
                None is yielded in place of steps that belong to other workers.

        Raises:
            CheckError: a row of this rank does not match its digest.
        """
        first, own, num_workers = worker
        for group in group_steps(plans, max_rows=self._max_rows):
            shares = [self._share(plan) for plan in group]
            is_own = [(state.counters.steps + number - first) % num_workers == own for number in range(len(group))]
            counts = self._counts(group)
            read = [part for share, wanted in zip(shares, is_own, strict=True) if wanted for part in share.parts]
            micro_batches = iter(self._micro_batches(read) if read else ())
            for plan, share, wanted, trained, tokens in zip(group, shares, is_own, *counts, strict=True):
                step = None
                if wanted:
                    step = Step(
                        micro_batches=tuple(islice(micro_batches, len(share.parts))),
                        index=state.counters.steps,
                        epoch=plan.epoch,
                        block_ids=np.concatenate(share.parts),
                        num_items_in_batch=self._num_items(plan, trained),
                        coverage=plan.coverage,
                        size=tokens if isinstance(self._batching, TokenBudget) else plan.num_rows,
                        num_tokens=tokens,
                        num_slots=share.num_slots,
                        num_pairs=self._rows.num_pairs(plan.real_rows),
                    )
                state = _state_after(state, plan, trained=trained, tokens=tokens, slots=share.num_slots)
                yield step, state

    def summary(self, plans: Iterable[StepPlan]) -> EpochSummary:
        """Return totals over the steps of some plans. Reads no rows, unless weights are summed."""
        steps, micro_batches, num_items = 0, 0, 0.0 if self._sums_weights else 0
        for steps, plan in enumerate(plans, start=1):  # noqa: B007 - their number
            micro_batches += len(self._share(plan).parts)
            num_items += self._num_items(plan, int(self._rows.num_trained[plan.real_rows].sum(dtype=np.int64)))
        return EpochSummary(steps, micro_batches, num_items)

    def _counts(self, plans: Sequence[StepPlan]) -> tuple[list[int], list[int]]:
        """Count trained targets and tokens of each step, over all ranks."""
        real = np.concatenate([plan.real_rows for plan in plans])
        firsts = offsets_of([plan.num_rows for plan in plans])[:-1]
        of_rows = (self._rows.num_trained[real], self._rows.lengths[real])
        sums = (np.add.reduceat(counts, firsts, dtype=np.int64) for counts in of_rows)
        of_trained, of_tokens = (each.tolist() for each in sums)
        return of_trained, of_tokens

    def _num_items(self, plan: StepPlan, num_trained: int) -> int | float:
        """Return the number that the summed losses of a whole step are divided by."""
        return float(self._rows.weight_sums(plan.real_rows).sum()) if self._sums_weights else num_trained

    def _share(self, plan: StepPlan) -> "_Share":
        return self._share_by_tokens(plan) if isinstance(self._batching, TokenBudget) else self._share_by_rows(plan)

    def _share_by_rows(self, plan: StepPlan) -> "_Share":
        """Divide by rows, the same number in each micro-batch; pad a short step so that all ranks are even."""
        size, rows, num_sides = self._micro_batch_size, plan.rows, self._rows.num_sides
        if missing := -len(rows) % (size * self._world_size):
            rows = np.append(rows, np.full(missing, PADDING_ROW, np.int64))
        share = len(rows) // self._world_size
        first = self._rank * share
        parts = [rows[start : start + size] for start in range(first, first + share, size)]
        if self._rows.block_len:
            return _Share(parts, len(rows) * self._rows.block_len)
        sides = self._rows.lengths_of_sides[plan.real_rows]
        if self._padded is None:
            return _Share(parts, int(sides.sum(dtype=np.int64)) + num_sides * (len(rows) - len(sides)))
        longest = np.ones(len(rows), np.int64)
        longest[: len(sides)] = sides.max(1)
        widths = map(self._padded.rounded, longest.reshape(-1, size).max(1).tolist())
        return _Share(parts, num_sides * size * sum(widths))

    def _share_by_tokens(self, plan: StepPlan) -> "_Share":
        """Fill each micro-batch up to its token budget; if padded, a pair counts as two rows of its longer side."""
        padded, num_sides = self._padded, self._rows.num_sides
        sides = self._rows.lengths_of_sides[plan.real_rows].astype(np.int64)
        lengths, budget = sides.sum(1), self._micro_batch_size
        if padded is not None:
            lengths, budget = sides.max(1), self._micro_batch_size // num_sides
        costs = lengths
        if isinstance(self._batching, TokenBudget) and self._batching.max_pixels is not None:
            costs = costs_of(self._batching, lengths, self._rows.pixels[plan.real_rows], budget=budget)
        groups = split_by_tokens(costs, budget=budget, multiple=self._world_size, padded=padded)
        parts = [np.where(group == PADDING_ROW, PADDING_ROW, plan.rows[group]) for group in groups]
        own = parts[self._rank :: self._world_size]
        if padded is None:
            return _Share(own, int(lengths.sum()) + num_sides * (sum(map(len, groups)) - len(lengths)))
        longest = np.append(lengths, 1)  # at index -1, the length of a padding row
        slots = sum(len(group) * padded.rounded(int(longest[group].max())) for group in groups)
        return _Share(own, num_sides * slots)

    def _micro_batches(self, rows: list[Int64]) -> list[MicroBatch]:
        """Read all rows of this rank at once, which spreads the fixed cost over them, and lay them out."""
        parts = [self._rows.documents_of(each) for each in rows]
        every = np.concatenate(parts)
        is_real = every != PADDING_ROW
        real = every[is_real]
        found = self._rows.locate(real)
        sizes = np.ones(len(every), np.int64)
        if not self._rows.block_len:
            sides = self._rows.lengths_of_sides[real // self._rows.num_sides]
            sizes[is_real] = sides[np.arange(len(real)), real % self._rows.num_sides]
        micro_batches = self._layout.micro_batches(found, parts, sizes)
        if self._images is not None and isinstance(found, FoundDocuments):
            micro_batches = self._images.added(found, parts, micro_batches)
        if self._rows.content != "examples":
            micro_batches = with_sides(micro_batches, parts, self._rows)
        if self._shifted:
            micro_batches = [shift_labels(micro_batch) for micro_batch in micro_batches]
        # Copies from page-locked memory to a device do not block the host.
        return tree_map_only(Tensor, Tensor.pin_memory, micro_batches) if self._pin else micro_batches


def pad_id_of(manifest: Manifest) -> int:
    """Return the id used for padding: the recipe's, else the tokenizer's."""
    pad_id = manifest.recipe.get("pack", {}).get("pad_id")
    return manifest.model.pad_id if pad_id is None else int(pad_id)


class _Share(NamedTuple):
    """One rank's share of a step."""

    parts: list[Int64]
    """Rows of each of its micro-batches; PADDING_ROW for padding."""

    num_slots: int
    """Positions of the whole step, over all ranks, including padding."""


def group_steps(plans: Iterator[StepPlan], *, max_rows: int) -> Iterator[list[StepPlan]]:
    """Group steps to be read together: first one, so that training need not wait, then twice as many each time.

    Steps of 16,000 tokens are read two to three times as fast as one by one. A group ends with a step that has padding
    rows, with the last step of an epoch, which may get some, and with the step that brings it to `max_rows`.
    """
    group: list[StepPlan] = []
    num_rows, max_steps = 0, 1
    for plan in plans:
        group.append(plan)
        num_rows += len(plan.rows)
        full = len(group) == max_steps or num_rows + len(plan.rows) > max_rows
        if full or plan.num_rows < len(plan.rows) or plan.coverage == 1:
            yield group
            group, num_rows, max_steps = [], 0, min(2 * max_steps, _MAX_STEPS)
    if group:
        yield group


def _state_after(state: ReaderState, plan: StepPlan, *, trained: int, tokens: int, slots: int) -> ReaderState:
    before = state.counters
    return msgspec.structs.replace(
        state,
        epoch=plan.next_epoch,
        cursor=plan.next_cursor,
        batch_size=plan.size,
        taken=plan.taken,
        counters=Counters(
            steps=before.steps + 1,
            rows=before.rows + plan.num_rows,
            trained=before.trained + trained,
            tokens=before.tokens + tokens,
            slots=before.slots + slots,
        ),
    )


class Prefetch(Generic[T]):
    """Iterates over `items` in a thread, at most `depth` items ahead; with depth 0 there is no thread.

    An exception raised by `items` is re-raised here, after the items before it. :meth:`close` stops the thread and
    waits for it; prefetched items that were not consumed are discarded. In a forked process there is no thread, so
    nothing to wait for.
    """

    _ending = staticmethod(sys.is_finalizing)

    def __init__(self, items: Iterator[T], *, depth: int) -> None:
        self._items = items
        self._ready: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()  # an item, or the final exception
        self._permits: SimpleQueue[bool] = SimpleQueue()  # True: make one more; False: stop
        self._closed = False
        self._pid = os.getpid()
        self._thread = Thread(target=self._run, name="packer-load", daemon=True) if depth else None
        for _ in range(depth):
            self._permits.put(True)
        if self._thread is not None:
            _running.add(self)
            self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._closed:
            raise StopIteration
        if self._thread is None:
            return next(self._items)
        if os.getpid() != self._pid:
            raise RuntimeError("this iteration was begun in another process; begin a new one here")
        item: T
        item, error = self._ready.get()
        if error is not None:
            self._closed = True
            raise error
        self._permits.put(True)
        return item

    def close(self) -> None:
        """Stop and wait for the thread. Idempotent."""
        if self._ending():
            return  # threads have ended, and this module's globals are gone
        self._closed = True
        if self._thread is not None and os.getpid() == self._pid:
            self._permits.put(False)
            self._thread.join()

    def _run(self) -> None:
        error: BaseException = StopIteration()
        try:
            while self._permits.get() and not self._closed:
                self._ready.put((next(self._items), None))
        except BaseException as raised:  # noqa: BLE001 - handed to the consumer, whatever it is
            error = raised
        self._ready.put((None, error))


_running: WeakSet[Prefetch[Any]] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop all threads before the interpreter exits: a thread cut off within torch would crash the process."""
    for prefetch in list(_running):
        prefetch.close()
