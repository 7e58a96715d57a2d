"""Where the tasks of a build or of an audit run: here, in threads, in processes, or on a cluster. What they make does
not depend on it.

On Linux workers are forked from a server that has imported packer and loaded the tokenizer (`packer/preload.py`):
that takes seconds and hundreds of MiB, once. Elsewhere each is spawned and loads by itself.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from multiprocessing import connection, forkserver, resource_tracker, spawn
from multiprocessing.connection import Connection
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from packer.errors import ResourceError
from packer.preload import TOKENIZER, asked
from packer.watchdog import end_if_stuck

Task = TypeVar("Task")
Result = TypeVar("Result")

FORKS = sys.platform == "linux"
"""Whether workers are forked from a server process."""

_WORTH_A_PROCESS = 16 * 2**20
"""Bytes of rows that take a process a few seconds, which is what it takes to import packer and load a tokenizer."""

_WORTH_A_COPY = 4 * 2**20
"""Bytes of rows that take longer than to fork."""


class WorkerDiedError(ResourceError):
    """A worker process was killed, most often for want of memory."""

    code = "worker_died"


class Workers(Protocol):
    """What runs tasks. Of each task a size is known: the bytes of its rows, or as many as take as long."""

    def number(self, sizes: Sequence[int]) -> int:
        """How many tasks run at a time."""
        ...

    def run(
        self,
        make: Callable[..., Callable[[Task], Result]],
        arguments: Sequence[Any],
        tasks: Iterable[Task],
        *,
        sizes: Sequence[int] | None = None,
        jobs: int | None = None,
        folder: Path | None = None,
        finished: Callable[[Task], Result | None] | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Run one function over tasks; see :func:`run_tasks`.

        Args:
            make: `make(*arguments)` gives the function; it is called once in every process that needs it.
            arguments: of `make`.
            tasks: what to do. They and their results are small: paths and counts, never data.
            sizes: of the tasks.
            jobs: what :meth:`number` said, in place of sizes, where tasks are made as they are asked for.
            folder: which the tasks write to, where they do.
            finished: finds the result of a task whose process died after it; without it, such a task is done again.

        """
        ...


@dataclass(frozen=True, slots=True)
class Processes:
    """Tasks run in this process, or in worker processes of this machine where there is work for several."""

    jobs: int | None = None
    """Most processes; None decides by the processors and the amount of work."""

    def number(self, sizes: Sequence[int]) -> int:
        return min(self.jobs or jobs_for(sum(sizes)), len(sizes))

    def run(
        self,
        make: Callable[..., Callable[[Task], Result]],
        arguments: Sequence[Any],
        tasks: Iterable[Task],
        *,
        sizes: Sequence[int] | None = None,
        jobs: int | None = None,
        folder: Path | None = None,  # noqa: ARG002 - every process of a machine sees the same files
        finished: Callable[[Task], Result | None] | None = None,  # noqa: ARG002 - a death ends the build
    ) -> Iterator[tuple[int, Result]]:
        return run_tasks(make, arguments, tasks, jobs=self.number(sizes or ()) if jobs is None else jobs)


@dataclass(frozen=True, slots=True)
class Threads:
    """Tasks run in threads of this process: those that hash or wait leave Python to each other."""

    jobs: int

    def number(self, sizes: Sequence[int]) -> int:
        return min(self.jobs, len(sizes))

    def run(
        self,
        make: Callable[..., Callable[[Task], Result]],
        arguments: Sequence[Any],
        tasks: Iterable[Task],
        *,
        sizes: Sequence[int] | None = None,  # noqa: ARG002 - of threads there are as many as were asked for
        jobs: int | None = None,  # noqa: ARG002 - as above
        folder: Path | None = None,  # noqa: ARG002 - as for processes
        finished: Callable[[Task], Result | None] | None = None,  # noqa: ARG002 - as for processes
    ) -> Iterator[tuple[int, Result]]:
        work = make(*arguments)
        with ThreadPoolExecutor(self.jobs, thread_name_prefix="packer-tasks") as pool:
            futures = [pool.submit(work, task) for task in tasks]
            try:
                yield from ((number, future.result()) for number, future in enumerate(futures))
            finally:
                pool.shutdown(cancel_futures=True)


def in_order(results: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """The results of tasks by their numbers, each as soon as those before it are there."""
    early: dict[int, Result] = {}
    wanted = 0
    for number, result in results:
        early[number] = result
        while wanted in early:
            yield early.pop(wanted)
            wanted += 1


HERE = Processes()
ALONE = Processes(1)
"""This process alone."""


def run_tasks(
    make: Callable[..., Callable[[Task], Result]], arguments: Sequence[Any], tasks: Iterable[Task], *, jobs: int
) -> Iterator[tuple[int, Result]]:
    """Run one function over tasks: here, or in worker processes where there is work for several.

    Workers leave Ctrl-C to this process, and end when it is gone, however it went.

    Args:
        make: `make(*arguments)` gives the function; it is called once in every process that needs it.
        arguments: of `make`.
        tasks: what to do. They and their results are small: paths and counts, never data.
        jobs: most processes.

    Yields:
        Number of each task and its result, as they come.

    Raises:
        WorkerDiedError: a worker was killed, or ended by itself.
        Exception: what a task raised; those that run are ended then.

    """
    waiting = iter(tasks)
    first = [*islice(waiting, max(1, jobs))]
    num_workers, numbered = len(first), enumerate(chain(first, waiting))
    del first  # tasks that are done are held by nobody
    if num_workers > 1:
        yield from _in_processes(make, arguments, numbered, num_workers)
    elif num_workers:
        work = make(*arguments)
        yield from ((number, work(task)) for number, task in numbered)


def default_jobs() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def jobs_for(num_bytes: int) -> int:
    """Processes worth starting for so much input.

    The first of them loads for as long as it would take this process to do its share; those that are forked load
    nothing.
    """
    if num_bytes < _WORTH_A_PROCESS:
        return 1
    return min(default_jobs(), num_bytes // (_WORTH_A_COPY if FORKS else _WORTH_A_PROCESS))


def _in_processes(
    make: Callable[..., Callable[[Task], Result]],
    arguments: Sequence[Any],
    tasks: Iterator[tuple[int, Task]],
    num_workers: int,
) -> Iterator[tuple[int, Result]]:
    context = multiprocessing.get_context("forkserver") if FORKS else multiprocessing.get_context("spawn")
    # Each worker has a pipe of its own, which breaks when it ends, even in the middle of an answer.
    workers: dict[Connection, BaseProcess] = {}
    with fork_server():
        try:
            for _ in range(num_workers):
                here, there = context.Pipe()
                process = context.Process(target=_serve, args=(there, make, tuple(arguments)), daemon=True)
                with _death_named(process), there, _without_main():
                    process.start()
                workers[here] = process
            yield from _answers(workers, tasks)
        finally:
            # Whatever they do: a task that is cut off leaves a temporary file, which the next build removes.
            for worker in workers.values():
                worker.kill()
            for pipe, worker in workers.items():
                worker.join()
                pipe.close()


@contextmanager
def _without_main() -> Iterator[None]:
    """Start processes that do not import the program's main module: they run functions of packer.

    `multiprocessing` has them import it, so that a script that builds outside of ``if __name__ == "__main__":`` would
    build again in each of them. It has no switch for that; what it hands to a process is this.
    """
    everything = spawn.get_preparation_data

    def all_but_main(name: str) -> dict[str, Any]:
        return {key: value for key, value in everything(name).items() if not key.startswith("init_main_from")}

    spawn.get_preparation_data = all_but_main
    try:
        yield
    finally:
        spawn.get_preparation_data = everything


def _answers(workers: Mapping[Connection, BaseProcess], tasks: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Give every worker one numbered task at a time; the number and the result of each as they come."""
    at_work: dict[Connection, int] = {}
    idle, answers = list(workers), list[tuple[int, Any]]()
    while idle:
        for pipe, (number, task) in zip(idle, tasks, strict=False):
            with _death_named(workers[pipe]):
                pipe.send(task)
            at_work[pipe] = number
        yield from answers
        idle = cast("list[Connection]", connection.wait(list(at_work))) if at_work else []
        answers = [(at_work.pop(pipe), _received(pipe, workers[pipe])) for pipe in idle]


def _received(pipe: Connection, process: BaseProcess) -> Any:
    with _death_named(process):
        error, result = pipe.recv()
    if error is not None:
        raise error
    return result


def _serve(pipe: Connection, make: Callable[..., Callable[[Any], Any]], arguments: Sequence[Any]) -> None:
    """Work as a worker; what `make` raises is raised by every task, where the parent can see it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_if_stuck()
    # One process a core: threads inside the encoder would only be in each other's way.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work = cache(lambda: make(*arguments))
    while True:
        task = pipe.recv()
        try:
            pipe.send((None, work()(task)))  # pickled as a whole before its first byte is sent
        except BaseException as error:  # noqa: BLE001 - raised again by the parent
            try:
                pipe.send(_failure(error))
            except Exception as unpickled:  # noqa: BLE001 - as above
                pipe.send(_failure(unpickled))


def _failure(error: BaseException) -> tuple[ExceptionWithTraceback, None]:
    return ExceptionWithTraceback(error, error.__traceback__), None


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _death_named(process: BaseProcess) -> Iterator[None]:
    """Say how a worker ended whose pipe broke, or the server that should have started it."""
    try:
        yield
    except (EOFError, OSError) as error:
        if getattr(error, "errno", None) is not None and not isinstance(error, ConnectionError):
            raise  # a limit that was reached when it was started
        if process.pid is not None:
            process.join()
        raise WorkerDiedError(
            f"a worker process {_ended(process.exitcode)}",
            hint="what is finished is kept: run the same command again with fewer processes (-j 1)",
        ) from error


def _ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "ended before its work was done, most often for want of memory or threads"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}; what it printed stands above"
    if exit_code == -signal.SIGKILL:
        return "was killed, most often for want of memory"
    if exit_code == -signal.SIGPROF:
        return "was ended: the chat template, or a row in it, took a minute for a single step"
    name = signal.Signals(-exit_code).name if -exit_code in set(signal.Signals) else f"signal {-exit_code}"
    return f"was ended by {name}, most often for want of memory or threads"


@contextmanager
def fork_server(tokenizer: Path | None = None, *, fast: bool = False) -> Iterator[None]:
    """The process that workers are forked from; it is there at once and loads meanwhile, and ends with the block.

    Where one is running already, of an outer block or of the application, nothing is done.

    Args:
        tokenizer: `tokenizer.json`, or the folder it lies in, to be loaded.
        fast: whether the fast engine is to be loaded too.

    """
    server: Any = forkserver._forkserver  # noqa: SLF001 - there is no other way to end it
    is_running = server._forkserver_pid is not None  # noqa: SLF001
    if is_running or not FORKS:
        yield
        return
    resource_tracker.ensure_running()
    # Until it has said that Ctrl-C is nothing to it; one that is cut off half-started prints a traceback.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    server.set_forkserver_preload(["packer.preload"])
    os.environ[TOKENIZER] = asked(tokenizer, fast=fast)
    try:
        server.ensure_running()
    finally:
        del os.environ[TOKENIZER]
        server.set_forkserver_preload(["__main__"])  # as it was
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield
    finally:
        os.kill(server._forkserver_pid, signal.SIGKILL)  # noqa: SLF001
        server._stop()  # noqa: SLF001
