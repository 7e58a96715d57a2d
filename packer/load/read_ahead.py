"""Prefetch items in a background thread while the consumer works."""

import atexit
import os
import sys
from collections.abc import Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")


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
