"""Pages of text: views of documents with trained runs marked (`inspect`, `preview`), and findings with examples.

A document is written in two columns. The text is on the right, unchanged except for escapes. The gutter on its left
has a bar where the text is trained, and the message number where a run begins. So the page reads the same without
color and in a pipe.

A finding has a heading, example texts with signs around the marked place, and a hint. Examples are single lines,
wrapped if too long, with newlines as signs.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from packer.display import percent, plural, visible
from packer_cli.output import BAR, DOT, GAP, NEWLINE, RULE, cells, lines_of, stdout, wrap, wrap_words
from packer_cli.reply import fields_of

if TYPE_CHECKING:
    from packer.audit import CodedFinding, Example, Findings
    from packer.audit.check import CheckReport
    from packer.audit.foreign import ForeignReport
    from packer.audit.token_texts import Run
    from packer.audit.view import BlockView, DocumentView, RowView

_LISTED = 12
"""The most messages of which each is listed by its number."""


class ViewPage:
    """Writes views to stdout."""

    def __init__(self, *, with_ids: bool = False) -> None:
        self._out = stdout()
        self._with_ids = with_ids

    def block(self, view: "BlockView") -> None:
        share = percent(view.num_trained / view.length if view.length else 0.0)
        self.heading(
            [
                f"block {view.index:,} of {view.num_blocks:,} ({view.split})",
                plural(len(view.documents), "document"),
                f"{view.length:,} of {view.block_len:,} tokens",
                f"{view.num_trained:,} trained ({share})",
            ]
        )
        self.note([f"{view.path} row {view.shard_row:,}"])
        for place, document in enumerate(view.documents, 1):
            self.blank()
            self.document(document, f"{place}/{len(view.documents)} ")
            if document.behind is not None:
                self.note([f"{plural(document.behind.num_tokens, 'padding token')} after it"])
                self._ids(document.behind, 2)
        if view.padding is not None:
            self.blank()
            self.heading([plural(view.padding.num_tokens, "padding token")])
            self._ids(view.padding, 2)

    def row(self, view: "RowView", *, was: str = "was") -> None:
        """Print why a row was left out, then its documents; `was` is the verb in the headings of the reasons."""
        self.reasons(view, was=was)
        for place, document in enumerate(view.documents):
            if place or view.rejected:
                self.blank()
            self.document(document, f"{place + 1}/{len(view.documents)} " if len(view.documents) > 1 else "")

    def reasons(self, view: "RowView", *, was: str) -> None:
        """Print why a row, or one of its documents, was left out."""
        for place, line in enumerate(view.rejected):
            if place:
                self.blank()
            left_out = f"the row {was} left out"
            if line.document is not None:
                were = "were" if was == "was" else was
                left_out = f"{plural(line.tokens or 0, 'token')} of its document {line.document} {were} left out"
            self.heading([f"{view.source} row {view.row:,}", f"{left_out}: {line.code}"])
            self.note([line.reason])

    def heading(self, facts: list[str]) -> None:
        self._facts(RULE, facts, "bold")

    def note(self, facts: list[str]) -> None:
        self._facts("   ", facts, "dim")

    def _facts(self, line: str, facts: list[str], style: str) -> None:
        """Print facts side by side after `line`; on a terminal, those that do not fit continue on further lines."""
        for place, fact in enumerate(facts):
            longer = line + DOT * bool(place) + fact
            if place and self._out.edge is not None and sum(map(cells, longer)) > self._out.edge:
                self._out.words(line, hanging=3, style=style)
                longer = f"   {fact}"
            line = longer
        self._out.words(line, hanging=3, style=style)

    def text(self, text: str, *, mark: str = "", number: int | None = None, style: str = "", width: int = 2) -> None:
        """Print text in its column; `width` is that of the numbers before the mark."""
        first = "" if number is None else str(number)
        for line in lines_of(text):
            for part in wrap(line, self._columns(width)):
                self._line(f"{first:>{width}}{mark or ' '} ", part, style)
                first = ""

    def blank(self) -> None:
        self._out.line()

    def document(self, view: "DocumentView", prefix: str = "") -> None:
        facts = [f"{prefix}{view.source} row {view.row:,}", *([] if view.side is None else [view.side])]
        facts += [plural(view.length, "token"), f"{view.num_trained:,} trained"]
        if view.length != view.document_length:
            facts.append(f"from token {view.piece_start:,} of {view.document_length:,}")
        self.heading(facts)
        facts = [f"doc {view.doc_id}"]
        if view.sample_id is not None:
            facts.append(f"id {view.sample_id}")
        facts += [f"image {each.width} x {each.height}, {plural(each.tokens, 'token')}" for each in view.images]
        trained = [run for run in view.runs if run.message is not None]
        if trained:
            facts.append(f"trains {trained_messages(trained)}")
        self.note(facts)
        columns = [f"{name} {value:{'g' * isinstance(value, float)}}" for name, value in view.values.items()]
        columns += [f"{name} of {plural(view.document_length, 'token')}" for name in view.token_columns]
        if columns:
            self.note(columns)
        width = max(2, *(len(str(run.message)) for run in trained)) if trained else 2
        for run in view.runs:
            text = _REPEATED_TOKEN.sub(_counted, run.text) if view.images else run.text
            mark, style = (BAR, "green") if run.kind == "trained" else ("", "")
            self.text(text, mark=mark, number=run.message, style=style, width=width)
            self._ids(run, width)

    def _ids(self, run: "Run", width: int) -> None:
        """Print the ids of a run, if they are wanted."""
        words = f"{plural(run.num_tokens, 'token')}, {run.kind}: {' '.join(map(str, run.input_ids))}"
        for part in wrap_words(words, self._columns(width)) if self._with_ids else ():
            self._line(f"{'':{width}}{BAR if run.kind == 'trained' else ' '} ", part, "dim")

    def _columns(self, width: int) -> int | None:
        """Return the columns available for text; None in a pipe, which has no edge."""
        return None if self._out.edge is None else max(20, self._out.edge - width - 2)

    def _line(self, gutter: str, text: str, style: str) -> None:
        self._out.line((gutter, style and f"{style} bold"), (text, style))


_REPEATED_TOKEN = re.compile(r"(<[^<>]{1,40}>|\[[A-Z_]{1,40}\])\1{3,}")


def _counted(tokens: re.Match[str]) -> str:
    """Return a token that an image repeats, once, with how often it stands there."""
    return f"{tokens[1]} ×{len(tokens[0]) // len(tokens[1]):,}"


def trained_messages(runs: "Sequence[Run]") -> str:
    """Say which messages trained runs belong to: `messages 1, 3, 5`, or how many if there are many."""
    if len(runs) > _LISTED:
        return f"{len(runs)} messages, {runs[0].message} to {runs[-1].message}"
    return f"message{'s' * (len(runs) > 1)} {', '.join(f'{run.message}' for run in runs)}"


def view_fields(view: "BlockView | DocumentView | RowView", *, with_ids: bool = False) -> dict[str, Any]:
    """Return a view as JSON; ids and labels of runs only if requested."""
    from packer.recipe.recipe import to_json  # noqa: PLC0415 - not for --help

    fields = asdict(view)
    if "rejected" in fields:
        fields["rejected"] = [to_json(line) for line in fields["rejected"]]
    documents = fields.get("documents", [fields])
    runs = [run for document in documents for run in (*document["runs"], document["behind"])]
    for run in filter(None, [*runs, fields.get("padding")]):
        ids = list(run.pop("input_ids"))
        if with_ids and ids:
            run |= {"input_ids": ids, "labels": ids if run["kind"] == "trained" else [-100] * len(ids)}
    return fields


_STYLES = {"error": "red bold", "warning": "yellow bold", "note": "cyan bold"}

_FEW = 4
"""Examples of a finding that are shown without `-v`."""

_BEFORE, _AFTER = 60, 120
"""Characters shown before the start of a mark, and after it. A text without a mark gets the sum of both."""

_MARK = "¦"
"""Sign before and after a marked part; two together are a place between two characters."""


def print_findings(findings: "Iterable[CodedFinding]", *, whole: bool, follow: bool) -> None:
    """Print findings, with a blank line between them and one before the first if they `follow` something.

    `whole`: print all examples, and do not shorten any text.
    """
    out = stdout()
    for place, finding in enumerate(findings):
        if place or follow:
            out.line()
        head = f"{finding.level}[{finding.code}]" + ": " * bool(finding.message)
        out.words(finding.message, label=(head, _STYLES[finding.level]), hanging=2)
        for example in finding.examples[: None if whole else _FEW]:
            out.words(example.label, indent=4, hanging=2)
            for line in wrap(_excerpt(example, whole=whole) or " ", out.edge and max(out.edge - 6, 20)):
                out.line(f"      {line}".rstrip())
        if not whole and len(finding.examples) > _FEW:
            out.line(f"    {len(finding.examples) - _FEW:,} more with -v")
        if finding.hint is not None:
            out.words(f"hint: {finding.hint}", indent=2, hanging=2)


def _excerpt(example: "Example", *, whole: bool) -> str:
    """Return a text on one line, with signs around the marked part of it."""
    text, first, last = example.text, 0, len(example.text)
    start, stop = example.mark or (0, 0)
    if not whole and last > _BEFORE + _AFTER:
        first = max(0, start - _BEFORE)
        last = min(last, first + _BEFORE + _AFTER)
    start, stop = min(start, last), min(stop, last)
    parts = [_on_one_line(text[begin:end]) for begin, end in ((first, start), (start, stop), (stop, last))]
    shown = (_MARK if example.mark else "").join(parts)
    note = f" ({example.note})" if example.note else ""
    return GAP * bool(first) + shown + GAP * (last < len(text)) + note


def marked(example: "Example") -> str:
    """Return a text with signs around the marked part, unless that is all of it."""
    start, stop = example.mark or (0, len(example.text))
    parts = example.text[:start], example.text[start:stop], example.text[stop:]
    return example.text if stop - start == len(example.text) else _MARK.join(parts)


def _on_one_line(text: str) -> str:
    return visible(text).replace("\n", NEWLINE).replace("\t", "\\t")


def findings_fields(report: "ForeignReport | CheckReport") -> dict[str, Any]:
    """Return a report as JSON."""
    levels = dict.fromkeys(("error", "warning", "note", *(each.level for each in report.findings)))
    return {"ok": report.ok, **fields_of(report), "counts": {level: report.count(level) for level in levels}}


def failed(report: "Findings", what: object) -> str | None:
    """Return the error message of a report: `template.jinja: 1 error, 2 warnings, 3 notes (no_terminator)`."""
    codes = ", ".join(finding.code for finding in report.findings if finding.level == "error")
    return None if report.ok else f"{what}: {report.counted} ({codes})"
