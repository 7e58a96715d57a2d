"""The one place that writes to stdout and stderr: lines, tables, JSON.

Much of what is shown was written by strangers: names in a manifest, files in a folder, messages of libraries. So
whatever would steer a terminal is shown as an escape here, and no caller has to think of it.
"""

import io
import json
import os
import re
import shlex
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from packer.display import HIDDEN, one_line, visible

if TYPE_CHECKING:
    from rich.console import Console

_NO_BREAK = "\N{NO-BREAK SPACE}"
_STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
_BAR_MOVES = re.compile(r"\r|(?:\x1b\[A)+\Z")
"""Cursor movements of libraries' progress bars: before a line, or alone."""

_DOC_ID = re.compile(r'("doc_id": )(-?\d+)')
"""In JSON that was written by Python; in a text there, a quote has a backslash before it."""

_NARROWEST, _WIDTH, _WIDTH_OF_PIPES = 20, 80, 100
"""Columns: the fewest text is wrapped to, those of a terminal that does not say, and those of a page in a pipe."""


def lines_of(text: str, newline: str) -> Iterator[str]:
    """Lines of a text, each newline shown where it stands."""
    *complete, last = text.split("\n")
    for line in complete:
        yield visible(line) + newline
    if last or not complete:
        yield visible(last)


def drawable(text: str) -> str:
    """Visible text; what stdout cannot write is escaped too, so that its width is known."""
    shown = visible(text)
    return shown if can_draw() else shown.encode("ascii", "backslashreplace").decode()


def cells(character: str) -> int:
    """Columns a character takes on a terminal."""
    if character == "\t":
        return 4
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrap(line: str, width: int | None) -> Iterator[str]:
    """Cut a line into parts of at most `width` cells, at a space where one is near."""
    if width is None:
        yield line
        return
    line = line.expandtabs(4)
    while line:
        used = end = 0
        while end < len(line) and (used := used + cells(line[end])) <= width:
            end += 1
        if end < len(line):
            space = line.rfind(" ", 0, end)
            end = space + 1 if space >= end // 2 else max(end, 1)
        yield line[:end]
        line = line[end:]


def wrap_words(text: str, width: int | None, *, first: int = 0, further: int = 0) -> list[str]:
    """Parts of a text of words, shown in one line: each is at most `width` characters, cut at spaces alone.

    Args:
        text: the words; a path among them stays whole, and so does `--set KEY`.
        width: None leaves the line whole; so is a word that is longer.
        first: characters that stand before the first part.
        further: characters that stand before the others.

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
    lines = wrapper.wrap(text.replace("--set ", f"--set{_NO_BREAK}")) or [" " * first]
    return [
        line[further if place else first :].replace(f"--set{_NO_BREAK}", "--set ") for place, line in enumerate(lines)
    ]


class Output:
    """Lines for people, on stdout or stderr. Text is shown, whatever it holds; only styles become escape sequences."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream.stream if isinstance(stream, _Guarded) else stream
        """Where it goes, without a guard: what is written here steers the terminal."""

        self.is_terminal = stream.isatty()
        forced, refused = os.environ.get("FORCE_COLOR"), os.environ.get("NO_COLOR")
        self.has_cursor = self.is_terminal and os.environ.get("TERM") not in {"dumb", "unknown"}
        self._styled = bool(forced or self.has_cursor) and not refused

    @property
    def edge(self) -> int | None:
        """Columns of a terminal; None where lines go elsewhere."""
        if not self.is_terminal:
            return None
        columns = _columns_of_environment()
        if columns is None:
            with suppress(OSError, ValueError):
                columns = os.get_terminal_size(self.stream.fileno()).columns
        return max(columns or _WIDTH, _NARROWEST)

    @property
    def width(self) -> int:
        """Columns of a page; a pipe has no edge to wrap at, unless somebody says so."""
        return self.edge or _columns_of_environment() or _WIDTH_OF_PIPES

    def line(self, *parts: str | tuple[str, str]) -> None:
        """One line, of texts and of (text, style): a newline within a text is shown, too."""
        pairs = ((part, "") if isinstance(part, str) else part for part in parts)
        self._write("".join(self._shown(text, style) for text, style in pairs) + "\n")

    def words(
        self,
        text: str,
        *,
        label: tuple[str, str] = ("", ""),
        indent: int = 0,
        hanging: int = 0,
        style: str = "",
        width: int | None = None,
    ) -> None:
        """A sentence, wrapped at spaces.

        Args:
            text: the sentence.
            label: a text and its style, before the first line.
            indent: columns before every line.
            hanging: columns more before its further lines.
            style: of the text.
            width: columns of a line; by default those of a page.

        """
        first = indent + len(label[0])
        parts = wrap_words(text, width or self.width, first=first, further=indent + hanging)
        self.line(" " * indent, label, (parts[0], style))
        for part in parts[1:]:
            self.line(" " * (indent + hanging), (part, style))

    def sentence(
        self, text: str, *, label: tuple[str, str] = ("", ""), indent: int = 0, hanging: int = 0, style: str = ""
    ) -> None:
        """Wrap a sentence on a terminal; a pipe gets it in one line, so that it can be searched for."""
        if self.edge is not None:
            self.words(text, label=label, indent=indent, hanging=hanging, style=style, width=self.edge)
        else:
            self.line(" " * indent, label, (text, style))

    def json(self, value: object) -> None:
        """JSON, in which what would steer a terminal is escaped as JSON has it, and a doc_id is text: of its 64 bits, a
        reader that takes numbers for doubles, such as JavaScript, keeps 53.
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


class _Recorder(Output):
    """Keeps lines with their styles, as those of a page that goes to a pipe."""

    def __init__(self) -> None:
        self.lines: list[list[tuple[str, str]]] = []

    @property
    def edge(self) -> None:
        return None

    @property
    def width(self) -> int:
        return _WIDTH_OF_PIPES

    def line(self, *parts: str | tuple[str, str]) -> None:
        self.lines.append([(part, "") if isinstance(part, str) else part for part in parts])


_recorders: list[_Recorder] = []


@contextmanager
def recorded() -> Iterator[list[list[tuple[str, str]]]]:
    """Collect what is written to stdout in the body: texts with their styles, line by line."""
    _recorders.append(_Recorder())
    try:
        yield _recorders[-1].lines
    finally:
        _recorders.pop()


class _Guarded:
    """A stream for what others print, warnings, tracebacks and libraries: what would steer a terminal is shown."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        found = _BAR_MOVES.match(text)
        moves = "" if found is None else found[0]
        self.stream.write(moves + visible(text[len(moves) :]))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Collected:
    """A terminal whose text waits for a pager."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.text = io.StringIO()
        self.write = self.text.write

    def flush(self) -> None:
        """Do nothing: all of it is shown at the end."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def paged() -> Iterator[None]:
    """What is printed in the body goes through a pager where it is a person's terminal and longer than that.

    The pager is what PAGER names, else less.
    """
    if not (stdout().has_cursor and sys.stdin is not None and sys.stdin.isatty()):
        yield
        return
    # Below a guard: what others print is shown before it is collected.
    before, ended = sys.stdout, True
    terminal = before.stream if isinstance(before, _Guarded) else before
    collected = _Collected(terminal)
    sys.stdout = cast("TextIO", _Guarded(cast("TextIO", collected)))
    try:
        yield
    except click.exceptions.Exit:
        raise
    except BaseException:
        ended = False
        raise
    finally:
        sys.stdout = before
        text = collected.text.getvalue()
        if ended and text.count("\n") >= shutil.get_terminal_size().lines and _has_pager():
            click.echo_via_pager(text)
        else:
            terminal.write(text)
            terminal.flush()


def _has_pager() -> bool:
    command = shlex.split(os.environ.get("PAGER", "")) or ["less"]
    return shutil.which(command[0]) is not None


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Everything printed in the body shows what would steer a terminal; :class:`Output` alone writes styles."""
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
    """Where results go."""
    return _recorders[-1] if _recorders else Output(sys.stdout)


def stderr() -> Output:
    """Where errors, notes and progress go."""
    return Output(sys.stderr)


def bars_console() -> "Console":
    """What progress bars are drawn on: stderr, past its guard, since they hold packer's own words alone."""
    from rich.console import Console  # noqa: PLC0415 - rich is for bars alone

    return Console(file=stderr().stream)


@dataclass(frozen=True, slots=True)
class Signs:
    """What stands for a newline, for text that is left out, and so on."""

    newline: str
    gap: str
    arrow: str
    bar: str
    dot: str
    rule: str
    cross: str


_DRAWN = Signs(newline="↵", gap="…", arrow="→", bar="▌", dot=" · ", rule="── ", cross="✗")
_ASCII = Signs(newline="\\n", gap="...", arrow="->", bar="|", dot=", ", rule="-- ", cross="x")
NEWLINES = (_DRAWN.newline, _ASCII.newline)


MARKS = {
    "ok": ("✓", "+", "green"),
    "warning": ("!", "!", "yellow"),
    "failure": ("✗", "x", "red"),
    "skipped": ("–", "-", "dim"),
}
"""Of each level of a check: drawn, in ASCII, and its style."""


def can_draw() -> bool:
    """Whether stdout can write more than ASCII."""
    encoding = "utf-8" if _recorders else getattr(sys.stdout, "encoding", None)
    return (encoding or "ascii").lower().replace("-", "") in {"utf8", "utf16", "utf32"}


def signs() -> Signs:
    """The signs that stdout can write."""
    return _DRAWN if can_draw() else _ASCII


def _columns_of_environment() -> int | None:
    columns = os.environ.get("COLUMNS", "")
    return int(columns) or None if columns.isascii() and columns.isdigit() else None


def print_table(out: Output, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> None:
    """Print columns two spaces apart, without lines and without blanks at the end of a line.

    Args:
        out: where.
        columns: (heading, `<` or `>`); headings that are all empty are left out.
        rows: cells. Only the last column wraps, and only at the edge.

    """
    headings = [name for name, _ in columns]
    lines = [[one_line(cell) for cell in line] for line in ([headings, *rows] if any(headings) else rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns) - 1)]
    indent = sum(widths) + 2 * len(columns)
    for number, line in enumerate(lines):
        first, *more = wrap_words(line[-1], max(20, out.width - indent))
        cells = [f"{cell:{side}{width}}" for cell, (_, side), width in zip(line, columns, widths, strict=False)]
        style = "dim" if number == 0 and any(headings) else ""
        out.line(("  ".join(["", *cells, first]).rstrip(), style))
        for part in more:
            out.line(" " * indent + part)
