"""Text for a terminal: what would steer it escaped, cut to width."""

import re
import unicodedata
from collections.abc import Iterator

NEWLINES = ("↵", "\\n")
"""Stands for a newline; the second where only ASCII can be written."""

HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
"""What steers a terminal, turns the direction of text or cannot be written; but for the newline and the tab."""


def lines_of(text: str, newline: str) -> Iterator[str]:
    """Lines of a text, each newline shown where it stands."""
    *complete, last = text.split("\n")
    for line in complete:
        yield visible(line) + newline
    if last or not complete:
        yield visible(last)


def visible(text: str) -> str:
    """Text with all that :data:`HIDDEN` matches as escapes: text from anywhere must not steer a terminal.

    Zero-width joiners stay: emoji and several scripts are spelled with them.
    """
    return HIDDEN.sub(lambda match: ascii(match[0])[1:-1], text)


def one_line(text: str) -> str:
    """The same, newlines as escapes, too: whoever wrote a name or a message does not write a line of a report."""
    return visible(text).replace("\n", "\\n")


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


def wrap_words(text: str, width: int | None, *, begun: int = 0) -> Iterator[str]:
    """Cut a text of words, shown in one line, into parts of at most `width` characters, at spaces alone.

    Args:
        text: the words; a path among them stays whole.
        width: None leaves the line whole; so is a word that is longer.
        begun: characters that stand before the first part.

    """
    text = one_line(text)
    if width is None:
        yield text
        return
    import textwrap  # noqa: PLC0415 - beside its only use

    wrapper = textwrap.TextWrapper(
        width, initial_indent=" " * begun, expand_tabs=False, break_long_words=False, break_on_hyphens=False
    )
    first, *more = wrapper.wrap(text) or [""]
    yield from [first[begun:], *more]
