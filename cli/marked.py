"""Texts with a place in them pointed at, in one line each, wrapped: newlines show as signs, carets stand below."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from packer_cli.output import can_draw
from packer_cli.text import NEWLINES, cells, visible

if TYPE_CHECKING:
    from packer.audit import Example

_BEFORE, _AFTER = 60, 120
"""Characters shown before a mark's start, and after it; of a text without a mark both together."""

_NEAR_EDGE = 20
"""Columns before the edge where a line may end early."""

_LABEL = 26
"""Columns of labels at most; a longer one has a line of its own."""


class Marked:
    """Lays examples out for a console of some width."""

    def __init__(self, width: int, *, whole: bool) -> None:
        """`whole`: leave nothing of a text out."""
        self._width = width
        self._whole = whole
        self._drawn = can_draw()
        self._newline = NEWLINES[not self._drawn]
        self._gap = "…" if self._drawn else "..."

    def lines(self, examples: "Sequence[Example]", *, indent: int) -> Iterator[tuple[str, bool]]:
        """The lines of examples, one below the other, and whether each is one of carets."""
        widths = [len(example.label) for example in examples if len(example.label) <= _LABEL]
        column = max(widths, default=0)
        for example in examples:
            label = visible(example.label)
            if len(label) > column:
                for part in textwrap.wrap(label, max(20, self._width - indent), break_long_words=False):
                    yield " " * indent + part, False
                label = ""
            for number, (line, is_mark) in enumerate(self._example(example, self._width - indent - column - 2)):
                yield f"{'':{indent}}{'' if number else label:{column}}  {line}".rstrip(), is_mark

    def _example(self, example: "Example", width: int) -> Iterator[tuple[str, bool]]:
        shown, marked = self._signs(example)
        rows = _rows(shown, marked, max(width, 20))
        last = max((number for number, (_, below) in enumerate(rows) if below), default=None)
        for number, (line, below) in enumerate(rows):
            yield line, False
            if not below:
                continue
            note = example.note if number == last else ""
            if note and len(below) + 1 + len(note) > width:
                yield below, True
                yield note.rjust(min(len(below), width)) if len(note) <= len(below) else note, True
            else:
                yield f"{below} {note}".rstrip(), True

    def _signs(self, example: "Example") -> tuple[list[str], list[bool]]:
        """What is shown of each character of the text, and whether it is marked; one more where the end is."""
        text = example.text
        start, stop = example.mark or (0, 0)
        first, last = 0, len(text)
        if not self._whole and len(text) > _BEFORE + _AFTER:
            first = max(0, min(start, len(text)) - _BEFORE) if example.mark else 0
            last = min(len(text), first + _BEFORE + _AFTER)
        stop = max(stop, start + 1) if example.mark else stop
        shown = [self._sign(character) for character in text[first:last]]
        marked = [start <= place < stop for place in range(first, last)]
        if first:
            shown, marked = [self._gap, *shown], [False, *marked]
        if last < len(text):
            shown, marked = [*shown, self._gap], [*marked, False]
        elif example.mark and start >= len(text):
            shown, marked = [*shown, " "], [*marked, True]
        return shown, marked

    def _sign(self, character: str) -> str:
        if character == "\n":
            return self._newline
        if character == "\t":
            return "\\t"
        shown = visible(character)
        return shown if self._drawn or shown.isascii() else ascii(shown)[1:-1]


def _rows(shown: Sequence[str], marked: Sequence[bool], width: int) -> list[tuple[str, str]]:
    """Lines of at most `width` columns, each with its carets; no carets where nothing of it is marked.

    A line ends after a space or a newline where one is near its edge.
    """
    rows: list[tuple[str, str]] = []
    start = 0
    while start < len(shown) or not rows:
        end, used = start, 0
        while end < len(shown) and (used := used + sum(map(cells, shown[end]))) <= width:
            end += 1
        if end < len(shown):
            near = range(end, max(start, end - _NEAR_EDGE), -1)
            end = next((place for place in near if shown[place - 1].isspace() or shown[place - 1] in NEWLINES), end)
        end = max(end, start + 1)
        carets = "".join(
            ("^" if is_marked else " ") * sum(map(cells, sign))
            for sign, is_marked in zip(shown[start:end], marked[start:end], strict=True)
        )
        rows.append(("".join(shown[start:end]), carets.rstrip()))
        start = end
    return rows
