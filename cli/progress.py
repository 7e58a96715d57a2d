"""Progress of a build or an audit on stderr: bars on a terminal, a line every few seconds elsewhere."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from packer_cli.output import bars_console, duration, guarded, number, rate, size, stderr

if TYPE_CHECKING:
    from rich.progress import TaskID

_EVERY_S = 5.0


class Quiet:
    """Says nothing."""

    def stage(self, name: str, total: int, unit: str) -> None: ...

    def advance(self, amount: int, tokens: int = 0) -> None: ...

    def note(self, message: str) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Lines(Quiet):
    """A line every few seconds; nothing at all for what is done before."""

    def __init__(self) -> None:
        self._stage = ("", 0, "")
        self._done = self._tokens = 0
        self._began = self._told = time.monotonic()

    def stage(self, name: str, total: int, unit: str) -> None:
        self._stage = (name, total, unit)
        self._done = self._tokens = 0
        self._began = self._told = time.monotonic()

    def advance(self, amount: int, tokens: int = 0) -> None:
        self._done += amount
        self._tokens += tokens
        now = time.monotonic()
        if now - self._told >= _EVERY_S:
            self._told = now
            stderr().line(self._line(now - self._began))

    def note(self, message: str) -> None:
        stderr().line(f"note: {message}")

    def _line(self, elapsed: float) -> str:
        name, total, unit = self._stage
        share = self._done / total if total else 1.0
        speed = f", {rate(self._tokens, elapsed)} tokens/s" if self._tokens else ""
        left = f", {duration(elapsed / share - elapsed)} left" if 0 < share < 1 else ""
        return f"{name}: {_amount(self._done, total, unit)} ({share:.0%}){speed}{left}"


class Bars(Quiet):
    """A bar for each stage, gone when it is done."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - rich is not for --help

        self._bars = Progress(
            TextColumn("{task.description:<10}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %", markup=False),
            TextColumn("{task.fields[told]}", markup=False),
            console=bars_console(),
            transient=True,
        )
        self._task: TaskID | None = None
        self._unit = ""
        self._tokens = 0
        self._began = 0.0

    def __enter__(self) -> Self:
        # Loading a tokenizer or asking the Hub takes a while, and has no measure.
        self._task = self._bars.add_task("starting", total=None, told="")
        self._bars.start()
        # What is printed now goes above the bars, by a stream that would obey its escape sequences.
        sys.stderr = guarded(sys.stderr)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def stage(self, name: str, total: int, unit: str) -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._unit, self._tokens, self._began = unit, 0, time.monotonic()
        self._task = self._bars.add_task(name, total=max(total, 1), told="")

    def advance(self, amount: int, tokens: int = 0) -> None:
        if self._task is None:
            return
        self._tokens += tokens
        self._bars.advance(self._task, amount)
        task = next(task for task in self._bars.tasks if task.id == self._task)
        elapsed = time.monotonic() - self._began
        done, total = task.completed, task.total or 1
        speed = f"  {rate(self._tokens, elapsed)} tokens/s" if self._tokens else ""
        left = f"  {duration(elapsed * (total - done) / done)} left" if 0 < done < total else ""
        self._bars.update(self._task, told=f"{_amount(int(done), int(total), self._unit)}{speed}{left}")

    def note(self, message: str) -> None:
        stderr().line(f"note: {message}")


def listener(*, quiet: bool) -> Quiet:
    """What fits where stderr goes."""
    if quiet:
        return Quiet()
    return Bars() if sys.stderr.isatty() else Lines()


def _amount(done: int, total: int, unit: str) -> str:
    if unit == "bytes":
        return f"{size(done)} of {size(total)}"
    return f"{number(done)} of {number(total)} {unit}"
