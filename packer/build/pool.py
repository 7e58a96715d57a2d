"""Tasks in worker processes, or inline; the results do not depend on which."""

import functools
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

from packer.build.overruns import overruns_at
from packer.build.workers import FORKS, DiedError, Taken, Workers, look_ahead
from packer.errors import ResourceError
from packer.limits import memory_limits

Task = TypeVar("Task")
Result = TypeVar("Result")


class WorkerDiedError(ResourceError):
    """A worker process was killed, most often for want of memory."""

    code = "worker_died"


def default_jobs() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def jobs_for(num_bytes: int) -> int:
    """Processes worth starting for so much input.

    The first of them loads for as long as it would take this process to do its share; where it forks the others, they
    load nothing.
    """
    if num_bytes < _WORTH_A_PROCESS:
        return 1
    return min(default_jobs(), num_bytes // (_WORTH_A_COPY if FORKS else _WORTH_A_PROCESS))


_WORTH_A_PROCESS = 16 * 2**20
"""Bytes of rows that take a process a few seconds, which is what it takes to import packer and load a tokenizer."""

_WORTH_A_COPY = 4 * 2**20
"""Bytes of rows that take longer than to fork."""


def _ended(exit_code: int | None) -> str:
    if exit_code is None:
        return f"ended before its work was done, most often for want of memory or threads{memory_limits()}"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}; what it printed stands above"
    if exit_code == -signal.SIGKILL:
        return f"was killed, most often for want of memory{memory_limits()}"
    name = signal.Signals(-exit_code).name if -exit_code in set(signal.Signals) else f"signal {-exit_code}"
    return f"was ended by {name}, most often for want of memory or threads{memory_limits()}"


class Pool(Generic[Task, Result]):
    """Runs one function over tasks; `make` builds the function once in every process that needs it."""

    def __init__(
        self,
        make: Callable[..., Callable[[Task], Result]],
        arguments: Sequence[Any],
        jobs: int,
        *,
        inline: Callable[[Task], Result] | None = None,
        where: Callable[[Task, int], str] | None = None,
    ) -> None:
        """`make(*arguments)` gives the function; both must pickle. `inline` is the function, where there is one.

        `where` names the row of a task, and the template, for an error of a template that goes on for too long.
        """
        self._make = make
        self._arguments = tuple(arguments)
        self._jobs = jobs
        self._inline = inline
        self._where = where

    def run(
        self,
        tasks: Sequence[Task],
        *,
        workers: Workers | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Yield (number of the task, result) as they come.

        Args:
            tasks: what to do.
            workers: processes that are there already; they are stopped at the end, used or not.

        Raises:
            PackerError: what a task raised, or a worker that died.

        """
        jobs = min(self._jobs, len(tasks))
        if workers is not None and (jobs <= 1 or workers.jobs < jobs):
            workers.stop()
            workers = None
        if jobs <= 1:
            if tasks:
                function = self._inline or self._make(*self._arguments)
                waiting = enumerate(tasks)
                taken: list[Taken] = []
                look_ahead(function, waiting, taken)
                while taken:
                    yield self._done(function, taken.pop(0))
                for number, task in waiting:
                    yield self._done(function, Taken(number, task))
            return
        yield from self._run_spawned(tasks, workers or Workers(jobs))

    def _done(self, function: Callable[[Task], Result], taken: Taken) -> tuple[int, Result]:
        with self._placing(taken.task):
            return taken.number, taken.do(function)

    def _run_spawned(self, tasks: Sequence[Task], workers: Workers) -> Iterator[tuple[int, Result]]:
        supervision = workers.supervision
        try:
            workers.begin(self._make, self._arguments, tasks)
            with supervision:
                yield from self._answers(tasks, workers)
        except DiedError as error:
            if supervision.found is not None:
                number, overrun = supervision.found
                with self._placing(tasks[number]):
                    raise overrun from error
            raise WorkerDiedError(
                f"a worker process {_ended(error.exit_code)}",
                hint="what is finished is kept: run the same command again with fewer processes (-j 1). A script of "
                "your own builds below `if __name__ == '__main__':`, since every worker imports it",
            ) from error
        finally:
            workers.stop()

    def _answers(self, tasks: Sequence[Task], workers: Workers) -> Iterator[tuple[int, Result]]:
        for number, result, error in workers.answers():
            if error is not None:
                with self._placing(tasks[number]):
                    raise error
            yield number, result

    def _placing(self, task: Task) -> AbstractContextManager[None]:
        return nullcontext() if self._where is None else overruns_at(functools.partial(self._where, task))
