"""Limits for chat templates: one rendering may use 2 seconds of processor time and 512 MiB of memory.

Memory for decoding rows of a table is limited as well, by :func:`bounded_memory`.

Rows are only rejected for reasons that depend on the row alone. How long a rendering takes depends on the machine, so
exceeding a limit does not reject the row: it fails the command with an error that names the template and the row. The
limits are constants. No recipe sets them, and no byte of a cache depends on them.

While templates run, one thread checks every `TICK_S` how much processor time (not wall time: a machine may be busy or
suspended) and memory each rendering thread has used since its rendering began. To stop a rendering, it raises an
exception in the rendering thread. This needs no signal handler, so it does not interfere with the application's
handlers, and works in any thread. Python raises the exception between two bytecode instructions.

A single instruction cannot be interrupted this way: it holds the GIL, and the watching thread does not run. One may
take forever, such as comparing two lists that contain themselves sixty times over, or allocate without bound, such as
`'a'.ljust(6*10**9)`. In processes of packer's own, the operating system therefore enforces both limits: see
:func:`limit_process`. An application's limits are its own, and packer does not change them.

Memory is measured for the whole process, so memory that other threads of an application allocate during a long
rendering counts as well.
"""

import ctypes
import os
import resource
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from packer.errors import UsageError

MAX_CPU_S = 2.0
MAX_GROWTH_BYTES = 512 * 2**20
TICK_S = 0.05
MAX_STUCK_S = 60.0
"""Processor time of the process during one rendering after which the operating system kills it."""

_TOO_MUCH = f"takes more than {MAX_GROWTH_BYTES // 2**20} MiB of memory"


def _too_long() -> str:
    return f"takes more than {MAX_CPU_S:g} s of processor time"


COUNT, ROW = range(2)
"""What the numbers of a place are: beginnings and ends of renderings, so that it is odd while a template runs; the row
of the partition, or -1."""

Result = TypeVar("Result")


class TemplateOverrunError(UsageError):
    """A chat template used more time or memory than one rendering may."""

    code: ClassVar[str] = "template_overrun"
    row: int = -1
    """Row of the partition that was being rendered; -1 if the conversation was not a row of the user's."""

    @classmethod
    def of(cls, used: str, row: int) -> Self:
        error = cls(
            f"the chat template {used} in one rendering",
            hint="no row is rejected for what depends on the machine; check the template's loops with this row, and "
            "fix it or use another (--template FILE). Finished work is kept",
        )
        error.row = row
        return error

    def at(self, place: str) -> Self:
        """Return the same error with a location."""
        error = type(self)(f"{place}: {self.message}", hint=self.hint)
        error.row = self.row
        return error


def _resident_bytes() -> int:
    """Return the private memory of this process."""
    if _STATM.exists():
        _, resident, shared, *_ = _STATM.read_text().split()
        return (int(resident) - int(shared)) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # the most there was, in bytes on a Mac


_STATM = Path("/proc/self/statm")


class _Interrupt(BaseException):
    """Raised asynchronously in a thread whose rendering has to stop."""


class _Thread:
    """A thread that renders, as seen by the watching thread."""

    def __init__(self) -> None:
        self.place = [0, -1]
        self.struck: str | None = None
        """Why the rendering has to stop; set just before the exception is sent and cleared once it has arrived."""

        self.sent = True
        """False while the watching thread is sending the exception."""

        self._seen = 0
        self._cpu_s = 0.0
        self._least_resident = 0
        self._ident = threading.get_ident()
        has_clocks = hasattr(time, "pthread_getcpuclockid")
        self._clock = time.pthread_getcpuclockid(self._ident) if has_clocks else time.CLOCK_PROCESS_CPUTIME_ID

    def check(self, count: int, resident: int) -> None:
        """Interrupt the current rendering if it has used too much since the check that first saw it.

        Memory that the process took before that check does not count: it may be the application's. `count` was read
        before `resident`: if it is still the same, `resident` was measured during this rendering.
        """
        is_new, self._seen = count != self._seen, count
        if not count % 2 or count != self.place[COUNT]:
            return
        cpu_s = time.clock_gettime(self._clock)
        if is_new:
            self._cpu_s, self._least_resident = cpu_s, resident
        self._least_resident = min(self._least_resident, resident)
        if cpu_s - self._cpu_s > MAX_CPU_S:
            self._interrupt(count, _too_long())
        elif resident - self._least_resident > MAX_GROWTH_BYTES:
            self._interrupt(count, _TOO_MUCH)

    def _interrupt(self, count: int, used: str) -> None:
        """Send the exception.

        The order matters: a rendering that ends meanwhile sees that an exception may be on its way, and waits for it.
        """
        struck_before = self.struck is not None
        self.sent = False
        self.struck = used
        if self.place[COUNT] == count:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._ident), ctypes.py_object(_Interrupt))
        elif not struck_before:
            self.struck = None
        self.sent = True

    def settle(self) -> None:
        """Wait, after a rendering, for an exception that is on its way, so that it is not raised somewhere else."""
        while True:
            sent = self.sent
            if self.struck is None:
                return
            if sent:
                raise _Interrupt
            time.sleep(0.001)

    def await_interrupt(self) -> str:
        """Return why this thread was interrupted, once no further exception can arrive."""
        while True:
            try:
                self.place[COUNT] += self.place[COUNT] % 2
                while not self.sent:
                    time.sleep(0.001)
                time.sleep(0.001)  # what is still to arrive arrives here
                used, self.struck = self.struck, None
            except _Interrupt:
                continue
            return used or "takes too much"


class _Local(threading.local):
    def __init__(self) -> None:
        self.thread = _Thread()
        with _WATCH.lock:
            _WATCH.threads.add(self.thread)


class _Watch:
    """The watching thread."""

    def __init__(self) -> None:
        self.threads: weakref.WeakSet[_Thread] = weakref.WeakSet()
        self.lock = threading.Lock()
        self.running = False

    def start(self) -> None:
        with self.lock:
            if not self.running:
                self.running = True
                threading.Thread(target=self._run, name="packer-watchdog", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(TICK_S)
            with suppress(MemoryError, OSError):  # memory or file handles may be used up; the next check is soon
                self._check()

    def _check(self) -> None:
        with self.lock:
            counts = [(thread, thread.place[COUNT]) for thread in self.threads]
        resident = _resident_bytes()
        for thread, count in counts:
            thread.check(count, resident)


class _ProcessLimits:
    """What the operating system enforces in a process of packer's own while a template runs.

    A timer that ends the process (SIGPROF), and a limit of its private memory (RLIMIT_DATA, on Linux), so that whatever
    allocates more, in any number of steps, raises a MemoryError.
    """

    def __init__(self) -> None:
        self._has_timer = hasattr(signal, "setitimer")
        self._statm = os.open(_STATM, os.O_RDONLY) if _STATM.exists() else None
        self._soft, self._hard = resource.getrlimit(resource.RLIMIT_DATA)

    @property
    def of_memory(self) -> bool:
        return self._statm is not None

    def begin(self) -> None:
        if self._has_timer:
            signal.setitimer(signal.ITIMER_PROF, MAX_STUCK_S)
        self.bound_memory(MAX_GROWTH_BYTES)

    def bound_memory(self, num_bytes: int) -> None:
        if self._statm is not None:
            data = int(os.pread(self._statm, 200, 0).split()[5]) * resource.getpagesize()
            most = data + num_bytes
            if most < self._soft or self._soft == resource.RLIM_INFINITY:
                resource.setrlimit(resource.RLIMIT_DATA, (most, self._hard))

    def end(self) -> None:
        if self._has_timer:
            signal.setitimer(signal.ITIMER_PROF, 0)
        self.free_memory()

    def free_memory(self) -> None:
        if self._statm is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (self._soft, self._hard))

    def reopen(self) -> None:
        """Measure the memory of this process, after a fork: the open file shows the parent's."""
        if self._statm is not None:
            os.close(self._statm)
            self._statm = os.open(_STATM, os.O_RDONLY)


_WATCH = _Watch()
_LOCAL = _Local()
_PROCESS: _ProcessLimits | None = None
"""None in an application."""


def _forget() -> None:
    """Reset the state in a forked process, which has none of the parent's threads, and different clocks and memory."""
    global _WATCH, _LOCAL  # noqa: PLW0603 - made again, as importing makes them
    _WATCH = _Watch()
    _LOCAL = _Local()
    if _PROCESS is not None:
        _PROCESS.reopen()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def limit_process() -> None:
    """Let the operating system enforce the limits in this process, against a single instruction, too.

    For worker processes and the command line only: packer never kills an application's process, nor makes the
    allocations of its other threads fail.
    """
    global _PROCESS  # noqa: PLW0603 - of this process
    _PROCESS = _PROCESS or _ProcessLimits()


class OverMemoryError(ValueError):
    """A step took more memory than it may."""


@contextmanager
def bounded_memory(num_bytes: int) -> Iterator[None]:
    """Limit the memory that the body takes, in a process of packer's own on Linux; elsewhere, nothing is limited.

    For what decodes to an unknown size. A library that does not expect to be refused memory may abort the process.

    Raises:
        OverMemoryError: it takes more.
    """
    limits = _PROCESS
    if limits is None or not limits.of_memory:
        yield
        return
    limits.bound_memory(num_bytes)
    try:
        yield
    except MemoryError as error:
        raise OverMemoryError(f"takes more than {num_bytes // 2**20:,} MiB of memory") from error
    finally:
        limits.free_memory()


def place() -> list[int]:
    """Return the progress of the calling thread; see :data:`COUNT`."""
    return _LOCAL.thread.place


def watched(render: Callable[[], Result]) -> Result:
    """Run a function that renders or compiles a template, within the limits.

    Raises:
        TemplateOverrunError: it exceeded a limit.
    """
    thread = _LOCAL.thread
    numbers = thread.place
    limits = _PROCESS
    try:
        numbers[COUNT] += 1
        if not _WATCH.running:
            _WATCH.start()
        if limits is not None:
            limits.begin()
        begun_s = time.thread_time()
        try:
            result = render()
        finally:
            numbers[COUNT] += 1
            if thread.struck is not None:
                thread.settle()
        if time.thread_time() - begun_s <= MAX_CPU_S:
            return result
        used = _too_long()  # in a single step, during which the watching thread did not run
    except _Interrupt:
        used = thread.await_interrupt()
    except MemoryError:
        used = _TOO_MUCH if limits is not None and limits.of_memory else "takes more memory than there is"
    finally:  # no interrupt can arrive any more
        if limits is not None:
            limits.end()
    raise TemplateOverrunError.of(used, numbers[ROW])
