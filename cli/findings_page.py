"""Findings of `lint` and of `verify --foreign`: a head, texts with the place they are about, a hint."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from packer_cli.marked import Marked
from packer_cli.output import stdout
from packer_cli.text import visible

if TYPE_CHECKING:
    from packer.audit import Example

_STYLES = {"error": "red bold", "warning": "yellow bold", "note": "cyan bold"}
_INDENT = 2
_NO_BREAK = "\N{NO-BREAK SPACE}"


class FindingsPage:
    """Writes to stdout."""

    def __init__(self, *, whole: bool) -> None:
        """`whole`: leave nothing of a text out."""
        self.out = stdout()
        self._whole = whole

    def facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Names and what there is to say of them, in two columns."""
        width = max(len(name) for name, _ in facts)
        for name, fact in facts:
            self._lines(f"  {name:{width}}  ", fact, " " * (width + 4))

    def finding(self, level: str, code: str, message: str, examples: "Sequence[Example]", hint: str | None) -> None:
        head = f"{level}[{code}]:"
        first, *more = self._wrap(f"{head} {message}", 2 * _INDENT)
        self.out.line((first[: len(head)], _STYLES[level]), first[len(head) :])
        for part in more:
            self.out.line(" " * _INDENT + part)
        for shown, is_mark in Marked(self.out.width, whole=self._whole).lines(examples, indent=2 * _INDENT):
            self.out.line((shown, "green" if is_mark else ""))
        if hint is not None:
            self.words(f"hint: {hint}", _INDENT)

    def words(self, text: str, indent: int = 0) -> None:
        """A sentence; its further lines are indented once more."""
        self._lines(" " * indent, text, " " * (indent + _INDENT))

    def _lines(self, first: str, text: str, further: str) -> None:
        for place, part in enumerate(self._wrap(text, len(further))):
            self.out.line((further if place else first) + part)

    def _wrap(self, text: str, indent: int) -> list[str]:
        """Lines of a text; what is to be copied, paths and `--set`, is cut nowhere but at spaces."""
        width = max(20, self.out.width - indent)
        joined = visible(text).replace("--set ", f"--set{_NO_BREAK}")
        lines = textwrap.wrap(joined, width, break_long_words=False, break_on_hyphens=False) or [""]
        return [line.replace(f"--set{_NO_BREAK}", "--set ") for line in lines]
