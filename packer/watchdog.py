"""What ends a template that does not end: a rendering may take 2 seconds of processor time and 512 MiB of memory.

A row is rejected for what depends on it alone. How long a rendering takes depends on the machine, so going on for too
long rejects nothing: it fails the command, and names template and row. The limits are constants: no recipe holds them,
and no byte of a cache depends on them.

While templates run, one thread looks every `TICK_S` at every thread that renders: how much processor time (not time of
day: a machine may be busy, or sleep) and memory it took since this rendering began. It ends a rendering by an
exception raised in the thread that renders, which needs no signal handler and so does not meddle with those of the
application, and works in any thread. Python raises it between two steps of the template.

A single step, such as comparing two lists that hold themselves sixty times over, cannot be ended so: it holds Python's
lock, and the thread that looks does not run. In processes of packer's own the system ends the process then: see
:func:`end_if_stuck`.

Memory is that of the process: where other threads of an application take as much within one long rendering, it counts.
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
"""Processor time of the process within one rendering, after which the system ends it."""

COUNT, ROW = range(2)
"""What the numbers of a place are: beginnings and ends of renderings, so that it is odd while a template runs; the row
of the partition, or -1."""

Result = TypeVar("Result")


class TemplateOverrunError(UsageError):
    """A chat template takes more time or memory than a rendering may."""

    code: ClassVar[str] = "template_overrun"
    row: int = -1
    """Row of the partition that was rendered; -1 where it was none of the user's."""

    @classmethod
    def of(cls, used: str, row: int) -> Self:
        error = cls(
            f"the chat template {used} in one rendering",
            hint="no row is rejected for what depends on the machine; look at the template's loops with this row, mend "
            "it or take another (--template FILE). What is finished is kept",
        )
        error.row = row
        return error

    def at(self, place: str) -> Self:
        """The same error, naming where it happened."""
        error = type(self)(f"{place}: {self.message}", hint=self.hint)
        error.row = self.row
        return error


def _resident_bytes() -> int:
    """Memory of this process that is its own."""
    if _STATM.exists():
        _, resident, shared, *_ = _STATM.read_text().split()
        return (int(resident) - int(shared)) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # the most there was, in bytes on a Mac


_STATM = Path("/proc/self/statm")


class _Struck(BaseException):
    """Raised from outside in a thread whose rendering is to end."""


class _Thread:
    """A thread that renders."""

    def __init__(self) -> None:
        self.place = [0, -1]
        self.struck: str | None = None
        """Why the rendering is to end, from just before the exception is on its way until it has arrived."""

        self.sent = True
        """Whether nobody is about to raise it."""

        self._seen = 0
        self._cpu_s = 0.0
        self._resident = self._before = _resident_bytes()
        self._ident = threading.get_ident()
        has_clocks = hasattr(time, "pthread_getcpuclockid")
        self._clock = time.pthread_getcpuclockid(self._ident) if has_clocks else time.CLOCK_PROCESS_CPUTIME_ID

    def look(self, resident: int) -> None:
        """Strike a rendering that took too much since it began, as far as it was looked at."""
        count, before = self.place[COUNT], self._resident
        is_new, self._seen, self._resident = count != self._seen, count, resident
        if not count % 2:
            return
        cpu_s = time.clock_gettime(self._clock)
        if is_new:
            self._cpu_s, self._before = cpu_s, min(before, resident)
        if cpu_s - self._cpu_s > MAX_CPU_S:
            self._strike(count, f"takes more than {MAX_CPU_S:g} s of processor time")
        elif resident - self._before > MAX_GROWTH_BYTES:
            self._strike(count, f"takes more than {MAX_GROWTH_BYTES // 2**20} MiB of memory")

    def _strike(self, count: int, used: str) -> None:
        """In this order, a rendering that ends meanwhile sees that something may be on its way, and waits for it."""
        struck_before = self.struck is not None
        self.sent = False
        self.struck = used
        if self.place[COUNT] == count:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._ident), ctypes.py_object(_Struck))
        elif not struck_before:
            self.struck = None
        self.sent = True

    def settle(self) -> None:
        """After a rendering: wait for what is on its way, so that it does not arrive somewhere else."""
        while True:
            sent = self.sent
            if self.struck is None:
                return
            if sent:
                raise _Struck
            time.sleep(0.001)

    def arrived(self) -> str:
        """What this thread was struck for; nothing more is on its way then."""
        while True:
            try:
                self.place[COUNT] += self.place[COUNT] % 2
                while not self.sent:
                    time.sleep(0.001)
                time.sleep(0.001)  # what is still to arrive arrives here
                used, self.struck = self.struck, None
            except _Struck:
                continue
            return used or "takes too much"


class _Local(threading.local):
    def __init__(self) -> None:
        self.thread = _Thread()
        with _WATCH.lock:
            _WATCH.threads.add(self.thread)


class _Watch:
    """The thread that looks."""

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
            resident = _resident_bytes()
            with self.lock:
                threads = list(self.threads)
            for thread in threads:
                thread.look(resident)


_WATCH = _Watch()
_LOCAL = _Local()
_ends_process = False


def _forget() -> None:
    """A process that was forked has none of the threads, and other clocks."""
    global _WATCH, _LOCAL  # noqa: PLW0603 - made anew, as importing makes them
    _WATCH = _Watch()
    _LOCAL = _Local()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def end_if_stuck() -> None:
    """Have the system end this process, by SIGPROF, where a template is stuck in a single step.

    For worker processes and the command line; in an application packer ends no process.
    """
    global _ends_process  # noqa: PLW0603 - of this process
    _ends_process = hasattr(signal, "setitimer")


def place() -> list[int]:
    """Where this thread is; see :data:`COUNT`."""
    return _LOCAL.thread.place


def watched(render: Callable[[], Result]) -> Result:
    """Run a template, or compile one.

    Raises:
        TemplateOverrunError: it took too much.

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
    except _Struck:
        used = thread.arrived()
    except MemoryError:
        used = "takes more memory than there is"
    raise TemplateOverrunError.of(used, numbers[ROW])
