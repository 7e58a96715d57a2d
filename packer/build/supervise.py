"""The parent's watch over its workers: one whose template holds the interpreter is ended from outside.

A worker looks at itself (:mod:`packer.render.watchdog`), which takes an interpreter that runs. Should a single step of
a template take it all, the parent sees it: workers keep their place in memory that is shared, and Linux tells the
processor time and memory of a process. The worker is given a little more than it gives itself, so that where both
could speak, it speaks first. Elsewhere than on Linux the workers' own watch is all there is.
"""

import ctypes
import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing.context import SpawnContext
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from packer.render.watchdog import COUNT, PROCESS, ROW, TASK, Meter, TemplateOverrunError, resident_bytes

_GRACE = 1.5
_LOOK_S = 0.1
_NUMBERS = 4


class Supervision:
    """Looks at worker processes until it is left; what it ended is in :attr:`found`."""

    def __init__(self, context: SpawnContext, jobs: int) -> None:
        self.places: Any = context.RawArray(ctypes.c_int64, _NUMBERS * jobs)
        """For the worker of number n, the four numbers from 4 n on."""

        self._meters: list[Meter | None] = [None] * jobs
        self.found: tuple[int, TemplateOverrunError] | None = None
        """The task whose template was ended, and why."""

        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="packer-supervision", daemon=True)

    def __enter__(self) -> Self:
        if Path("/proc/self/statm").exists():
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()

    def _run(self) -> None:
        while not self._done.wait(_LOOK_S):
            for worker in range(len(self._meters)):
                with suppress(OSError):  # it has ended
                    self._look(worker)

    def _look(self, worker: int) -> None:
        place = worker_place(self.places, worker)
        process = place[PROCESS]
        if not process:
            return
        resident = resident_bytes(str(process))
        meter = self._meters[worker] = self._meters[worker] or Meter(resident)
        used = meter.look(place[COUNT], lambda: _cpu_s(process), resident, grace=_GRACE)
        if used is not None and self.found is None:
            self.found = place[TASK], TemplateOverrunError.of(used, place[ROW])
            os.kill(process, signal.SIGKILL)


def worker_place(places: Any, worker: int) -> memoryview:
    """The four numbers of a worker."""
    return memoryview(places).cast("B").cast("q")[_NUMBERS * worker : _NUMBERS * (worker + 1)]


def _cpu_s(process: int) -> float:
    """Processor time of a process, from behind its name, which may hold anything."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def exit_code_of(process: int, *, within_s: float) -> int | None:
    """Exit code of a process that is ending and that its parent has not waited for, or minus the signal that ended it.

    None where the system does not say: it is gone, or this is not Linux.
    """
    until = time.monotonic() + within_s
    with suppress(OSError):
        while time.monotonic() < until:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            if fields[0] in "ZX":
                return os.waitstatus_to_exitcode(int(fields[-1]))
            time.sleep(_LOOK_S / 10)
    return None
