"""The only module that writes to stdout and stderr: lines, tables, JSON.

Much of the output is untrusted: names in a manifest, files in a folder, messages of libraries. Everything that would
control a terminal is escaped here, so that callers need not think about it.
"""

import io
import json
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from packer.display import HIDDEN, masked, one_line, visible

if TYPE_CHECKING:
    from rich.console import Console

_NO_BREAK = "\N{NO-BREAK SPACE}"
_OPTION, _BOUND = (re.compile(rf"(--[a-z][a-z-]*){space}(?=\S)") for space in (" ", _NO_BREAK))
_STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
_BAR_MOVES = re.compile(r"\r|(?:\x1b\[A)+\Z")
"""Cursor movements of libraries' progress bars, before a line or alone."""

_DOC_ID = re.compile(r'("(?:doc_id|document)": )(-?\d+)')
"""Matches doc_ids in JSON written by Python; lines of rejected.jsonl call them `document`. Within strings, quotes are
escaped and do not match."""

_LAST_COLUMN = re.compile(r" {2}.{,40}\S {2,}(?=\S)")
"""Matches what is before the last cell of a table line, if that cell begins in the left half of a terminal."""

_NARROWEST, _WIDTH = 20, 80
"""The least width to wrap text to, in cells."""


NEWLINE, GAP, ARROW, BAR, DOT, RULE, CROSS = "↵", "…", "→", "▌", " · ", "── ", "✗"
"""Signs for newlines, for omitted text, and so on; a locale without them shows escapes."""


def lines_of(text: str) -> Iterator[str]:
    """Split a text into lines, each with a visible sign for its newline."""
    *complete, last = text.split("\n")
    for line in complete:
        yield visible(line) + NEWLINE
    if last or not complete:
        yield visible(last)


def cells(character: str) -> int:
    """Return the width of a character on a terminal."""
    if character == "\t":
        return 4
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrap(line: str, width: int | None) -> Iterator[str]:
    """Cut a line into parts of at most `width` cells, after a nearby space or newline sign if there is one."""
    if width is None:
        yield line
        return
    line = line.expandtabs(4)
    while line:
        used = end = 0
        while end < len(line) and (used := used + cells(line[end])) <= width:
            end += 1
        if end < len(line):
            space = max(line.rfind(sign, 0, end) for sign in (" ", NEWLINE))
            end = space + 1 if space >= end // 2 else max(end, 1)
        yield line[:end]
        line = line[end:]


def wrap_words(text: str, width: int | None, *, first: int = 0, further: int = 0) -> list[str]:
    """Wrap text at spaces to parts of at most `width` characters; None does not wrap.

    `first` characters are before the first part, `further` before the others. Longer words, paths, and an option
    with the word after it, are kept whole.
    """
    text = one_line(text)
    if width is None:
        return [text]
    wrapper = textwrap.TextWrapper(
        max(width, first + _NARROWEST, further + _NARROWEST),
        initial_indent=" " * first,
        subsequent_indent=" " * further,
        expand_tabs=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
    lines = wrapper.wrap(_OPTION.sub(rf"\1{_NO_BREAK}", text)) or [" " * first]
    return [_BOUND.sub(r"\1 ", line[further if place else first :]) for place, line in enumerate(lines)]


_MARKS = {
    "ok": ("✓", "green"),
    "note": ("·", "cyan"),
    "warning": ("!", "yellow"),
    "error": (CROSS, "red"),
    "failure": (CROSS, "red"),
    "skipped": ("–", "dim"),
}
"""The mark of each level of a check, and its style."""


class Output:
    """Writes lines to stdout or stderr. Text is escaped; only styles become escape sequences."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream.stream if isinstance(stream, _Guarded) else stream
        """The unguarded stream: escape sequences written to it reach the terminal."""

        self.is_terminal = stream.isatty()
        forced, refused = os.environ.get("FORCE_COLOR"), os.environ.get("NO_COLOR")
        self.has_cursor = self.is_terminal and os.environ.get("TERM") not in {"dumb", "unknown"}
        self._styled = bool(forced or self.has_cursor) and not refused

    @property
    def edge(self) -> int | None:
        """Width of the terminal, or None if the output goes elsewhere."""
        if not self.is_terminal:
            return None
        columns = shutil.get_terminal_size((0, 0)).columns  # which knows stdout alone
        with suppress(OSError, ValueError):
            columns = columns or os.get_terminal_size(self.stream.fileno()).columns
        return max(columns or _WIDTH, _NARROWEST)

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print one line of texts and (text, style) pairs; newlines in a text are escaped."""
        pairs = ((part, "") if isinstance(part, str) else part for part in parts)
        self._write("".join(self._shown(text, style) for text, style in pairs) + "\n")

    def words(
        self, text: str, *, label: tuple[str, str] = ("", ""), indent: int = 0, hanging: int = 0, style: str = ""
    ) -> None:
        """Print a sentence with its style, wrapped at spaces on a terminal; in a pipe it is one line, to search in.

        `label` is a text and its style, put before the first line. `indent` is the number of columns before every line,
        `hanging` of further ones before all lines but the first.
        """
        first = indent + len(label[0])
        parts = wrap_words(text, self.edge, first=first, further=indent + hanging)
        self.line(" " * indent, label, (parts[0], style))
        for part in parts[1:]:
            self.line(" " * (indent + hanging), (part, style))

    def lines(self, lines: Iterable[str]) -> None:
        """Print a report of the library: warnings in color, and on a terminal wrapped with matching indentation."""
        for line in lines:
            if line.startswith("warning: "):
                self.words(line.removeprefix("warning: "), label=("warning: ", "bold yellow"))
            elif line.startswith("  "):
                last = _LAST_COLUMN.match(line)
                self.words(line[2:], indent=2, hanging=2 if last is None else last.end() - 2)
            elif line.startswith("next: "):  # a command to copy, which a wrapped line would cut
                self.line(line)
            else:
                self.words(line)

    def table(self, rows: Sequence[Sequence[str]], *columns: str, heading: str = "") -> None:
        """Print cells two spaces apart, without rules or trailing blanks; a last one that is `<` wraps at the edge.

        A column is its name, if it has one, with `<` or `>`; by default all are `<`. A blank line precedes a `heading`.
        A table without rows is not printed.
        """
        if not rows:
            return
        columns = columns or ("<",) * len(rows[0])
        names = [column[:-1] for column in columns]
        lines = [[one_line(cell) for cell in line] for line in ([names, *rows] if any(names) else rows)]
        if heading:
            self.line()
            self.line((heading, "bold"))
        *widths, last = (max(map(len, column)) for column in zip(*lines, strict=True))
        indent = sum(widths) + 2 * len(columns)
        for number, line in enumerate(lines):
            first, *more = wrap_words(line[-1], self.edge and max(_NARROWEST, self.edge - indent))
            first = f"{first:>{last}}" if columns[-1].endswith(">") else first
            cells = [f"{cell:{column[-1]}{width}}" for cell, column, width in zip(line, columns, widths, strict=False)]
            style = "dim" if number == 0 and any(names) else ""
            self.line(("  ".join(["", *cells, first]).rstrip(), style))
            for part in more:
                self.line(" " * indent + part)

    def checks(self, checks: Sequence[tuple[str, str, str]]) -> None:
        """Print results of checks, each with the mark of its level; given are level, name and message."""
        width = max((len(name) for _, name, _ in checks), default=0)
        for level, name, message in checks:
            mark, style = _MARKS[level]
            label = f"{mark} {name:{width}}  "
            self.words(message, label=(label, style), indent=2, hanging=len(label))

    def json(self, value: object) -> None:
        """Print JSON, escaping what would control a terminal.

        A doc_id is written as a string: readers that parse numbers as doubles, such as JavaScript, keep only 53 of its
        64 bits.
        """
        text = _DOC_ID.sub(r'\1"\2"', json.dumps(value, ensure_ascii=False, indent=2))
        self._write(HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")

    def _shown(self, text: str, style: str) -> str:
        text = one_line(text)
        if not text or not style or not self._styled:
            return text
        return f"\x1b[{';'.join(str(code) for name, code in _STYLES.items() if name in style.split())}m{text}\x1b[0m"

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


class _Messages(Output):
    def _write(self, text: str) -> None:
        super()._write(masked(text))


class _Guarded:
    """A stream for the output of others, such as warnings, tracebacks and libraries; escapes what would control a
    terminal, and masks credentials of addresses.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        found = _BAR_MOVES.match(text)
        moves = "" if found is None else found[0]
        self.stream.write(moves + visible(masked(text[len(moves) :])))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Escape everything printed in the body that would control a terminal; only :class:`Output` can write styles."""
    before = sys.stdout, sys.stderr
    for stream in before:
        # A terminal or a locale that cannot write a character shows an escape; it does not end the program.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = (cast("TextIO", _Guarded(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def stdout() -> Output:
    """Return the output for results."""
    return Output(sys.stdout)


def stderr() -> Output:
    """Return the output for errors, notes and progress, in which credentials of addresses are masked."""
    return _Messages(sys.stderr)


def bars_console() -> "Console":
    """Return the console for progress bars: unguarded stderr, as they show only packer's own texts."""
    from rich.console import Console  # noqa: PLC0415 - rich is only for bars

    return Console(file=stderr().stream)
