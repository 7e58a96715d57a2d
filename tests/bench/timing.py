"""How long a function takes, and how much memory."""

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROUNDS = 3
_KIB = 1 if sys.platform == "darwin" else 1024  # unit of ru_maxrss


def best(function: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Seconds of the fastest of a few rounds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    result: Any
    seconds: float
    peak_bytes: int
    """That the process grew by in the first round, the result included."""


def measured(function: Callable[[], object], rounds: int = ROUNDS) -> Measured:
    """Measure in a fork of this process: it has the arguments, and no memory that an earlier function gave back."""
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_measure, args=(function, rounds, answers))
    child.start()
    child.join()
    if child.exitcode:
        raise ChildProcessError(f"the measured function ended with exit status {child.exitcode}")
    answer: Measured = answers.get()
    return answer


def _measure(function: Callable[[], object], rounds: int, answers: "multiprocessing.SimpleQueue[Measured]") -> None:
    before = _resident_bytes()
    start = time.perf_counter()
    result = function()
    first = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
    again = best(function, rounds - 1) if rounds > 1 else first
    answers.put(Measured(result=result, seconds=min(first, again), peak_bytes=max(peak - before, 0)))


def _resident_bytes() -> int:
    """What the process has now, or where the system does not say, the most it had."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
