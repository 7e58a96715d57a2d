"""Steps made ahead: planned, read and placed several at a time, in a thread of their own, while the consumer works."""

import atexit
import os
import sys
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakSet

import msgspec

from packer.batches import Int64
from packer.errors import PackerError
from packer.load.placement import Placement
from packer.load.reading import StepReader
from packer.load.row_source import RowSource
from packer.load.state import Counters, ReaderState
from packer.load.step import Step
from packer.load.steps import Planned

T = TypeVar("T")


class _Last(NamedTuple):
    """What comes after the last item."""

    error: BaseException | None
    """What was raised, or nothing."""


class Prefetch(Generic[T]):
    """Iterates over `items` in a thread, at most `depth` items ahead; with depth 0 there is no thread.

    What `items` raises is raised here, after the items before it. :meth:`close` stops the thread and waits for it;
    items that were made and not taken are thrown away. In a forked process there is no thread, and nothing to wait for.
    """

    _ending = staticmethod(sys.is_finalizing)

    def __init__(self, items: Iterator[T], *, depth: int) -> None:
        self._items = items
        self._ready: SimpleQueue[T | _Last] = SimpleQueue()
        self._permits: SimpleQueue[bool] = SimpleQueue()  # True: make one more; False: stop
        self._last: _Last | None = None
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
        if self._last is not None:
            raise StopIteration
        if self._thread is None:
            return next(self._items)
        if os.getpid() != self._pid:
            raise RuntimeError("this iteration was begun in another process; begin a new one here")
        taken = self._ready.get()
        if isinstance(taken, _Last):
            self._last = taken
            if taken.error is not None:
                raise taken.error
            raise StopIteration
        self._permits.put(True)
        return taken

    def close(self) -> None:
        """Stop and wait for the thread. Calling it again does nothing."""
        if self._ending():
            return  # no thread runs any more, and this module's names are gone
        self._closed = True
        self._last = self._last or _Last(None)
        if self._thread is not None and os.getpid() == self._pid:
            self._permits.put(False)
            self._thread.join()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while self._permits.get() and not self._closed:
                self._ready.put(next(self._items))
        except StopIteration:
            pass
        except BaseException as raised:  # noqa: BLE001 - handed to the consumer, whatever it is
            error = raised
        finally:
            self._ready.put(_Last(error))


_running: WeakSet[Prefetch[Any]] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """Before the interpreter ends: a thread it cut off within torch would take the process down with it."""
    for prefetch in list(_running):
        prefetch.close()


_MOST_STEPS = 16
"""Steps that are read together: what a step costs besides its bytes is then paid once for several of them."""

_MOST_TOKENS = 1 << 18
"""Of a rank, in steps that are read together; a column of int64 is then 2 MB."""


class MadeStep(NamedTuple):
    """A step that was read and placed."""

    step: Step
    mark: Any
    """The placement's: what the consumer waits for."""

    state: ReaderState
    """Where the loader stands once the step was returned."""

    left_out: Int64 | None
    """What ``drop`` left out of the epoch that ended before this step."""


class StepMaker:
    """Makes the steps from a state on. It runs in the background thread, and touches nothing the consumer writes.

    Args:
        source: plans the steps.
        reader: reads them.
        placement: of their micro-batches.
        size_of: see :meth:`RowSource.steps`.
        world_size: number of ranks.

    """

    def __init__(
        self,
        source: RowSource,
        reader: StepReader,
        placement: Placement,
        *,
        size_of: Callable[[int, int], int] | None,
        world_size: int,
    ) -> None:
        self._source, self._reader, self._placement = source, reader, placement
        self._size_of = size_of
        self._most_rows = most_rows(source.mean_length, world_size=world_size)

    def made(self, state: ReaderState, *, last_epoch: int | None) -> Iterator[MadeStep]:
        """Steps up to the end of an epoch, or without end."""
        planned = self._source.steps(state, size_of=self._size_of, last_epoch=last_epoch)
        for group in read_together(planned, most_rows=self._most_rows):
            for plan, (step, trained) in zip(group, self._read(group, state.counters.steps), strict=True):
                state = _after(state, plan, step, trained)
                yield MadeStep(step, self._placement.mark(), state, plan.left_out)

    def _read(self, group: list[Planned], index: int) -> Iterator[tuple[Step, int]]:
        """Steps in one go; where one cannot be read, those before it come first."""
        plans = [planned.plan for planned in group]
        try:
            steps = self._reader.read(plans, index=index)
        except PackerError:
            for number, plan in enumerate(plans):
                yield from self._reader.read([plan], index=index + number)
        else:
            yield from steps


def most_rows(mean_length: float, *, world_size: int) -> int:
    """Rows over all ranks that are worth reading in one go: with more of them, bytes are all that counts."""
    return max(int(_MOST_TOKENS * world_size / max(mean_length, 1)), 1)


def read_together(planned: Iterator[Planned], *, most_rows: int) -> Iterator[list[Planned]]:
    """The same steps, several at a time: one first, so that nobody waits for more; twice as many each time after.

    A step with padding rows is the last of its group. What `planned` raises comes after the steps before it.

    Args:
        planned: steps in their order.
        most_rows: rows that are read in one go; a step of more is read by itself.

    """
    group: list[Planned] = []
    num_rows, most_steps = 0, 1
    try:
        for step in planned:
            group.append(step)
            num_rows += len(step.plan.rows)
            full = len(group) == most_steps or num_rows + len(step.plan.rows) > most_rows
            if full or step.plan.num_rows < len(step.plan.rows):
                yield group
                group, num_rows, most_steps = [], 0, min(2 * most_steps, _MOST_STEPS)
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group


def _after(state: ReaderState, planned: Planned, step: Step, trained: int) -> ReaderState:
    plan, before = planned.plan, state.counters
    return msgspec.structs.replace(
        state,
        epoch=plan.next_epoch,
        cursor=plan.next_cursor,
        batch_size=planned.size,
        taken=planned.taken,
        counters=Counters(
            steps=before.steps + 1,
            rows=before.rows + plan.num_rows,
            trained=before.trained + trained,
            tokens=before.tokens + step.num_tokens,
            slots=before.slots + step.num_slots,
        ),
    )
