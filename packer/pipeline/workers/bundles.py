"""Group the tasks of a cluster into bundles; one process works through a bundle in order."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any

MOST_DEATHS = 3
"""Number of processes that a task may kill before it is given up."""

MOST_TASKS = 32
MOST_BYTES = 64 * 2**20
"""Limits of a bundle: 64 MiB of rows take a process some 15 seconds. A Ray task costs the driver 1 or 2 ms."""


class Bundles:
    """Hands out tasks in bundles, as lists of task numbers, and tracks the tasks that are given up.

    `tasks`, each with its size, are consumed lazily. The sizes of a bundle's tasks add up to at most `most_bytes`,
    unless it has only one.
    """

    def __init__(self, tasks: Iterator[tuple[Any, int]], most_bytes: int) -> None:
        self.tasks: dict[int, Any] = {}
        """Unfinished tasks that were consumed so far, by number."""

        self.given_up: dict[int, Exception] = {}
        self._deaths: Counter[int] = Counter()
        self._most_bytes = min(MOST_BYTES, most_bytes)
        self._tasks = enumerate(tasks)
        self._head = next(self._tasks, None)
        self._again: deque[list[int]] = deque()
        self._last: deque[list[int]] = deque()

    @property
    def waiting(self) -> bool:
        """Whether another bundle is available."""
        return bool(self._again or self._head or self._last)

    def next(self) -> list[int]:
        """Return the next bundle: the rest of a lost bundle, else new tasks, else a single suspect.

        A suspect is the task that was running when its bundle was lost.
        """
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
        """Forget finished tasks, and iterate over their numbers and results."""
        for number in results:
            del self.tasks[number]
        return iter(results.items())

    def lost(self, left: list[int], error: Exception) -> None:
        """Return the unfinished tasks of a bundle whose process or node died; the first one was running."""
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
