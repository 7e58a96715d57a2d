"""Progress: how far work is, and notes for people, on stderr or to any listener."""

import sys
import time
from typing import Protocol

from packer.display import duration, number, one_line, rate, size


class Progress(Protocol):
    """Listens to a build, or to another long work."""

    def stage(self, name: str, total: int, unit: str) -> None:
        """A stage begins that will do `total` units of work (`bytes`, `rows`, `blocks`); 0 if that is not known."""
        ...

    def advance(self, amount: int, tokens: int = 0) -> None:
        """`amount` units are done, which made `tokens` tokens."""
        ...

    def note(self, message: str) -> None:
        """Something a person may want to know."""
        ...


class Silent:
    """No progress."""

    def stage(self, name: str, total: int, unit: str) -> None: ...

    def advance(self, amount: int, tokens: int = 0) -> None: ...

    def note(self, message: str) -> None: ...


class Lines:
    """How much of a stage is done, at what speed, and how long the rest takes: lines on stderr.

    There is none of a short stage.
    """

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
