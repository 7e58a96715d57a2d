"""Progress on stderr: a bar on a terminal, elsewhere a line every few seconds."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from packer_cli.output import bars_console, duration, number, one_line, rate, size, stderr

if TYPE_CHECKING:
    from rich.progress import Progress


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
    """How much of a stage is done, at what speed, and how long the rest takes; no line of a short stage."""

    _every = 5.0
    """Seconds between two lines."""

    def __init__(self) -> None:
        self.stage("", 0, "")

    def stage(self, name: str, total: int, unit: str) -> None:
        self._name, self._total, self._unit = name, total, unit
        self._done = self._tokens = 0
        self._began = self._shown = time.monotonic()

    def advance(self, amount: int, tokens: int = 0) -> None:
        self._done += amount
        self._tokens += tokens
        now = time.monotonic()
        if now - self._shown >= self._every:
            self._shown = now
            self._show(self._line(now - self._began))

    def note(self, message: str) -> None:
        stderr().line(f"note: {message}")

    def _show(self, line: str) -> None:
        stderr().line(line)

    def _line(self, elapsed: float) -> str:
        share = self._done / self._total if self._total else 1.0
        speed = f", {rate(self._tokens, elapsed)} tokens/s" if self._tokens else ""
        left = f", {duration(elapsed / share - elapsed)} left" if 0 < share < 1 else ""
        if self._unit == "bytes":
            amount = f"{size(self._done)} of {size(self._total)}"
        else:
            amount = f"{number(self._done)} of {number(self._total)} {self._unit}"
        return f"{self._name}: {amount} ({share:.0%}){speed}{left}"


class Bars(Lines):
    """A bar beside that line, gone when the work is done; notes are printed above it."""

    _every = 0.1

    def __init__(self, bars: "Progress") -> None:
        self._bars = bars
        super().__init__()

    def stage(self, name: str, total: int, unit: str) -> None:
        super().stage(name, total, unit)
        for task in self._bars.task_ids:
            self._bars.remove_task(task)
        if name:
            self._bars.add_task(name, total=max(total, 1))

    def note(self, message: str) -> None:
        self._bars.console.out(one_line(f"note: {message}"), highlight=False)

    def _show(self, line: str) -> None:
        self._bars.update(self._bars.task_ids[-1], completed=self._done, description=line)

    def __enter__(self) -> Self:
        self._bars.start()
        self._bars.add_task("starting", total=None)  # to load a tokenizer or ask the Hub takes a while
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()


def listener(*, quiet: bool) -> Quiet:
    """The progress display for stderr."""
    if quiet:
        return Quiet()
    if not stderr().has_cursor:
        return Lines()
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - rich is for bars alone

    columns = BarColumn(bar_width=16), TextColumn("{task.description}", markup=False)
    return Bars(Progress(*columns, console=bars_console(), transient=True, redirect_stderr=False))
