"""Where tasks run: in this process, in others of this machine, or on a Ray cluster."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from packer.errors import ResourceError

Task = TypeVar("Task")
Result = TypeVar("Result")
Make: TypeAlias = Callable[[], Callable[[Task], Result]]


class WorkerDiedError(ResourceError):
    """A worker process was killed, most often because memory ran out."""

    code = "worker_died"


class Workers(Protocol):
    """Runs tasks. The size of a task is the bytes of its rows, or the bytes of rows that would take as long."""

    def number(self, sizes: Sequence[int]) -> int:
        """Return how many tasks run at a time."""
        ...

    def run(
        self, make: Make[Task, Result], tasks: Iterable[Task], *, sizes: Sequence[int], folder: Path | None = None
    ) -> Iterator[tuple[int, Result]]:
        """Run one function over tasks; yield the number of each task and its result, in order of completion.

        `make` returns the function; it is called once in every process that needs it. Tasks and their results are
        small: paths and counts, and a few texts at most. `folder` is where tasks write, if they do.
        """
        ...
