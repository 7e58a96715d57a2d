"""`packer inspect`: blocks, documents and rows as text, trained runs marked."""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer_cli.failures import print_json
from packer_cli.options import HELP_OPTIONS, cache_argument, output_options
from packer_cli.output import can_draw, percent, plural, stdout

if TYPE_CHECKING:
    from rich.console import Console

    from packer.audit import BlockView, DocumentView, RowView, Run
    from packer.store.cache import Cache

_TRAINED, _PLAIN_TRAINED, _MASKED = "▌ ", "| ", "  "
_NEWLINE, _PLAIN_NEWLINE = "↵", "\\n"


@click.command("inspect", context_settings=HELP_OPTIONS)
@cache_argument
@click.option("--block", metavar="N", type=click.IntRange(min=0), help="A block of the split, from 0 [0].")
@click.option("--doc", metavar="ID", type=int, help="A document by its doc_id.")
@click.option("--row", metavar="FILE:N", help="Row N of an input file, from 0: what became of it.")
@click.option("--split", metavar="NAME", help="Where blocks and documents are looked for [the first split].")
@click.option("--ids", is_flag=True, help="Also the ids of every run.")
@output_options
def command(
    *,
    cache: Path,
    block: int | None,
    doc: int | None,
    row: str | None,
    split: str | None,
    ids: bool,
    verbose: bool,  # noqa: ARG001 - every command takes it
    quiet: bool,  # noqa: ARG001 - as above
    as_json: bool,
) -> None:
    """Show a block, a document or a row as text, trained runs marked.

    Trained text is marked by a bar on its left; all other text is context and is masked. Every run of tokens
    begins on a line of its own.
    """
    if sum(option is not None for option in (block, doc, row)) > 1:
        raise click.UsageError("--block, --doc and --row cannot go together")
    from packer.audit import view_document, view_row  # noqa: PLC0415 - not for --help
    from packer.store.cache import Cache  # noqa: PLC0415 - as above

    with Cache.open(cache) as opened:
        page = _Page(stdout(), with_ids=ids)
        if doc is not None:
            document = view_document(opened, doc, split=split, with_ids=ids)
            print_json(command="inspect", document=_document_fields(document)) if as_json else page.document(document)
        elif row is not None:
            found = view_row(opened, *_file_and_row(row), with_ids=ids)
            print_json(command="inspect", **_row_fields(found)) if as_json else page.row(found)
        else:
            _show_block(opened, block or 0, split, page, with_ids=ids, as_json=as_json)


def _show_block(cache: "Cache", index: int, split: str | None, page: "_Page", *, with_ids: bool, as_json: bool) -> None:
    from packer.audit import view_block  # noqa: PLC0415 - not for --help
    from packer.errors import UsageError  # noqa: PLC0415 - as above

    splits = cache.splits("blocks")
    if not splits:
        raise UsageError(
            f"{cache.folder} has no blocks: pack.mode is 'none'", hint="--row FILE:N and --doc ID show documents"
        )
    view = view_block(cache, split or splits[0], index, with_ids=with_ids)
    print_json(command="inspect", block=_block_fields(view)) if as_json else page.block(view)


class _Page:
    """Writes views to a console."""

    def __init__(self, console: "Console", *, with_ids: bool) -> None:
        self._console = console
        self._with_ids = with_ids
        drawn = can_draw()
        self._trained = _TRAINED if drawn else _PLAIN_TRAINED
        self._newline = _NEWLINE if drawn else _PLAIN_NEWLINE
        self._dot = " · " if drawn else ", "

    def block(self, view: "BlockView") -> None:
        share = percent(view.num_trained / view.length if view.length else 0.0)
        self._heading(
            [
                f"block {view.index:,} of {view.num_blocks:,} ({view.split})",
                plural(len(view.documents), "document"),
                f"{view.length:,} of {view.block_len:,} tokens",
                f"{view.num_trained:,} trained ({share})",
            ]
        )
        self._note(f"{view.path} row {view.shard_row:,}")
        for place, document in enumerate(view.documents, 1):
            self._line()
            self._document(document, f"{place}/{len(view.documents)} ")
        if view.padding is not None:
            self._line()
            self._heading([plural(view.padding.num_tokens, "padding token")])
            if self._with_ids:
                self._ids(view.padding)

    def document(self, view: "DocumentView") -> None:
        self._document(view, "")

    def row(self, view: "RowView") -> None:
        for line in view.rejected:
            which = "the row" if line.document is None else f"its document {line.document}"
            self._heading([f"{view.source} row {view.row:,}", f"{which} was left out: {line.code}"])
            self._note(line.reason)
        for place, document in enumerate(view.documents):
            if place or view.rejected:
                self._line()
            self._document(document, f"{place + 1}/{len(view.documents)} " if len(view.documents) > 1 else "")

    def _document(self, view: "DocumentView", prefix: str) -> None:
        piece = (
            []
            if view.length == view.document_length
            else [f"from token {view.piece_start:,} of {view.document_length:,}"]
        )
        self._heading(
            [
                f"{prefix}{view.source} row {view.row:,}",
                plural(view.length, "token"),
                f"{view.num_trained:,} trained",
                *piece,
            ]
        )
        facts = [f"doc {view.doc_id}"]
        if view.sample_id is not None:
            facts.append(f"id {view.sample_id}")
        if view.num_identical > 1:
            facts.append(f"{view.num_identical - 1:,} more with the same tokens")
        self._note(self._dot.join(facts))
        for run in view.runs:
            self._run(run)

    def _run(self, run: "Run") -> None:
        trained = run.kind == "trained"
        gutter = self._trained if trained else _MASKED
        for line in _lines(run.text, self._newline):
            for part in _wrap(line, self._width()):
                self._line(gutter, part, "green" if trained else "")
        if self._with_ids:
            self._ids(run)

    def _ids(self, run: "Run") -> None:
        gutter = self._trained if run.kind == "trained" else _MASKED
        words = f"{plural(run.num_tokens, 'token')}, {run.kind}: {' '.join(map(str, run.input_ids))}"
        for part in _wrap_words(words, self._width()):
            self._line(gutter, part, "dim")

    def _width(self) -> int | None:
        """Columns for text; None where the lines go to a pipe, which has no edge."""
        return max(20, self._console.width - len(_MASKED)) if self._console.is_terminal else None

    def _heading(self, facts: list[str]) -> None:
        text = _visible(self._dot.join(facts))
        rule = "── " if can_draw() else "-- "
        self._console.print(rule + text, style="bold", soft_wrap=True)

    def _note(self, text: str) -> None:
        self._console.print(f"   {_visible(text)}", style="dim", soft_wrap=True)

    def _line(self, gutter: str = "", text: str = "", style: str = "") -> None:
        from rich.text import Text  # noqa: PLC0415 - not for --help

        # What is cut to width is cut already: rich must neither wrap nor strip it.
        self._console.print(
            Text.assemble((gutter, "green bold"), (text, style)),
            soft_wrap=True,
            no_wrap=True,
            overflow="ignore",
            crop=False,
        )


def _lines(text: str, newline: str) -> Iterator[str]:
    """Lines of a text, each newline shown where it stands."""
    *complete, last = text.split("\n")
    for line in complete:
        yield _visible(line) + newline
    if last or not complete:
        yield _visible(last)


_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def _visible(text: str) -> str:
    """Control characters and marks of direction as escapes: text from anywhere must not steer the terminal.

    Zero-width joiners stay: emoji and several scripts are spelled with them.
    """
    return _HIDDEN.sub(lambda match: ascii(match[0])[1:-1], text)


def _cells(character: str) -> int:
    if character == "\t":
        return 4
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _wrap(line: str, width: int | None) -> Iterator[str]:
    """Cut a line into parts of at most `width` cells, at a space where one is near."""
    if width is None:
        yield line
        return
    line = line.expandtabs(4)
    while line:
        cells = end = 0
        while end < len(line) and (cells := cells + _cells(line[end])) <= width:
            end += 1
        if end < len(line):
            space = line.rfind(" ", 0, end)
            end = space + 1 if space >= end // 2 else max(end, 1)
        yield line[:end]
        line = line[end:]


def _wrap_words(text: str, width: int | None) -> Iterator[str]:
    if width is None:
        yield text
        return
    import textwrap  # noqa: PLC0415 - beside its only use

    yield from textwrap.wrap(text, width)


def _file_and_row(text: str) -> tuple[str, int]:
    source, separator, row = text.rpartition(":")
    if not separator or not source or not row.isdecimal():
        raise click.UsageError(f"--row {text}: expected FILE:N, for example --row data/chat.jsonl:0")
    return source, int(row)


def _block_fields(view: "BlockView") -> dict[str, Any]:
    return {
        "split": view.split,
        "index": view.index,
        "num_blocks": view.num_blocks,
        "path": view.path,
        "shard_row": view.shard_row,
        "block_len": view.block_len,
        "length": view.length,
        "num_trained": view.num_trained,
        "documents": [_document_fields(document) for document in view.documents],
        "padding": view.padding and _run_fields(view.padding),
    }


def _row_fields(view: "RowView") -> dict[str, Any]:
    from packer.recipe import to_json  # noqa: PLC0415 - not for --help

    return {
        "source": view.source,
        "row": view.row,
        "documents": [_document_fields(document) for document in view.documents],
        "rejected": [to_json(line) for line in view.rejected],
    }


def _document_fields(view: "DocumentView") -> dict[str, Any]:
    from dataclasses import asdict  # noqa: PLC0415 - beside its only use

    return asdict(view) | {"runs": [_run_fields(run) for run in view.runs]}


def _run_fields(run: "Run") -> dict[str, Any]:
    """Ids and labels only where they were asked for."""
    fields: dict[str, Any] = {"kind": run.kind, "start": run.start, "num_tokens": run.num_tokens, "text": run.text}
    if run.input_ids:
        fields["input_ids"] = list(run.input_ids)
        fields["labels"] = list(run.input_ids) if run.kind == "trained" else [-100] * run.num_tokens
    return fields
