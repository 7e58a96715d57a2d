"""Limits for chat templates: one rendering may use 2 seconds of processor time and 512 MiB of memory.

Rows are only rejected for reasons that depend on the row alone. How long a rendering takes depends on the machine, so
exceeding a limit does not reject the row: it fails the command with an error that names the template and the row. The
limits are constants. No recipe sets them, and no byte of a cache depends on them.

While templates run, one thread checks every `TICK_S` how much processor time (not wall time: a machine may be busy or
suspended) and memory each rendering thread has used since its rendering began. To stop a rendering, it raises an
exception in the rendering thread. This needs no signal handler, so it does not interfere with the application's
handlers, and works in any thread. Python raises the exception between two bytecode instructions.

A single long instruction, such as comparing two lists that contain themselves sixty times over, cannot be interrupted
this way: it holds the GIL, and the watching thread does not run. In processes started by packer, the operating system
then kills the process: see :func:`end_if_stuck`.

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
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from packer.errors import UsageError

MAX_CPU_S = 2.0
MAX_GROWTH_BYTES = 512 * 2**20
TICK_S = 0.05
MAX_STUCK_S = 60.0
"""Processor time of the process during one rendering after which the operating system kills it."""

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
            self._interrupt(count, f"takes more than {MAX_CPU_S:g} s of processor time")
        elif resident - self._least_resident > MAX_GROWTH_BYTES:
            self._interrupt(count, f"takes more than {MAX_GROWTH_BYTES // 2**20} MiB of memory")

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
            with self.lock:
                counts = [(thread, thread.place[COUNT]) for thread in self.threads]
            resident = _resident_bytes()
            for thread, count in counts:
                thread.check(count, resident)


_WATCH = _Watch()
_LOCAL = _Local()
_ends_process = False


def _forget() -> None:
    """Reset the state in a forked process, which has none of the parent's threads and different clocks."""
    global _WATCH, _LOCAL  # noqa: PLW0603 - made again, as importing makes them
    _WATCH = _Watch()
    _LOCAL = _Local()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def end_if_stuck() -> None:
    """Let the operating system kill this process (SIGPROF) if a template gets stuck in a single instruction.

    For worker processes and the command line only: packer never kills an application's process.
    """
    global _ends_process  # noqa: PLW0603 - of this process
    _ends_process = hasattr(signal, "setitimer")


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
    try:
        numbers[COUNT] += 1
        if not _WATCH.running:
            _WATCH.start()
        if _ends_process:
            signal.setitimer(signal.ITIMER_PROF, MAX_STUCK_S)
        try:
            return render()
        finally:
            numbers[COUNT] += 1
            if _ends_process:
                signal.setitimer(signal.ITIMER_PROF, 0)
            if thread.struck is not None:
                thread.settle()
    except _Interrupt:
        used = thread.await_interrupt()
    except MemoryError:
        used = "takes more memory than there is"
    raise TemplateOverrunError.of(used, numbers[ROW])
