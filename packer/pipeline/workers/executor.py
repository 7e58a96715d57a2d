"""Executors for the tasks of a build or an audit: inline, worker processes, or a cluster.

Results do not depend on the executor. On Linux, workers are forked from a server process that has imported packer and
loaded the encoder (`fork_server.py`), so that these seconds and hundreds of MiB are spent once. Elsewhere each
worker is spawned and loads everything itself.
"""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, islice
from multiprocessing import connection, spawn
from multiprocessing.connection import Connection
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

from packer.host.watchdog import limit_process
from packer.pipeline.workers import Make, Result, Task, WorkerDiedError, Workers, fork_server
from packer.store.place import SentFolder


@dataclass(frozen=True, slots=True)
class Processes:
    """Runs tasks in this process, or in worker processes of this machine if there is enough work."""

    jobs: int | None = None
    """Upper limit of processes; None chooses by the number of processors and the amount of work."""

    def number(self, sizes: Sequence[int]) -> int:
        return min(self.jobs or fork_server.jobs_for(sum(sizes)), len(sizes))

    def run(
        self, make: Make[Task, Result], tasks: Iterable[Task], *, sizes: Sequence[int], folder: Path | None = None
    ) -> Iterator[tuple[int, Result]]:
        jobs = self.number(sizes)
        if folder is not None and jobs > 1:  # this process knows what its folder stands for
            make = partial(SentFolder.of(folder).making, make)
        return run_tasks(make, tasks, jobs=jobs)


def in_order(results: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Yield the results in the order of the tasks, each as soon as all results before it are."""
    early: dict[int, Result] = {}
    wanted = 0
    for number, result in results:
        early[number] = result
        while wanted in early:
            yield early.pop(wanted)
            wanted += 1


def workers_on(on: str | None, jobs: int | None, note: Callable[[str], None]) -> AbstractContextManager[Workers]:
    """Provide at most `jobs` processes of this machine, or with `on` as many tasks at a time on a cluster."""
    if on is None:
        return nullcontext(Processes(jobs))
    from packer.pipeline.workers.ray_workers import ray_workers  # noqa: PLC0415 - only for clusters

    return ray_workers(on, jobs, note)


HERE = Processes()
ALONE = Processes(1)


def run_tasks(make: Make[Task, Result], tasks: Iterable[Task], *, jobs: int) -> Iterator[tuple[int, Result]]:
    """Run one function over tasks: in this process, or in at most `jobs` worker processes if the tasks are several.

    The rest is as of :meth:`Workers.run`. Workers ignore Ctrl-C, which this process handles, and exit when this process
    is gone for whatever reason. What a task raises is raised here, and running tasks are killed then.
    """
    waiting = iter(tasks)
    first = [*islice(waiting, max(1, jobs))]
    num_workers, numbered = len(first), enumerate(chain(first, waiting))
    del first  # keep no references to finished tasks
    if num_workers > 1:
        yield from _in_processes(make, numbered, num_workers)
    elif num_workers:
        work = make()
        yield from ((number, work(task)) for number, task in numbered)


def _in_processes(
    make: Make[Task, Result], tasks: Iterator[tuple[int, Task]], num_workers: int
) -> Iterator[tuple[int, Result]]:
    context = multiprocessing.get_context("forkserver") if fork_server.FORKS else multiprocessing.get_context("spawn")
    # Each worker has its own pipe, which breaks when the worker ends, even halfway through an answer.
    workers: dict[Connection, BaseProcess] = {}
    with fork_server.fork_server():
        try:
            for _ in range(num_workers):
                here, there = context.Pipe()
                process = context.Process(target=_serve, args=(there, make), daemon=True)
                with _death_named(process), there, _without_main(), fork_server.starting():
                    process.start()
                workers[here] = process
            yield from _answers(workers, tasks)
        finally:
            # Killing them is safe: an interrupted task leaves a temporary file, which the next build removes.
            for worker in workers.values():
                worker.kill()
            for pipe, worker in workers.items():
                worker.join()
                pipe.close()


@contextmanager
def _without_main() -> Iterator[None]:
    """Start processes that do not import the program's main module, since workers only run functions of packer.

    `multiprocessing` would import it, so that a script that builds outside of ``if __name__ == "__main__":`` would
    build again in each worker. There is no option to turn that off, hence this patch of what `multiprocessing` sends to
    a new process.
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
    """Give every idle worker one task at a time; yield the number and the result of each in order of completion."""
    at_work: dict[Connection, int] = {}
    idle, answers = list(workers), list[tuple[int, Any]]()
    while idle:
        for pipe, (number, task) in zip(idle, tasks, strict=False):
            with _death_named(workers[pipe]):
                pipe.send(task)
            at_work[pipe] = number
        yield from answers
        idle = cast("list[Connection]", connection.wait(list(at_work))) if at_work else []
        answers, failure = [], None
        for pipe in idle:
            try:
                answers.append((at_work.pop(pipe), _received(pipe, workers[pipe])))
            except BaseException as error:  # noqa: BLE001 - raised below
                failure = failure or error
        if failure is not None:
            yield from answers  # these tasks are finished, and may have to be recorded
            raise failure


def _received(pipe: Connection, process: BaseProcess) -> Any:
    with _death_named(process):
        error, result = pipe.recv()
    if error is not None:
        raise error
    return result


def _serve(pipe: Connection, make: Make[Any, Any]) -> None:
    """Run the loop of a worker; an error raised by `make` is raised for every task, so that the parent sees it.

    A broken pipe ends it: the parent is gone, and nobody is left to tell.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # With one process per core, threads inside the encoder would only compete with each other.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Rows make many small objects and hardly a cycle: with Python's thresholds, collections take a tenth of rendering.
    gc.set_threshold(50_000, 20, 20)

    @cache
    def work() -> Callable[[Any], Any]:
        limit_process()
        return make()

    with suppress(EOFError, ConnectionError):
        while True:
            task = pipe.recv()
            try:
                answer = (None, work()(task))
            except BaseException as error:  # noqa: BLE001 - raised again by the parent
                answer = _failure(error)
            try:
                pipe.send(answer)  # pickled as a whole before its first byte is sent
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
    """Convert a broken pipe of a worker (or of the fork server) into an error that says how the process ended."""
    try:
        yield
    except (EOFError, OSError) as error:
        if getattr(error, "errno", None) is not None and not isinstance(error, ConnectionError):
            raise  # a system limit was reached when starting the process
        if process.pid is not None:
            process.join()
        raise WorkerDiedError(
            f"a worker process {_ended(process.exitcode)}",
            hint="finished work is kept: run the same command again with fewer processes (-j 1)",
        ) from error


def _ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "ended before its work was done, most often for lack of memory or threads"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}; what it printed is above"
    if exit_code == -signal.SIGPROF:
        return (
            "was killed: the chat template, or a regular expression in tokenizer.json, spent minutes on a single step"
        )
    name = signal.Signals(-exit_code).name if -exit_code in set(signal.Signals) else f"signal {-exit_code}"
    return f"was ended by {name}, most often for lack of memory or threads"
