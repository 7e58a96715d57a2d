"""What a build reports: while it runs, and of where its time went."""

import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """Listens to a build; the command line draws it, `Silent` does nothing."""

    def stage(self, name: str, total: int, unit: str) -> None:
        """A stage begins that will do `total` units of work (`bytes`, `rows`, `blocks`)."""
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


class StatusLine:
    """Progress on stderr for calls from Python: a line that is written over in a terminal or a notebook.

    Elsewhere a line every few seconds. Notes stay. It ends with the context, and takes its line away.
    """

    def __init__(self) -> None:
        self._overwrites = sys.stderr.isatty() or "ipykernel" in sys.modules
        self._every_s = 0.2 if self._overwrites else 5.0
        self._name, self._total, self._unit = "", 0, ""
        self._done = self._tokens = self._width = 0
        self._began = self._told = time.monotonic()

    def stage(self, name: str, total: int, unit: str) -> None:
        self._name, self._total, self._unit = name, total, unit
        self._done = self._tokens = 0
        self._began = time.monotonic()

    def advance(self, amount: int, tokens: int = 0) -> None:
        self._done += amount
        self._tokens += tokens
        now = time.monotonic()
        if now - self._told >= self._every_s:
            self._told = now
            self._show(self._line(now - self._began))

    def note(self, message: str) -> None:
        self._show("")
        # What stands in files must not steer a terminal.
        print("note:", "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message), file=sys.stderr)  # noqa: T201 - this is what listens

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._overwrites:
            self._show("")

    def _line(self, elapsed: float) -> str:
        in_bytes = self._unit == "bytes"
        done, total = (self._done / 2**20, self._total / 2**20) if in_bytes else (self._done, self._total)
        of_total = f" of {total:,.0f}" if total else ""
        speed = f", {self._tokens / elapsed:,.0f} tokens/s" if self._tokens and elapsed > 0 else ""
        return f"{self._name}: {done:,.0f}{of_total} {'MiB' if in_bytes else self._unit}{speed}"

    def _show(self, line: str) -> None:
        if self._overwrites:
            sys.stderr.write(f"\r{line:<{self._width}}" + ("" if line else "\r"))
            self._width = len(line)
        elif line:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Seconds of a build; parts that had nothing to do are not there."""

    parts: Mapping[str, float]
    """One after another: ``plan``, ``documents``, ``blocks``, ``commit``. Seconds that passed."""

    stages: Mapping[str, float]
    """What ``documents`` consists of, added up over processes: ``load``, ``read``, ``render``, ``tokenize``,
    ``supervise``, ``write``."""

    processes: int
    """Those that made documents."""


NO_TIME = Profile(parts={}, stages={}, processes=0)
"""Of what was no build."""


class Clock:
    """Adds up the seconds that parts of a program take."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Seconds inside belong to a part."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] += time.perf_counter() - began

    def each(self, part: str, items: Iterable[T]) -> Iterator[T]:
        """The items; the seconds until each comes belong to a part."""
        iterator = iter(items)
        while True:
            with self.of(part):
                item = next(iterator, None)
            if item is None:
                return
            yield item

    def add(self, seconds: Mapping[str, float]) -> None:
        """Seconds that another clock counted."""
        for part, more in seconds.items():
            self._seconds[part] += more

    def take(self) -> dict[str, float]:
        """What was counted since the last time."""
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds
