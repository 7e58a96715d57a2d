"""Worker processes of one run: they load once, take tasks from one queue and answer each by a pipe of their own.

On Linux one process is spawned, imports and loads, and then forks the others, which have what it loaded: a tokenizer
takes a second to load, and hundreds of MiB. To fork an application would not be safe: its other threads may hold locks
that nobody opens in the copy. This process was made by an exec, and what it did is known: it imported, loaded, and read
and rendered rows. Its threads are over by then, but for those of libraries, which wait for work, and the one that
watches templates, which a copy makes anew. Elsewhere every worker is spawned and loads by itself.

Workers hand back paths and counts, never data. They ignore Ctrl-C (the parent stops them) and end when the process they
came from is gone, however it went.
"""

import gc
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, Protocol, TypeAlias, runtime_checkable

from packer import spawned
from packer.build.supervise import Supervision, exit_code_of, worker_place
from packer.render.watchdog import PROCESS, TASK, place, share

FORKS = sys.platform == "linux"
"""Whether one process is spawned and forks the others."""

_TOKEN = b"x"
"""What a worker holds whose turn it is to take a task."""

_END_S = 5.0
"""How long workers may take to end that were killed, or have nothing left to do."""

Work: TypeAlias = Callable[..., Any]


@runtime_checkable
class Loading(Protocol):
    """Work that can begin with tasks while something it needs is being loaded."""

    def __call__(self, task: Any, ahead: Any = None) -> Any:
        """Do a task; `ahead`: what was done of it before."""

    def is_waiting(self) -> bool:
        """Whether another task should be looked at."""

    def ahead(self, task: Any) -> Any:
        """Do what can be done of a task before its turn."""

    def settle(self) -> None:
        """Wait until everything is loaded."""


@dataclass(slots=True)
class Taken:
    """A task that was taken from the queue, and what was done of it."""

    number: int
    task: Any
    ahead: Any = None

    def do(self, work: Work) -> Any:
        return work(self.task) if self.ahead is None else work(self.task, self.ahead)


def look_ahead(work: Work, tasks: Iterable[tuple[int, Any]], taken: list[Taken]) -> None:
    """Do ahead of time what can be done of tasks, where the work is such, and keep in `taken` what was looked at.

    What fails here fails again when it is its turn.
    """
    if not isinstance(work, Loading) or not work.is_waiting():
        return
    for number, task in tasks:
        taken.append(Taken(number, task))
        with suppress(Exception):
            taken[-1].ahead = work.ahead(task)
        if not work.is_waiting():
            return


class DiedError(Exception):
    """A worker ended before it was told to."""

    exit_code: int | None = None
    """Its exit code, or minus the signal that ended it; None where that is not known."""


class Workers:
    """Worker processes of one run.

    Args:
        jobs: how many.
        warm: called before anything else in every process that is spawned; what it gives may go on meanwhile, and is
            waited for. It should be of a module that imports little.

    """

    def __init__(self, jobs: int, warm: Callable[[], threading.Thread | None] | None = None) -> None:
        self.jobs = jobs
        self._context = multiprocessing.get_context("spawn")
        self.supervision = Supervision(self._context, jobs)
        self._warm = warm
        self._processes: list[SpawnProcess] = []
        self._givers: list[Connection] = []
        self._ends: list[Connection] = []
        self._turn: tuple[Connection, ...] = ()
        self._queue: Connection | None = None
        self._handing: threading.Thread | None = None
        self._num_tasks = 0

    def start(self) -> None:
        """Start them now: they import and warm themselves, and wait for :meth:`begin`."""
        taken, self._queue = self._context.Pipe(duplex=False)
        self._turn = self._context.Pipe(duplex=False)
        os.write(self._turn[1].fileno(), _TOKEN)
        pipes = [self._context.Pipe(duplex=False) for _ in range(self.jobs)]
        self._ends = [here for here, _ in pipes]
        answers = [(number, there) for number, (_, there) in enumerate(pipes)]
        try:
            self._spawn(taken, answers)
        finally:
            # Nobody but the workers has their ends, so that each side sees when the other is gone.
            for _, there in answers:
                there.close()
            taken.close()

    def _spawn(self, taken: Connection, answers: Sequence[tuple[int, Connection]]) -> None:
        with _signals_held():
            for group in [answers] if FORKS else [[each] for each in answers]:
                given, giver = self._context.Pipe(duplex=False)
                self._givers.append(giver)
                # Nothing of packer's own: unpickling it would import packer before anything is loaded.
                arguments = {
                    "given": given,
                    "tasks": taken,
                    "turn": self._turn,
                    "places": self.supervision.places,
                    "answers": group,
                }
                process = self._context.Process(
                    target=spawned.begin, args=(self._warm, __name__, "first"), kwargs=arguments
                )
                process.start()
                self._processes.append(process)
                given.close()

    def begin(self, make: Callable[..., Work], arguments: Sequence[Any], tasks: Sequence[Any]) -> None:
        """Hand out tasks; `make(*arguments)` gives the function of every worker. No more work than tasks.

        Raises:
            Exception: some of it does not pickle.

        """
        needed = min(self.jobs, len(tasks))
        # What is larger than a pipe would block whoever writes it until a worker is there to read it, or gone.
        given = ForkingPickler.dumps((make, tuple(arguments)))
        queue = [ForkingPickler.dumps(each) for each in enumerate(tasks)] + [ForkingPickler.dumps(None)] * needed
        if not self._processes:
            self.start()
        self._num_tasks = len(tasks)
        for unneeded in (*self._ends[needed:], *self._givers[needed:]):
            unneeded.close()
        self._ends, self._givers = self._ends[:needed], self._givers[:needed]
        handing = threading.Thread(target=self._hand_out, args=(needed, given, queue), daemon=True)
        handing.start()
        self._handing = handing

    def _hand_out(self, needed: int, given: bytes, queue: Sequence[bytes]) -> None:
        assert self._queue is not None
        with suppress(OSError):  # they are gone
            for giver in self._givers:
                giver.send(needed)
                giver.send_bytes(given)
            for each in queue:
                self._queue.send_bytes(each)

    def answers(self) -> Iterator[tuple[int, Any, BaseException | None]]:
        """Number of each task, and its result or the error it raised, as they come.

        Raises:
            DiedError: a worker ended before it was told to.

        """
        working = set(self._ends)
        num_answers = 0
        while working:
            for end in multiprocessing.connection.wait(list(working)):
                assert isinstance(end, Connection)
                try:
                    answer = end.recv()
                except (EOFError, OSError):
                    died = DiedError()
                    died.exit_code = self._exit_code(self._ends.index(end))
                    raise died from None
                if answer is None:  # told to end
                    working.discard(end)
                else:
                    num_answers += 1
                    yield answer
        if num_answers < self._num_tasks:
            raise DiedError
        self._join()

    def _exit_code(self, number: int) -> int | None:
        """How a worker ended whose pipe is closed."""
        process = worker_place(self.supervision.places, number)[PROCESS]
        first = self._processes[0 if FORKS else number]
        if process == first.pid or (process == 0 and number == 0):
            first.join(_END_S)
            return first.exitcode
        return exit_code_of(process, within_s=_END_S) if process else None

    def stop(self) -> None:
        """End them, whatever they do: a task that is cut off leaves a temporary file, which the next build removes."""
        for first in self._processes:
            assert first.pid is not None
            if FORKS and first.is_alive():  # so nobody else has its number
                with suppress(OSError):  # it has not begun, and has forked nobody
                    os.killpg(first.pid, signal.SIGKILL)
            first.kill()
        self._join()
        until = time.monotonic() + _END_S
        for end in self._ends:
            _drain(end, until)
            end.close()
        if self._handing is not None:
            self._handing.join(_END_S)
        for way in (*self._givers, *self._turn, self._queue):
            if way is not None:
                way.close()

    def _join(self) -> None:
        until = time.monotonic() + _END_S
        for first in self._processes:
            first.join(max(until - time.monotonic(), 0))


class _Post:
    """What one worker has of its own, and shares with others: where tasks come from, and where answers go."""

    def __init__(
        self, *, number: int, answers: Connection, tasks: Connection, turn: tuple[Connection, Connection], places: Any
    ) -> None:
        self.number = number
        self.answers = answers
        self.tasks = tasks
        self.turn = turn
        self.places = places
        self._is_done = False

    def taken(self) -> Iterator[tuple[int, Any]]:
        """Tasks and their numbers, until nothing is left to do.

        Raises:
            EOFError: the parent is gone.

        """
        while not self._is_done:
            # Whoever has the one byte of this pipe may read. A lock of multiprocessing's has a name in the system that
            # outlives processes which are killed.
            token = os.read(self.turn[0].fileno(), 1)
            pickled = self.tasks.recv_bytes()
            os.write(self.turn[1].fileno(), token)
            taken: tuple[int, Any] | None = ForkingPickler.loads(pickled)
            if taken is None:
                self._is_done = True
            else:
                yield taken

    def answer(self, number: int, result: Any, error: BaseException | None) -> None:
        try:
            pickled = ForkingPickler.dumps((number, result, error))
        except Exception as unpicklable:  # noqa: BLE001 - whatever an object raises that is asked to pickle
            pickled = ForkingPickler.dumps((number, None, RuntimeError(f"{error or result!r}: {unpicklable}")))
        self.answers.send_bytes(pickled)


def _drain(end: Connection, until: float) -> None:
    """Read until there is nobody to write: a worker that was killed has gone then, with every file it had open."""
    with suppress(EOFError, OSError):
        while end.poll(max(until - time.monotonic(), 0)):
            end.recv_bytes()


@contextmanager
def _signals_held() -> Iterator[None]:
    """Ctrl-C and termination wait while workers are started: one that is cut off half-started prints a traceback.

    Workers inherit the mask until they have said that Ctrl-C, which is the parent's to answer, is nothing to them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def first(
    loading: threading.Thread | None,
    *,
    given: Connection,
    tasks: Connection,
    turn: tuple[Connection, Connection],
    places: Any,
    answers: Sequence[tuple[int, Connection]],
) -> None:
    """A process that was spawned: it loads, forks as many others as are needed, and is a worker like them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    # One process a core: threads inside the encoder would only be in each other's way.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    posts = [_Post(number=number, answers=end, tasks=tasks, turn=turn, places=places) for number, end in answers]
    try:
        needed = given.recv()
        pickled = given.recv_bytes()
    except EOFError:  # the parent is gone
        return
    given.close()
    chosen = [post for post in posts if post.number < needed]
    if not chosen:
        return
    try:
        _load_and_serve(pickled, loading, chosen, posts, alone=len(chosen) < needed)
    finally:
        for post in posts:  # the parent sees that nobody answers, whatever those that were forked still do
            post.answers.close()


def _load_and_serve(
    pickled: bytes, loading: threading.Thread | None, chosen: Sequence[_Post], posts: Sequence[_Post], *, alone: bool
) -> None:
    """`alone`: other workers take from the same queue meanwhile, so that one task ahead is enough."""
    share(worker_place(chosen[0].places, chosen[0].number))
    taken: list[Taken] = []
    try:
        make, arguments = ForkingPickler.loads(pickled)
        work = make(*arguments)
        look_ahead(work, itertools.islice(map(_placed, chosen[0].taken()), 1 if alone else None), taken)
        if isinstance(work, Loading):
            work.settle()
    except BaseException as error:  # noqa: BLE001 - raised again by every task, where the parent can see it
        work = _raiser(error)
    if loading is not None:
        loading.join()
    gc.freeze()  # a collection would write to every page that is shared
    left = taken[:: len(chosen)]
    for number, post in enumerate(chosen[1:], 1):
        if not _fork(work, post, posts, taken[number :: len(chosen)]):
            left += taken[number :: len(chosen)]
    taken.clear()
    _serve(work, chosen[0], posts, left)


def _fork(work: Work, post: _Post, posts: Sequence[_Post], own: list[Taken]) -> bool:
    """Whether another worker could be started; where not, the others do without."""
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(work, post, posts, own))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that there are other threads
            process.start()
    except OSError:  # no more processes, or no memory for one
        post.answers.send(None)
        return False
    finally:
        post.answers.close()
    return True


def _serve(work: Work, post: _Post, posts: Sequence[_Post], own: list[Taken]) -> None:
    """Answer tasks: some that were looked at already, then others until there are no more."""
    for other in posts:
        if other is not post:
            other.answers.close()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    share(worker_place(post.places, post.number))
    with suppress(EOFError, BrokenPipeError):  # the parent is gone
        while own:
            _answer(work, post, own.pop(0))
        for number, task in post.taken():
            _answer(work, post, Taken(number, task))
        post.answers.send(None)


def _answer(work: Work, post: _Post, taken: Taken) -> None:
    _placed((taken.number, taken.task))
    try:
        result = taken.do(work)
    except BaseException as error:  # noqa: BLE001 - the parent raises it again
        error.add_note("".join(traceback.format_exception(error)))
        post.answer(taken.number, None, error)
    else:
        post.answer(taken.number, result, None)


def _placed(taken: tuple[int, Any]) -> tuple[int, Any]:
    """A task that is about to be done, where the parent sees which it is."""
    place()[TASK] = taken[0]
    return taken


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _raiser(error: BaseException) -> Work:
    def fail(*_: Any) -> Any:
        raise error

    return fail
