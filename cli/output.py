"""What commands print: consoles, numbers for people, tables."""

import os
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_BYTE_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def stdout() -> "Console":
    """Console of the results. Markup is off: brackets in file names and texts are brackets."""
    return _console(stderr=False)


def stderr() -> "Console":
    """Console of progress and notes."""
    return _console(stderr=True)


def can_draw() -> bool:
    """Whether stdout can write more than ASCII."""
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "") in {"utf8", "utf16", "utf32"}


def terminal_width(stream: TextIO) -> int | None:
    """Columns of the terminal that a stream is; None where it is none."""
    if not stream.isatty():
        return None
    columns = 0
    with suppress(ValueError):
        columns = int(os.environ.get("COLUMNS", ""))
    if columns <= 0:
        with suppress(OSError, ValueError):
            columns = os.get_terminal_size(stream.fileno()).columns
    return max(columns or _WIDTH, _NARROWEST)


_WIDTH = 80
"""Of a terminal that does not say."""

_NARROWEST = 20


def number(value: float) -> str:
    """With thousands separators: 12,345."""
    return f"{value:,}"


def percent(share: float) -> str:
    """One decimal; what is not all does not look like all: 0.99999 gives 99.9 %."""
    shown = f"{share:.1%}"
    if shown == "100.0%" and share < 1:
        shown = "99.9%"
    if shown == "0.0%" and share > 0:
        shown = "<0.1%"
    return shown.replace("%", " %")


def size(num_bytes: float) -> str:
    """In binary units: 1.5 MiB."""
    value, unit = float(num_bytes), 0
    while value >= 1023.95 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} bytes" if unit == 0 else f"{value:.1f} {_BYTE_UNITS[unit]}"


def plural(count: int, word: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count:,} {word if count == 1 else f'{word}s'}"


def duration(seconds: float) -> str:
    """0.4 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def rate(count: float, seconds: float) -> str:
    """A speed with two digits that mean something: 1.2M/s."""
    value = count / seconds if seconds > 0 else 0.0
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.{1 if value < 10 * factor else 0}f}{letter}"
    return f"{value:.0f}"


def print_table(console: "Console", columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> None:
    """Print columns two spaces apart, without lines and without blanks at the end of a line.

    Args:
        console: where.
        columns: (heading, `<` or `>`); headings that are all empty are left out.
        rows: cells. Only the last column wraps, and only at the console's edge.

    """
    headings = [name for name, _ in columns]
    lines = [headings, *rows] if any(headings) else list(rows)
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns) - 1)]
    indent = sum(widths) + 2 * len(columns)
    for number, line in enumerate(lines):
        first, *more = textwrap.wrap(line[-1], max(20, console.width - indent)) or [""]
        cells = [f"{cell:{side}{width}}" for cell, (_, side), width in zip(line, columns, widths, strict=False)]
        style = "dim" if number == 0 and any(headings) else None
        console.print("  ".join(["", *cells, first]).rstrip(), style=style, soft_wrap=True)
        for part in more:
            console.print(" " * indent + part, soft_wrap=True)


def _console(*, stderr: bool) -> "Console":
    from rich.console import Console  # noqa: PLC0415 - rich is not for --help

    class Plain(Console):
        """Leaves a broken pipe to the program's outermost frame, as every other error."""

        def on_broken_pipe(self) -> None:
            raise  # noqa: PLE0704 - rich calls this while it handles the BrokenPipeError

    stream = sys.stderr if stderr else sys.stdout
    # A pipe has no edge to wrap at, unless somebody says so.
    width = None if stream.isatty() or os.environ.get("COLUMNS") else 100
    return Plain(file=stream, markup=False, highlight=False, emoji=False, width=width)
