"""One background thread that stays at most a few items ahead of its consumer."""

from collections import deque
from collections.abc import Iterator
from threading import Condition, Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetch(Generic[T]):
    """Iterates over `items` in a thread, at most `depth` items ahead; with depth 0 there is no thread.

    What `items` raises is raised here, after the items before it. :meth:`close` stops the thread and waits for it;
    items that were made and not taken are thrown away.
    """

    def __init__(self, items: Iterator[T], *, depth: int) -> None:
        self._items = items
        self._ready: deque[T] = deque()
        self._changed = Condition()
        self._closed = False
        self._exhausted = False
        self._error: BaseException | None = None
        self._depth = depth
        self._thread = Thread(target=self._run, name="packer-load", daemon=True) if depth else None
        if self._thread is not None:
            self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._thread is None:
            if self._closed:
                raise StopIteration
            return next(self._items)
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._exhausted or self._closed)
            if self._ready and not self._closed:
                self._changed.notify_all()
                return self._ready.popleft()
            error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        """Stop and wait for the thread. Calling it again does nothing."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            for item in self._items:
                with self._changed:
                    self._ready.append(item)
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: len(self._ready) < self._depth or self._closed)
                    if self._closed:
                        return
        except BaseException as error:  # noqa: BLE001 - handed to the consumer, whatever it is
            self._error = error
        finally:
            with self._changed:
                self._exhausted = True
                self._changed.notify_all()
