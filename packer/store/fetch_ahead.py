"""Shards of a cache in a bucket, fetched in threads before they are asked for."""

import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread, current_thread
from typing import Final

from packer.errors import PackerError
from packer.store.mirror import Mirror

AT_A_TIME: Final = 8
"""Shards that a process fetches at a time. From a store that is 20 ms away four came 2.3 times as fast as one (64 MiB),
eight 3.7 times (2 MiB).
"""

_LOOK_S: Final = 0.05
"""Until a shard that somebody else is fetching is looked at again."""


class FetchAhead:
    """Fetches shards that will be asked for, several at a time. Stops when it is closed, dropped, or the process ends.

    A reader that asks for a shard meanwhile waits until it is there. What goes wrong here is left for that reader: it
    fetches the shard itself then, and gets the error.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._fetching = _Fetching(mirror)
        weakref.finalize(self, self._fetching.stop)  # also at the interpreter's end

    def want(self, shards: Sequence[tuple[str, int]]) -> None:
        """Fetch these shards in this order, as far as they have room together, and no others any more.

        Those that are here, or come, leave after all others.

        Args:
            shards: name and bytes of each.

        """
        self._fetching.want(shards)

    def close(self) -> None:
        """Stop, and wait for the threads: what is half fetched is thrown away."""
        self._fetching.stop()


class _Fetching:
    """The threads, and what is left for them: they end when nothing is. They hold no :class:`FetchAhead`, or it would
    never be dropped.
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
        for _ in range(min(len(self._left), AT_A_TIME - len(self._threads))):
            self._threads.append(Thread(target=self._run, name="packer-fetch", daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        self._stopped = True
        self._left.clear()
        for thread in self._threads:
            if thread is not current_thread():  # where this was dropped in it
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
                    time.sleep(_LOOK_S)
