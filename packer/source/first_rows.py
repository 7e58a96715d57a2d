"""The first rows of an input, read without reading the input whole.

A build reads every input to its end before it does anything, for digests and partitions. Here a file is opened and read
as far as rows are asked for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

import msgspec

from packer.batches import Rejection, RowBatch
from packer.source.chunks import broken_array, no_rows, read_chunks, without_mark
from packer.source.compression import codec_of, decompressed
from packer.source.csv_rows import CsvFormat, csv_rows
from packer.source.decode import Refused
from packer.source.elements import BrokenArray
from packer.source.partition import CSV_FORMATS, TABLE_FORMATS, Format
from packer.source.projection import columns_read
from packer.source.read import PendingRow, split_rows, understand
from packer.source.schema import Schema
from packer.source.tables import TableFormat, table_rows, table_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRow:
    """A row as it stands in its file, and what it was understood as."""

    number: int
    """From 0 in the file; blank lines do not count."""

    line: int | None
    """From 1 in the file, where its rows are lines."""

    content: bytes | None
    """None where it is larger than `rows.max_bytes`. Of a row that is no JSON in its file, its values as JSON; None
    where they could not be had."""

    batch: RowBatch
    """The row alone: one sample or one rejection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """An input, and how its rows are read."""

    name: str
    """As a recipe would name this file alone."""

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
            InputError: the file cannot be read, holds no rows, or is not the array its format says.

        """
        if self.format in CSV_FORMATS or self.format in TABLE_FORMATS:
            yield from self._values(start)
            return
        number = -1
        contents = raw_rows(self.path, format=self.format, max_row_bytes=self.max_row_bytes)
        for number, (content, line) in enumerate(contents):
            if number == self.limit:
                return
            if number >= start:
                yield RawRow(number=number, line=line, content=content, batch=self._batch(number, content))
        if number < 0:
            raise no_rows(self.path)

    def _values(self, start: int) -> Iterator[RawRow]:
        """The rows of a format whose rows are decoded already when they come."""
        number = -1
        rows = value_rows(
            self.path,
            format=self.format,
            schema=self.schema,
            columns=self.columns,
            max_row_bytes=self.max_row_bytes,
        )
        for number, (value, line) in enumerate(rows):
            if number == self.limit:
                return
            if number >= start:
                content = None if isinstance(value, Refused) else msgspec.json.encode(value)
                yield RawRow(number=number, line=line, content=content, batch=self._batch(number, value))
        if number < 0:
            raise no_rows(self.path)

    def _batch(self, number: int, row: PendingRow) -> RowBatch:
        try:
            sample = understand(
                row, number=number, schema=self.schema, columns=self.columns, max_row_bytes=self.max_row_bytes
            )
        except Refused as refused:
            rejection = Rejection(row=number, code=refused.code, reason=refused.reason)
            return RowBatch(samples=(), rejections=(rejection,), num_rows=1)
        return RowBatch(samples=(sample,), rejections=(), num_rows=1)


def text_chunks(path: Path) -> Iterator[bytes]:
    """The text of a file, unpacked, without byte order mark.

    Raises:
        InputError: the file cannot be read, or is empty.

    """
    chunks = read_chunks(path)
    first = next(chunks, None)
    if first is None:
        raise no_rows(path)
    return without_mark(decompressed(path, chain([first], chunks), codec_of(path)))


def raw_rows(path: Path, *, format: Format, max_row_bytes: int) -> Iterator[tuple[bytes | None, int | None]]:  # noqa: A002 - the recipe's word
    """The bytes of every row of a file, from its start, and its line; None for a row that is too large.

    Raises:
        InputError: the file cannot be read, is empty, or is not the array its format says.

    """
    try:
        yield from split_rows(text_chunks(path), format=format, max_row_bytes=max_row_bytes)
    except BrokenArray as error:
        raise broken_array(path, error) from None


def refuse_empty(path: Path, *, format: Format) -> None:  # noqa: A002 - the recipe's word
    """Look for a first row, whatever it is.

    Raises:
        NoRowsError: there is none.
        InputError: the file cannot be read, or is not the array its format says.

    """
    rows: Iterator[Any]
    if format in CSV_FORMATS or format in TABLE_FORMATS:
        rows = value_rows(path, format=format, schema=None, columns={}, max_row_bytes=1)
    else:
        rows = raw_rows(path, format=format, max_row_bytes=1)
    if next(rows, rows) is rows:
        raise no_rows(path)


def value_rows(
    path: Path,
    *,
    format: Format,  # noqa: A002 - the recipe's word
    schema: Schema | None,
    columns: Mapping[str, str | None],
    max_row_bytes: int,
) -> Iterator[tuple[dict[str, Any] | Refused, int | None]]:
    """The rows of CSV, Parquet or Arrow, from the start of the file: value, or why there is none, and line.

    Args:
        path: The file.
        format: Its format.
        schema: How rows are read; None where that is to be found out.
        columns: New name of a field → its name in the rows, or None to hide it.
        max_row_bytes: A larger row is not decoded.

    Raises:
        InputError: the file cannot be read.

    """
    if format in CSV_FORMATS:
        kind = cast("CsvFormat", format)
        for row in csv_rows(path, text_chunks(path), kind, columns=columns, max_row_bytes=max_row_bytes):
            yield row.value, row.line
        return
    table = cast("TableFormat", format)
    names = table_schema(path, table).names
    rows = table_rows(
        path,
        table,
        columns_read(names, schema, columns),
        max_row_bytes=max_row_bytes,
        columns=columns,
    )
    for value, _ in rows:
        yield value, None
