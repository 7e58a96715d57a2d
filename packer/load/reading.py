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
from packer.load.layouts import PREFIX, BatchColumns, Layout, with_sides
from packer.load.ordered_rows import PADDING_ROW
from packer.load.ordering import Counters, ReaderState
from packer.load.pixels import images_of
from packer.load.ranks import Dealer
from packer.load.row_source import RowSource, StepPlan
from packer.load.step import MicroBatch, Step, shift_labels
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


class StepReader:
    """Reads one rank's rows of planned steps, into page-locked memory for a GPU. Not thread-safe."""

    def __init__(self, source: RowSource, options: LoaderOptions) -> None:
        pad_id = pad_id_of(source.caches[0].manifest)
        self._rows = source.rows
        self._dealer, self._counts_tokens = Dealer(source.rows, options), options.batching == "token_budget"
        most = source.rows.most_sequences() * options.micro_batch_size if options.static_shapes else None
        self._layout = Layout(options, block_len=source.rows.block_len, pad_id=pad_id, most_sequences=most)
        has_images = options.images and any(cache.manifest.media is not None for cache in source.caches)
        self.images = images_of(source, options) if has_images else None
        self._columns = BatchColumns(source, options) if options.columns else None
        self._shifted = options.labels == "shifted"
        self._pin = options.device.type == "cuda"
        most_tokens = 0 if self.images else _MAX_TOKENS  # pixels take a thousand times as much memory as ids
        self._max_rows = max(int(most_tokens * options.world_size / source.rows.lengths.mean()), 1)

    def steps(self, plans: Iterator[StepPlan], state: ReaderState) -> Iterator[tuple[Step, ReaderState]]:
        """Yield the steps of consecutive plans from a state on, each with the loader's state after returning it."""
        for group in group_steps(plans, max_rows=self._max_rows):
            shares = [self._dealer.share(plan.rows) for plan in group]
            counts = self._counts(group)
            micro_batches = iter(self._micro_batches([part for share in shares for part in share.parts]))
            for plan, share, trained, tokens in zip(group, shares, *counts, strict=True):
                step = Step(
                    micro_batches=tuple(islice(micro_batches, len(share.parts))),
                    index=state.counters.steps,
                    epoch=plan.epoch,
                    block_ids=np.concatenate(share.parts),
                    num_items_in_batch=trained,
                    coverage=plan.coverage,
                    size=tokens if self._counts_tokens else plan.num_rows,
                    num_tokens=tokens,
                    num_slots=share.num_slots,
                    num_pairs=plan.num_rows if self._rows.num_sides == 2 else None,
                )
                state = _state_after(state, plan, trained=trained, tokens=tokens, slots=share.num_slots)
                yield step, state

    def summary(self, plans: Iterable[StepPlan]) -> EpochSummary:
        """Return totals over the steps of some plans. Reads no rows."""
        steps = micro_batches = num_items = 0
        for steps, plan in enumerate(plans, start=1):  # noqa: B007 - their number
            micro_batches += self._dealer.num_micro_batches(plan.rows)
            num_items += int(self._rows.num_trained[plan.real_rows].sum(dtype=np.int64))
        return EpochSummary(steps, micro_batches, num_items)

    def _counts(self, plans: Sequence[StepPlan]) -> tuple[list[int], list[int]]:
        """Count trained targets and tokens of each step, over all ranks."""
        real = np.concatenate([plan.real_rows for plan in plans])
        firsts = offsets_of([plan.num_rows for plan in plans])[:-1]
        of_rows = (self._rows.num_trained[real], self._rows.lengths[real])
        sums = (np.add.reduceat(counts, firsts, dtype=np.int64) for counts in of_rows)
        of_trained, of_tokens = (each.tolist() for each in sums)
        return of_trained, of_tokens

    def _micro_batches(self, rows: list[Int64]) -> list[MicroBatch]:
        """Read all rows of this rank at once, which spreads the fixed cost over them, and lay them out."""
        parts = [self._rows.documents_of(each) for each in rows]
        every = np.concatenate(parts)
        found = self._rows.locate(every[every != PADDING_ROW])
        if self._rows.num_sides == 1:
            sizes = self._rows.lengths_of_each(every)[:, 0]
        else:
            sizes = np.concatenate([self._rows.lengths_of_each(each).T.reshape(-1) for each in rows])
        beside = {} if self._columns is None else self._columns.values(every[every != PADDING_ROW], found)
        filler_ids = np.zeros(0, np.int32)
        if self.images is not None:
            shown = self.images.shown(found, parts)
            parts, sizes, filler_ids = self.images.filled(shown, parts, sizes)
        micro_batches = self._layout.micro_batches(found, parts, sizes, beside, filler_ids)
        for each in micro_batches if beside else ():
            each["columns"] = {name.removeprefix(PREFIX): each.pop(name) for name in beside}
        if self.images is not None:
            micro_batches = self.images.added(shown, micro_batches)
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
        epoch=plan.epoch,
        cursor=plan.next_cursor,
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
