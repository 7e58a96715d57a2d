"""Findings of `lint` and of `verify --foreign`: a head, texts with carets below the place they are about, a hint.

A text stands in one line, wrapped where it is too long, with newlines as signs.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from packer.display import visible
from packer_cli.output import NEWLINES, cells, drawable, print_table, signs, stdout, wrap_words

if TYPE_CHECKING:
    from packer.audit.check.check_report import RowPair
    from packer.audit.findings import CodedFinding, Example, Findings

_STYLES = {"error": "red bold", "warning": "yellow bold", "note": "cyan bold"}
_INDENT = 2

_BEFORE, _AFTER = 60, 120
"""Characters shown before a mark's start, and after it; of a text without a mark both together."""

_NEAR_EDGE = 20
"""Columns before the edge where a line may end early."""

_LABEL = 26
"""Columns of labels at most; a longer one has a line of its own."""


class FindingsPage:
    """Writes to stdout."""

    def __init__(self, *, whole: bool) -> None:
        """`whole`: leave nothing of a text out."""
        self.out = stdout()
        self._whole = whole
        self._signs = signs()

    def facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Names and what there is to say of them, in two columns."""
        print_table(self.out, [("", "<"), ("", "<")], facts)

    def findings(self, findings: "Iterable[CodedFinding]", *, follow: bool) -> None:
        """Findings, a blank line between them, and before the first where they `follow` something."""
        for place, finding in enumerate(findings):
            if place or follow:
                self.out.line()
            head = f"{finding.level}[{finding.code}]: "
            self.out.words(finding.message, label=(head, _STYLES[finding.level]), hanging=_INDENT)
            self._examples(finding.examples, indent=2 * _INDENT)
            if finding.hint is not None:
                self.words(f"hint: {finding.hint}", _INDENT)

    def words(self, text: str, indent: int = 0) -> None:
        """A sentence; its further lines are indented once more."""
        self.out.words(text, indent=indent, hanging=_INDENT)

    def pair(self, pair: "RowPair") -> None:
        """Two rows that are alike, one below the other, marked where they differ, if that is a small part."""
        from packer.audit.findings import Example  # noqa: PLC0415 - not for --help
        from packer.render.common_prefix import common_length  # noqa: PLC0415 - as above

        rows, texts = (pair.first, pair.second), (pair.first.text, pair.second.text)
        start = common_length(*texts)
        end = common_length(*(text[start:][::-1] for text in texts))
        is_small = 2 * (start + end) >= max(map(len, texts)) and texts[0] != texts[1]
        alike = ("", "" if pair.similarity == 1 else f", {pair.similarity:.2f} alike")
        examples = [
            Example(
                label=f"{row.split} {row.input}:{row.row}{more}".lstrip(),
                text=row.text,
                mark=(start, len(row.text) - end) if is_small else None,
            )
            for row, more in zip(rows, alike, strict=True)
        ]
        self._examples(examples, indent=_INDENT)

    def _examples(self, examples: "Sequence[Example]", *, indent: int) -> None:
        for line, is_mark in self.example_lines(examples, indent=indent):
            self.out.line((line, "green" if is_mark else ""))

    def example_lines(self, examples: "Sequence[Example]", *, indent: int) -> Iterator[tuple[str, bool]]:
        """The lines of examples, one below the other, and whether each is one of carets."""
        column = max((len(example.label) for example in examples if len(example.label) <= _LABEL), default=0)
        for example in examples:
            label = visible(example.label)
            if len(label) > column:
                for part in wrap_words(label, self.out.width - indent):
                    yield " " * indent + part, False
                label = ""
            for number, (line, is_mark) in enumerate(self._example(example, self.out.width - indent - column - 2)):
                yield f"{'':{indent}}{'' if number else label:{column}}  {line}".rstrip(), is_mark

    def _example(self, example: "Example", width: int) -> Iterator[tuple[str, bool]]:
        rows = _rows(*self._characters(example), max(width, 20))
        last = max((number for number, (_, carets) in enumerate(rows) if carets), default=None)
        for number, (line, carets) in enumerate(rows):
            yield line, False
            note = example.note if number == last else ""
            if note and len(carets) + 1 + len(note) > width:
                yield carets, True
                yield note.rjust(min(len(carets), width)) if len(note) <= len(carets) else note, True
            elif carets:
                yield f"{carets} {note}".rstrip(), True

    def _characters(self, example: "Example") -> tuple[list[str], list[bool]]:
        """The characters as they are shown, and whether each is marked; one more where the mark is the end."""
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
            shown, marked = [self._signs.gap, *shown], [False, *marked]
        if last < len(text):
            shown, marked = [*shown, self._signs.gap], [*marked, False]
        elif example.mark and start >= len(text):
            shown, marked = [*shown, " "], [*marked, True]
        return shown, marked

    def _sign(self, character: str) -> str:
        if character == "\n":
            return self._signs.newline
        return "\\t" if character == "\t" else drawable(character)


def failed(report: "Findings", what: object) -> str | None:
    """The message of a report with errors: `template.jinja: 1 error, 2 warnings, 3 notes (no_terminator)`."""
    codes = ", ".join(finding.code for finding in report.findings if finding.level == "error")
    return None if report.ok else f"{what}: {report.counted} ({codes})"


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
