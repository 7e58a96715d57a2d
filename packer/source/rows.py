"""The rows of a file or of a partition, of whatever format, one at a time and not yet understood."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import cast

import xxhash

from packer.source.chunks import broken_array, changed, no_rows, read_chunks, without_mark
from packer.source.columns import columns_read
from packer.source.compression import codec_of, decompressed
from packer.source.csv_rows import csv_rows
from packer.source.json_array import BrokenArray, split_elements
from packer.source.json_lines import split_lines
from packer.source.partition import CSV_FORMATS, TABLE_FORMATS, CsvFormat, Format, Partition, TableFormat
from packer.source.row import FileRow, row_too_large
from packer.source.schema import Schema
from packer.source.tables import refuse_changed, table_rows, table_schema


def text_rows(
    path: Path,
    text: Iterator[bytes],
    format: Format,  # noqa: A002 - the recipe's word
    *,
    columns: Mapping[str, str | None],
    max_row_bytes: int,
) -> Iterator[FileRow]:
    """The rows of JSON or CSV.

    Args:
        path: The file, for errors.
        text: Its text, unpacked, without byte order mark.
        format: Its format.
        columns: New name of a field → its name in the rows, or None to hide it.
        max_row_bytes: A larger row comes as `row_too_large`, and is not held.

    Raises:
        InputError: the file is no CSV.
        BrokenArray: a JSON file whose brackets do not add up.

    """
    too_large = row_too_large(max_row_bytes)
    if format in CSV_FORMATS:
        yield from csv_rows(path, text, cast("CsvFormat", format), columns=columns, max_row_bytes=max_row_bytes)
    elif format == "jsonl":
        for content, line in split_lines(text, max_row_bytes=max_row_bytes):
            yield FileRow(too_large if content is None else content, line, len(content or b""))
    else:
        for content in split_elements(text, max_row_bytes=max_row_bytes):
            yield FileRow(too_large if content is None else content, None, len(content or b""))


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


def file_rows(
    path: Path,
    *,
    format: Format,  # noqa: A002 - the recipe's word
    schema: Schema | None,
    columns: Mapping[str, str | None],
    max_row_bytes: int,
) -> Iterator[FileRow]:
    """The rows of a file, from its start.

    Args:
        path: The file.
        format: Its format.
        schema: How rows are read; None where that is to be found out. Of a table, other columns are not decoded.
        columns: New name of a field → its name in the rows, or None to hide it.
        max_row_bytes: A larger row comes as `row_too_large`.

    Raises:
        InputError: the file cannot be read, is empty, or is not what its format says.

    """
    if format in TABLE_FORMATS:
        kind = cast("TableFormat", format)
        names = columns_read(table_schema(path, kind).names, schema, columns)
        yield from table_rows(path, kind, names, columns=columns, max_row_bytes=max_row_bytes)
        return
    try:
        yield from text_rows(path, text_chunks(path), format, columns=columns, max_row_bytes=max_row_bytes)
    except BrokenArray as error:
        raise broken_array(path, error) from None


def refuse_empty(path: Path, *, format: Format) -> None:  # noqa: A002 - the recipe's word
    """Look for a first row, whatever it is.

    Raises:
        NoRowsError: there is none.
        InputError: the file cannot be read, or is not the array its format says.

    """
    if next(file_rows(path, format=format, schema=None, columns={}, max_row_bytes=1), None) is None:
        raise no_rows(path)


def partition_rows(
    partition: Partition, *, schema: Schema, columns: Mapping[str, str | None], max_row_bytes: int
) -> Iterator[FileRow]:
    """The rows of a partition. Whoever writes what he read must read to the end: only there is it compared.

    Raises:
        InputError: the file cannot be read, or is not what it was when it was cut.

    """
    path = partition.path
    num_rows = 0
    if partition.format in TABLE_FORMATS:
        kind = cast("TableFormat", partition.format)
        refuse_changed(partition)
        names = columns_read(table_schema(path, kind).names, schema, columns)
        rows = table_rows(path, kind, names, columns=columns, max_row_bytes=max_row_bytes, partition=partition)
        for row in islice(rows, partition.num_rows):
            num_rows += 1
            yield row
        refuse_changed(partition)
    else:
        digest = xxhash.xxh3_128()
        # No generator: one that is left early would not hand out the rest.
        chunks = map(partial(_hashed, digest), read_chunks(path, partition.start, partition.stop))
        for row in _text_of(partition, chunks, columns, max_row_bytes):
            num_rows += 1
            yield row
        for _ in chunks:
            pass  # what stands behind the rows that are taken
        if num_rows == partition.num_rows and digest.hexdigest() != partition.xxh3:
            raise changed(path, f"bytes {partition.start} to {partition.stop} are not what they were")
    if num_rows != partition.num_rows:
        raise changed(path, f"expected {partition.num_rows} rows, found {num_rows}")


def lines_of_rows(partition: Partition, rows: Sequence[int]) -> list[int] | None:
    """The lines of the file, from 1, at which these rows of a partition begin; None where rows are no lines.

    The partition is read again: for the row of an error, where no batch told.

    Args:
        partition: The piece of the file.
        rows: Row numbers from 0 within it, ascending.

    Raises:
        InputError: the file cannot be read, or is not what it was when it was cut.

    """
    if partition.format != "jsonl" and partition.format not in CSV_FORMATS:
        return None
    if not rows:
        return []
    chunks = read_chunks(partition.path, partition.start, partition.stop)
    lines = [row.line for row in _text_of(partition, chunks, columns={}, max_row_bytes=0) if row.line is not None]
    if len(lines) != partition.num_rows:
        raise changed(partition.path, f"expected {partition.num_rows} rows, found {len(lines)}")
    return [partition.first_line + lines[row] for row in rows]


def _hashed(digest: xxhash.xxh3_128, chunk: bytes) -> bytes:
    digest.update(chunk)
    return chunk


def _text_of(
    partition: Partition, chunks: Iterator[bytes], columns: Mapping[str, str | None], max_row_bytes: int
) -> Iterator[FileRow]:
    """The rows in the bytes of a partition."""
    text = decompressed(partition.path, chunks, partition.codec)
    text = text if partition.start else without_mark(text)
    rows = text_rows(partition.path, text, partition.format, columns=columns, max_row_bytes=max_row_bytes)
    try:
        yield from islice(rows, partition.num_rows)
    except BrokenArray as error:
        raise changed(partition.path, str(error)) from None
