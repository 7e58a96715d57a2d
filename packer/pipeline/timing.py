"""Measures where the time of a build goes."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Seconds of a build; parts that had nothing to do are not there."""

    parts: Mapping[str, float]
    """One after another: ``plan``, ``documents``, ``blocks``, ``commit``. Seconds that passed."""

    stages: Mapping[str, float]
    """What ``documents`` consists of, added up over processes: ``load``, ``read``, ``traits``, ``render``,
    ``tokenize``, ``supervise``, ``write``."""

    processes: int
    """How many processes made documents."""

    @property
    def idle(self) -> float:
        """Seconds of ``documents``, added up over processes, in which they started or had no partition to work on."""
        return max(0.0, self.processes * self.parts.get("documents", 0.0) - sum(self.stages.values()))


NO_TIME = Profile(parts={}, stages={}, processes=0)
"""The profile of something that built nothing."""


class Clock:
    """Adds up the seconds that parts of a program take."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Count the seconds inside the context towards a part."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] += time.perf_counter() - began

    def each(self, part: str, items: Iterable[T]) -> Iterator[T]:
        """Pass items on, and count the seconds spent waiting for each towards a part."""
        iterator = iter(items)
        while True:
            with self.of(part):
                item = next(iterator, None)
            if item is None:
                return
            yield item

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds that another clock counted."""
        for part, more in seconds.items():
            self._seconds[part] += more

    def take(self) -> dict[str, float]:
        """Return what was counted since the last call, and start again from 0."""
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds
