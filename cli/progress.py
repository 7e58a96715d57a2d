"""Progress on stderr: one line that is written over on a terminal, elsewhere a line every few seconds."""

import time
from types import TracebackType
from typing import Self

from packer_cli.output import duration, number, rate, size, stderr

_EVERY_S, _EVERY_S_ON_TERMINAL = 5.0, 0.1


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
    """How much of a stage is done, at what speed, and how long the rest takes. A pipe gets no line of a short stage."""

    def __init__(self) -> None:
        self._is_terminal = stderr().has_cursor
        self._every = _EVERY_S_ON_TERMINAL if self._is_terminal else _EVERY_S
        self.stage("", 0, "")

    def __enter__(self) -> Self:
        if self._is_terminal:  # loading a tokenizer or asking the Hub takes a while, and has no measure
            stderr().overwrite("starting")
        return self

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
            line = self._line(now - self._began)
            stderr().overwrite(line) if self._is_terminal else stderr().line(line)

    def note(self, message: str) -> None:
        self._clear()
        stderr().line(f"note: {message}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def _clear(self) -> None:
        if self._is_terminal:
            stderr().overwrite("")

    def _line(self, elapsed: float) -> str:
        share = self._done / self._total if self._total else 1.0
        speed = f", {rate(self._tokens, elapsed)} tokens/s" if self._tokens else ""
        left = f", {duration(elapsed / share - elapsed)} left" if 0 < share < 1 else ""
        if self._unit == "bytes":
            amount = f"{size(self._done)} of {size(self._total)}"
        else:
            amount = f"{number(self._done)} of {number(self._total)} {self._unit}"
        return f"{self._name}: {amount} ({share:.0%}){speed}{left}"


def listener(*, quiet: bool) -> Quiet:
    """The progress display for stderr."""
    return Quiet() if quiet else Lines()
