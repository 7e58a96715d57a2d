"""The first rows of a recipe's inputs, read without reading the inputs whole.

A build reads every input to its end before it does anything, for digests and partitions. Here a file is opened, looked
at (its beginning, and some places if its schema is to be found), and read as far as rows are asked for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packer.batches import Rejection, RowBatch
from packer.errors import InputError, RecipeError
from packer.recipe import Recipe, Source
from packer.source import Schema, detect_format, detect_schema, expand
from packer.source.chunks import read_chunks, without_mark
from packer.source.decode import Refused, decode_json
from packer.source.elements import BrokenArray
from packer.source.partition import Format
from packer.source.read import split_rows
from packer.source.schema import read_row


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRow:
    """A row as it stands in its file, and what it was understood as."""

    number: int
    """From 0 in the file; blank lines do not count."""

    content: bytes | None
    """None where it is larger than `rows.max_bytes`."""

    batch: RowBatch
    """The row alone: one sample or one rejection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedInput:
    """An input file, and how its rows are read."""

    path: Path
    split: str
    format: Format
    schema: Schema
    columns: Mapping[str, str | None]
    limit: int | None
    """Rows of the file that the recipe takes; None takes all."""

    max_row_bytes: int

    def rows(self, start: int = 0) -> Iterator[RawRow]:
        """The rows from `start` on, one at a time, up to the limit. Those before it are passed over, not decoded.

        Raises:
            InputError: the file cannot be read, or is not the array its format says.

        """
        chunks = without_mark(read_chunks(self.path))
        rows = enumerate(split_rows(chunks, format=self.format, max_row_bytes=self.max_row_bytes))
        try:
            for number, content in rows:
                if number == self.limit:
                    return
                if number >= start:
                    yield RawRow(number=number, content=content, batch=self._understood(number, content))
        except BrokenArray as error:
            raise InputError(
                f"{self.path}: is not JSON: {error}", hint="for a file of JSON lines, set format: jsonl"
            ) from None

    def _understood(self, number: int, content: bytes | None) -> RowBatch:
        if content is None:
            return _refused(number, "row_too_large", f"more than rows.max_bytes, {self.max_row_bytes} bytes")
        try:
            sample = read_row(decode_json(content), number=number, schema=self.schema, columns=self.columns)
        except Refused as refused:
            return _refused(number, refused.code, refused.reason)
        return RowBatch(samples=(sample,), rejections=(), num_rows=1)


def input_files(recipe: Recipe) -> list[tuple[Source, Path]]:
    """The files of the recipe's sources, globs expanded, in their order; none is opened.

    Raises:
        RecipeError: the recipe has no sources.
        InputError: a file is missing, or a glob matches none.

    """
    if not recipe.sources:
        raise RecipeError("no sources", hint="name files on the command line, or give the recipe `sources:`")
    return [(source, path) for source in recipe.sources for path in expand([source.path])]


def open_input(source: Source, path: Path, recipe: Recipe) -> OpenedInput:
    """Find out how a file is read.

    Raises:
        InputError: it cannot be read, or is nothing packer knows.

    """
    file_format = detect_format(path) if source.format == "auto" else source.format
    schema = (
        detect_schema(path, format=file_format, columns=source.columns) if source.schema == "auto" else source.schema
    )
    return OpenedInput(
        path=path,
        split=source.split,
        format=file_format,
        schema=schema,
        columns=source.columns,
        limit=source.limit,
        max_row_bytes=recipe.rows.max_bytes,
    )


def _refused(number: int, code: str, reason: str) -> RowBatch:
    return RowBatch(samples=(), rejections=(Rejection(row=number, code=code, reason=reason),), num_rows=1)
