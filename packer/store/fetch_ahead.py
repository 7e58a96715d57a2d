"""Prefetch the shards of a cache in a bucket, in background threads."""

import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread, current_thread
from typing import Final

from packer.errors import PackerError
from packer.store.mirror import Mirror

MAX_CONCURRENT_FETCHES: Final = 8
"""Shards that a process fetches concurrently. From a store with 20 ms of latency, four were 2.3 times as fast as one
(64 MiB shards), and eight 3.7 times (2 MiB shards)."""

_RETRY_S: Final = 0.05
"""Pause before retrying a shard that another thread or process is fetching."""


class FetchAhead:
    """Prefetches shards, several at a time, until it is closed, garbage-collected, or the process ends.

    A reader that needs a shard meanwhile waits until it has been fetched. Errors are suppressed here: the reader then
    fetches the shard itself, and gets the error.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._fetching = _Fetching(mirror)
        weakref.finalize(self, self._fetching.stop)  # also runs at interpreter exit

    def want(self, shards: Sequence[tuple[str, int]]) -> None:
        """Replace the queue: fetch these shards, in this order, as many as fit into the limit together.

        They are evicted after all others. Each has its name and its size in bytes.
        """
        self._fetching.want(shards)

    def close(self) -> None:
        """Stop, and wait for the threads; incomplete downloads are discarded."""
        self._fetching.stop()


class _Fetching:
    """The threads and their queue. Threads end when the queue is empty.

    They hold no reference to :class:`FetchAhead`, which otherwise would never be garbage-collected.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._left: deque[str] = deque()
        self._threads: list[Thread] = []
        self._stopped = False

    def want(self, shards: Sequence[tuple[str, int]]) -> None:
        room, names = self._mirror.most_bytes, []
        for name, num_bytes in shards:
            if room is not None:
                room -= num_bytes
                if room < 0:
                    break
            names.append(name)
        self._left.clear()
        self._left.extend(self._mirror.keep(names))
        self._stopped = False
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for _ in range(min(len(self._left), MAX_CONCURRENT_FETCHES - len(self._threads))):
            self._threads.append(Thread(target=self._run, name="packer-fetch", daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        self._stopped = True
        self._left.clear()
        for thread in self._threads:
            if thread is not current_thread():  # garbage collection may run in one of them
                thread.join()

    def _run(self) -> None:
        while not self._stopped:
            try:
                name = self._left.popleft()
            except IndexError:
                return
            with suppress(PackerError):
                if not self._mirror.fetch_ahead(name, lambda: not self._stopped):
                    self._left.append(name)
                    time.sleep(_RETRY_S)
