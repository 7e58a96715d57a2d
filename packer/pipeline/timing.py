"""Measure where a build spends its time."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Timings of a build in seconds; parts that had nothing to do are omitted."""

    parts: Mapping[str, float]
    """Wall time of the consecutive parts: ``plan``, ``documents``, ``rows`` (if there are rules about rows),
    ``blocks``, ``commit``."""

    stages: Mapping[str, float]
    """Time within ``documents``, summed over processes: ``load``, ``read``, ``traits``, ``render``, ``tokenize``,
    ``supervise``, ``write``."""

    processes: int
    """Number of processes that made documents."""

    @property
    def idle(self) -> float:
        """Time within ``documents``, summed over processes, that was spent starting or waiting for a partition."""
        return max(0.0, self.processes * self.parts.get("documents", 0.0) - sum(self.stages.values()))


NO_TIME = Profile(parts={}, stages={}, processes=0)
"""The profile when nothing was built."""


class Clock:
    """Accumulates the seconds spent in named parts of a program."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Add the time spent inside the context to a part."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] += time.perf_counter() - began

    def timed(self, part: str, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, adding the time spent waiting for each to a part."""
        iterator = iter(items)
        while True:
            with self.of(part):
                item = next(iterator, None)
            if item is None:
                return
            yield item

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add the times that another clock measured."""
        for part, more in seconds.items():
            self._seconds[part] += more

    def take(self) -> dict[str, float]:
        """Return the times measured since the last call, and reset to zero."""
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds
