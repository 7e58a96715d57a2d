"""Limits for chat templates: one rendering may use 2 seconds of processor time and 512 MiB of memory.

Memory for decoding rows of a table and time for encoding texts are limited as well, by :func:`bounded`.

Rows are only rejected for reasons that depend on the row alone. How long a rendering takes depends on the machine, so
exceeding a limit does not reject the row: it fails the command with an error that names the template and the row. The
limits are constants. No recipe sets them, and no byte of a cache depends on them.

A timer of processor time (not wall time: a machine may be busy or suspended) sends a signal while a template runs in
the main thread, whose handler raises an exception there, between two bytecode instructions. Signals and limits of a
process are its owner's. So an application gets its own handler back after each rendering, and packer sets no limit of
memory in it; in another thread, a rendering that took too long is noticed when it ends.

A single instruction cannot be interrupted. One may take forever, such as comparing two lists that contain themselves
sixty times over, or allocate without bound, such as `'a'.ljust(6*10**9)`. In processes of packer's own, the operating
system therefore enforces both limits: see :func:`limit_process`.
"""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from packer.errors import UsageError

MAX_CPU_S = 2.0
MAX_GROWTH_BYTES = 512 * 2**20
TICK_S = 0.05
"""Processor time after which a rendering that did not end is interrupted again."""

MAX_STUCK_S = 60.0
"""Processor time of the process during one rendering after which the operating system kills it."""

Result = TypeVar("Result")


class TemplateOverrunError(UsageError):
    """A chat template used more time or memory than one rendering may."""

    code: ClassVar[str] = "template_overrun"

    def __init__(self, message: str, *, row: int = -1) -> None:
        """`row`: of the partition that was being rendered; -1 if the conversation was not a row of the user's."""
        hint = "no row is rejected for what depends on the machine; check the template's loops with this row, and fix "
        super().__init__(message, hint=f"{hint}it or use another (--template FILE). Finished work is kept")
        self.row = row

    def at(self, place: str) -> Self:
        """Return the same error with a location."""
        return type(self)(f"{place}: {self.message}", row=self.row)


class _Interrupt(BaseException):
    """Raised in the main thread where its rendering has to stop."""


_STATM = Path("/proc/self/statm")

_begun_s: float | None = None
"""Processor time of the main thread when the rendering began that now runs in it; None beside renderings."""


def _interrupt(_number: int, _frame: object) -> None:
    """Handle the timer's signal; it counts all threads, and comes again every `TICK_S`."""
    if _begun_s is not None and time.thread_time() - _begun_s > MAX_CPU_S:
        raise _Interrupt


class _ProcessLimits:
    """What the operating system enforces in a process of packer's own while a template runs.

    A timer that ends the process (SIGPROF), and a limit of its private memory (RLIMIT_DATA, on Linux), so that whatever
    allocates more, in any number of steps, raises a MemoryError.
    """

    def __init__(self) -> None:
        self._statm = os.open(_STATM, os.O_RDONLY) if _STATM.exists() else None
        self._soft, self._hard = resource.getrlimit(resource.RLIMIT_DATA)

    @property
    def of_memory(self) -> bool:
        return self._statm is not None

    def begin(self, seconds: float, num_bytes: int | None) -> None:
        """Bound the processor time from now on, if `seconds` are not 0, and the memory that is taken from now on."""
        if seconds:
            signal.setitimer(signal.ITIMER_PROF, seconds)
        if self._statm is not None and num_bytes is not None:
            most = int(os.pread(self._statm, 200, 0).split()[5]) * resource.getpagesize() + num_bytes
            if most < self._soft or self._soft == resource.RLIM_INFINITY:
                resource.setrlimit(resource.RLIMIT_DATA, (most, self._hard))

    def end(self, seconds: float, num_bytes: int | None) -> None:
        """End what was begun, and no other limit."""
        if seconds:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if self._statm is not None and num_bytes is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (self._soft, self._hard))

    def reopen(self) -> None:
        """Measure the memory of this process, after a fork: the open file shows the parent's."""
        if self._statm is not None:
            os.close(self._statm)
            self._statm = os.open(_STATM, os.O_RDONLY)


_PROCESS: _ProcessLimits | None = None
"""None in an application."""


def _after_fork() -> None:
    if _PROCESS is not None:
        _PROCESS.reopen()


os.register_at_fork(after_in_child=_after_fork)


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
def bounded(*, seconds: float = 0.0, num_bytes: int | None = None) -> Iterator[None]:
    """Limit the processor time or the memory (on Linux) of the body, in a process of packer's own.

    Time is for a library that cannot be interrupted: the operating system ends this process. A deadline never rejects a
    row, which would be kept on a faster machine. Memory is for what decodes to an unknown size: more of it is an
    OverMemoryError. A library that does not expect to be refused memory may abort the process.
    """
    limits = _PROCESS
    if limits is None:
        yield
        return
    limits.begin(seconds, num_bytes)
    try:
        yield
    except MemoryError as error:
        if num_bytes is None or not limits.of_memory:
            raise
        raise OverMemoryError(f"takes more than {num_bytes // 2**20:,} MiB of memory") from error
    finally:
        limits.end(seconds, num_bytes)


class _Rendering(threading.local):
    row = -1
    """Row of the partition that the thread renders, or -1."""


RENDERING = _Rendering()


def watched(render: Callable[[], Result]) -> Result:
    """Run a function that renders or compiles a template, within the limits; beyond, a TemplateOverrunError."""
    global _begun_s  # noqa: PLW0603 - of the main thread
    limits, is_timed = _PROCESS, False
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGVTALRM) == signal.SIG_DFL:
        is_timed = True
        signal.signal(signal.SIGVTALRM, _interrupt)
        signal.setitimer(signal.ITIMER_VIRTUAL, MAX_CPU_S, TICK_S)
    begun_s = time.thread_time()
    try:
        if limits is not None:
            limits.begin(MAX_STUCK_S, MAX_GROWTH_BYTES)
        try:
            _begun_s = begun_s if is_timed else _begun_s
            result = render()
        finally:  # Python looks for signals in calls and loops, of which there is none until this is done
            _begun_s = None if is_timed else _begun_s
        is_over = time.thread_time() - begun_s > MAX_CPU_S  # in a single step, or in another thread
    except _Interrupt:
        is_over = True
    except MemoryError:
        is_bounded = limits is not None and limits.of_memory
        most = f"{MAX_GROWTH_BYTES // 2**20} MiB of memory" if is_bounded else "memory than there is"
        raise _overrun(f"takes more {'than ' * is_bounded}{most}") from None
    finally:
        if limits is not None:
            limits.end(MAX_STUCK_S, MAX_GROWTH_BYTES)
        if is_timed:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    if is_over:
        raise _overrun(f"takes more than {MAX_CPU_S:g} s of processor time")
    return result


def _overrun(used: str) -> TemplateOverrunError:
    return TemplateOverrunError(f"the chat template {used} in one rendering", row=RENDERING.row)
