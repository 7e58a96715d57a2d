"""The tasks of a cluster in bundles, each of which one process does from its first to its last task."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any

MOST_DEATHS = 3
"""Processes that a task may kill."""

MOST_TASKS = 32
MOST_BYTES = 64 * 2**20
"""Of a bundle at most: rows that take a process some 15 seconds. A Ray task costs the driver 1 or 2 ms."""


class Bundles:
    """The bundles that are still to be done, as numbers of tasks, and the tasks that are given up.

    Args:
        tasks: each with its size; taken as bundles are asked for.
        most_bytes: of the tasks of a bundle that has several.

    """

    def __init__(self, tasks: Iterator[tuple[Any, int]], most_bytes: int) -> None:
        self.tasks: dict[int, Any] = {}
        """Those that are not done, as far as they were taken, by their numbers."""

        self.given_up: dict[int, Exception] = {}
        self._deaths: Counter[int] = Counter()
        self._most_bytes = min(MOST_BYTES, most_bytes)
        self._tasks = enumerate(tasks)
        self._head = next(self._tasks, None)
        self._again: deque[list[int]] = deque()
        self._last: deque[list[int]] = deque()

    @property
    def waiting(self) -> bool:
        """Whether there is a next bundle."""
        return bool(self._again or self._head or self._last)

    def next(self) -> list[int]:
        """The next bundle: of what is left of lost ones, then of new tasks; last, the tasks that lost ones ended in."""
        if self._again or not self._head:
            return (self._again or self._last).popleft()
        numbers, num_bytes = list[int](), 0
        while self._head is not None and len(numbers) < MOST_TASKS:
            number, (task, size) = self._head
            if numbers and num_bytes + size > self._most_bytes:
                break
            self.tasks[number] = task
            numbers.append(number)
            num_bytes += size
            self._head = next(self._tasks, None)
        return numbers

    def done(self, results: Mapping[int, Any]) -> Iterator[tuple[int, Any]]:
        """Numbers and results of tasks, which nobody needs to know any more."""
        for number in results:
            del self.tasks[number]
        return iter(results.items())

    def lost(self, left: list[int], error: Exception) -> None:
        """Put back what is left of a bundle whose process or node died: tasks are done in order, the first was it."""
        if not left:
            return
        first, *others = left
        self._deaths[first] += 1
        if self._deaths[first] == MOST_DEATHS:
            self.given_up[first] = error
        else:
            self._last.append([first])
        if others:
            self._again.append(others)
