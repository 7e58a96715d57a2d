"""The rows of a file, of whatever format, one at a time and not yet understood."""

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import cast

from packer.source.columns import columns_read
from packer.source.compression import codec_of, decompressed
from packer.source.csv_rows import csv_rows
from packer.source.file_bytes import broken_array, no_rows, read_chunks, without_mark
from packer.source.json_array import BrokenArray, split_elements
from packer.source.json_lines import split_lines
from packer.source.partition import CSV_FORMATS, TABLE_FORMATS, CsvFormat, Format, TableFormat
from packer.source.row import FileRow, row_too_large
from packer.source.schema import Schema
from packer.source.tables import table_rows, table_schema


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
