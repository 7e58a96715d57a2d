"""Format text and numbers for people."""

import re
import shlex
from collections.abc import Iterator, Sequence

HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
"""Characters that control a terminal, change the direction of text or cannot be written; not newline and tab."""

_BYTE_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def visible(text: str) -> str:
    """Escape everything that :data:`HIDDEN` matches: untrusted text must not control a terminal.

    Zero-width joiners are kept: emoji and several scripts need them.
    """
    return HIDDEN.sub(lambda match: ascii(match[0])[1:-1], text)


def one_line(text: str) -> str:
    """Like :func:`visible`, and escape newlines too, so that a name or a message cannot add lines to a report."""
    return visible(text).replace("\n", "\\n")


def in_shell(path: object) -> str:
    """Quote a path or a name for a command that somebody may copy: 'my cache'."""
    return shlex.quote(str(path))


def number(value: float) -> str:
    """Format with thousands separators: 12,345."""
    return f"{value:,}"


def percent(share: float) -> str:
    """Format with one decimal, rounding so that only 1 shows as 100 %: 0.99999 gives 99.9 %."""
    shown = f"{share:.1%}"
    if shown == "100.0%" and share < 1:
        shown = "99.9%"
    if shown == "0.0%" and share > 0:
        shown = "<0.1%"
    return shown.replace("%", " %")


def size(num_bytes: float) -> str:
    """Format in binary units: 1.5 MiB."""
    value, unit = float(num_bytes), 0
    while value >= 1023.95 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} bytes" if unit == 0 else f"{value:.1f} {_BYTE_UNITS[unit]}"


def plural(count: int, word: str) -> str:
    """Format a count with its noun: `1 row`, `2 rows`."""
    return f"{count:,} {word if count == 1 else f'{word}s'}"


def duration(seconds: float) -> str:
    """Format a duration: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def rate(count: float, seconds: float) -> str:
    """Format a speed with two significant digits: 1.2M/s."""
    value = count / seconds if seconds > 0 else 0.0
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.{1 if value < 10 * factor else 0}f}{letter}"
    return f"{value:.0f}"


def aligned(sides: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the lines of a table: columns two spaces apart, `<` or `>` each, no trailing blanks."""
    widths = [max(len(one_line(row[column])) for row in rows) for column in range(len(sides))]
    for row in rows:
        cells = (f"{one_line(cell):{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        yield "  ".join(["", *cells]).rstrip()


def repair_hint(cache: object) -> str:
    """Return the hint for a damaged file of a cache."""
    return f"what built it makes it again with --repair: packer build … -o {in_shell(cache)} --repair"
