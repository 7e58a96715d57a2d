"""Progress reports and notes, printed on stderr or passed to a listener."""

import sys
import time
from typing import Protocol

from packer.display import duration, number, one_line, rate, size


class Progress(Protocol):
    """Receives the progress of a build or another long operation."""

    def stage(self, name: str, total: int, unit: str) -> None:
        """Begin a stage of `total` units of work (`bytes`, `rows`, `tokens`); 0 if the total is unknown."""
        ...

    def advance(self, amount: int, tokens: int = 0) -> None:
        """Report that `amount` more units are done, which produced `tokens` tokens."""
        ...

    def note(self, message: str) -> None:
        """Report something the user may want to know."""
        ...


class Silent:
    """Ignores everything."""

    def stage(self, name: str, total: int, unit: str) -> None: ...

    def advance(self, amount: int, tokens: int = 0) -> None: ...

    def note(self, message: str) -> None: ...


class Lines:
    """Prints lines on stderr: how much of a stage is done, how fast, and the time left. Short stages print none."""

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
        self._show(f"note: {message}")

    def _show(self, line: str) -> None:
        print(one_line(line), file=sys.stderr, flush=True)  # noqa: T201 - for callers from Python, too

    def _line(self, elapsed: float) -> str:
        speed = f", {rate(self._tokens, elapsed)} tokens/s" if self._tokens else ""
        if not self._total:  # rows of an iterator, whose end nobody knows
            return f"{self._name}: {number(self._done)} {self._unit}{speed}"
        share = self._done / self._total
        left = f", {duration(elapsed / share - elapsed)} left" if 0 < share < 1 else ""
        if self._unit == "bytes":
            amount = f"{size(self._done)} of {size(self._total)}"
        else:
            amount = f"{number(self._done)} of {number(self._total)} {self._unit}"
        return f"{self._name}: {amount} ({share:.0%}){speed}{left}"
