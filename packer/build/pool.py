"""Tasks in spawned processes, or inline; the results do not depend on which.

Workers hand back paths and counts, never data. They ignore Ctrl-C (the parent stops them) and end when the parent is
gone, however it went.
"""

import concurrent.futures
import functools
import multiprocessing
import multiprocessing.connection
import multiprocessing.queues
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Generic, TypeVar

from packer.build.overruns import overruns_at
from packer.build.supervise import Supervision, worker_place
from packer.errors import PackerError
from packer.render.watchdog import TASK, place, share

Task = TypeVar("Task")
Result = TypeVar("Result")


class WorkerDiedError(PackerError):
    """A worker process was killed, most often for want of memory."""

    exit_code = 5
    code = "worker_died"


def default_jobs() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def jobs_for(num_bytes: int) -> int:
    """Processes worth starting for so much input: one of them loads for as long as it would take to do its share."""
    return max(min(default_jobs(), num_bytes // _WORTH_A_PROCESS), 1)


_WORTH_A_PROCESS = 16 * 2**20
"""Bytes of rows that take a process a few seconds, which is what it takes to import packer and load a tokenizer."""


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
        meanwhile: Callable[[], None] | None = None,
        workers: "Workers | None" = None,
    ) -> Iterator[tuple[int, Result]]:
        """Yield (number of the task, result) as they come.

        Args:
            tasks: what to do.
            meanwhile: done here before the first task, or while processes start; an error ends the run.
            workers: processes that are there already; they are stopped at the end, used or not.

        Raises:
            PackerError: what a task raised, or a worker that died.

        """
        jobs = min(self._jobs, len(tasks))
        if workers is not None and (jobs <= 1 or workers.jobs < jobs):
            workers.stop()
            workers = None
        if jobs <= 1:
            if meanwhile is not None:
                meanwhile()
            if tasks:
                function = self._inline or self._make(*self._arguments)
                for number, task in enumerate(tasks):
                    with self._placing(task):
                        result = function(task)
                    yield number, result
            return
        yield from self._run_spawned(tasks, workers or Workers(jobs), meanwhile)

    def _run_spawned(
        self, tasks: Sequence[Task], workers: "Workers", meanwhile: Callable[[], None] | None
    ) -> Iterator[tuple[int, Result]]:
        supervision = workers.supervision
        try:
            futures = workers.begin(self._make, self._arguments, tasks)
            with supervision:
                if meanwhile is not None:
                    meanwhile()
                for future in concurrent.futures.as_completed(futures):
                    with self._placing(tasks[futures[future]]):
                        result = future.result()
                    yield futures[future], result
            workers.executor.shutdown()
        except BrokenProcessPool as error:
            if supervision.found is not None:
                number, overrun = supervision.found
                with self._placing(tasks[number]):
                    raise overrun from error
            raise WorkerDiedError(
                "a worker process was killed, most often for want of memory",
                hint="what is finished is kept: run the same command again with fewer processes (-j 1). A script of "
                "your own builds below `if __name__ == '__main__':`, since every worker imports it",
            ) from error
        finally:
            workers.stop()

    def _placing(self, task: Task) -> AbstractContextManager[None]:
        return nullcontext() if self._where is None else overruns_at(functools.partial(self._where, task))


class Workers:
    """Worker processes of one run.

    Args:
        jobs: how many.
        warm: called in each of them before anything else; whatever fails there is left to the tasks.

    """

    def __init__(self, jobs: int, warm: Callable[[], object] | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self.jobs = jobs
        self._has_begun = False
        self.supervision = Supervision(context, jobs)
        # Not among initargs: what is larger than a pipe would block the parent of a worker that died before reading it.
        self._arguments = context.SimpleQueue()
        self.executor = concurrent.futures.ProcessPoolExecutor(
            jobs, mp_context=context, initializer=_start, initargs=(warm, self._arguments, self.supervision.places)
        )

    def start(self) -> None:
        """Start them now: they import and warm themselves, and wait for :meth:`begin`."""
        with _signals_held():
            for _ in range(self.jobs):
                self.executor.submit(_nothing)

    def begin(
        self, make: Callable[..., Callable[[Task], Any]], arguments: Sequence[Any], tasks: Sequence[Task]
    ) -> "dict[concurrent.futures.Future[Any], int]":
        """Hand out tasks; the number of each by its future."""
        self._has_begun = True
        given = make, tuple(arguments)
        threading.Thread(target=_hand_out, args=(self._arguments, given, self.jobs), daemon=True).start()
        with _signals_held():
            return {self.executor.submit(_work, number, task): number for number, task in enumerate(tasks)}

    def stop(self) -> None:
        """End them, whatever they do."""
        _stop(self.executor, at_once=not self._has_begun)
        self._arguments.close()


_FUNCTION: list[Callable[[Any], Any]] = []
"""The function of this worker process; made once, by `_start`."""


@contextmanager
def _signals_held() -> Iterator[None]:
    """Ctrl-C and termination wait while workers are started: one that is cut off half-started prints a traceback.

    Workers inherit the mask and keep it for Ctrl-C, which is the parent's to answer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _hand_out(queue: "multiprocessing.queues.SimpleQueue[Any]", given: tuple[Any, ...], jobs: int) -> None:
    """Arguments for every worker that may be started; those that never are leave theirs in the pipe."""
    # The pipe was closed: the run is over. A connection that is closed between two writes has no handle for the second.
    with suppress(OSError, TypeError):
        for worker in range(jobs):
            queue.put((worker, given))


def _start(warm: Callable[[], object] | None, queue: "multiprocessing.queues.SimpleQueue[Any]", places: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    # One process a core: threads inside the encoder would only be in each other's way.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if warm is not None:
        with suppress(BaseException):  # a panic of Rust is no Exception
            warm()
    try:
        worker, (make, arguments) = queue.get()
        share(worker_place(places, worker))
        _FUNCTION.append(make(*arguments))
    except Exception as error:  # noqa: BLE001 - raised again by the first task, where the parent can see it
        _FUNCTION.append(_raiser(error))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _raiser(error: Exception) -> Callable[[Any], Any]:
    def fail(_: Any) -> Any:
        raise error

    return fail


def _nothing() -> None:
    """A task that starts a process."""


def _work(number: int, task: Any) -> Any:
    place()[TASK] = number
    return _FUNCTION[0](task)


def _stop(executor: concurrent.futures.ProcessPoolExecutor, *, at_once: bool) -> None:
    """End the workers now: a task that is cut off leaves a temporary file, which the next build removes.

    `at_once`: they have no task, and may be importing, which a signal to end waits for.
    """
    processes = list((executor._processes or {}).values())  # noqa: SLF001 - the only way to the worker processes
    manager: Any = executor._executor_manager_thread  # noqa: SLF001 - as above; a thread, whatever the stubs say
    executor.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        (process.kill if at_once else process.terminate)()
    for process in processes:
        process.join(timeout=5)
    if manager is not None:
        # It closes the pipe that the interpreter writes to on its way out; without waiting, the two race.
        manager.join(timeout=5)
