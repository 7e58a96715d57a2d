"""Rows of CSV and TSV: records below a header, every cell a text, as Python's `csv` reads them.

Cells of some columns hold JSON: ``[{"role": "user", …}]`` for messages; an empty one counts as absent. `true` and
`false` under `label` are booleans, so that a rated answer is seen as one. Every other cell is the text it is.
"""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from packer.errors import InputError
from packer.source.decode import Refused
from packer.source.file_bytes import BLANK, READ_BYTES, no_rows, shown, skip_blank_lines
from packer.source.partition import Format
from packer.source.row import Columns, FileRow, row_too_large
from packer.source.schema import columns_of, text_converters
from packer.source.unsupported_rows import MEDIA_FIELDS

MAX_RECORD_BYTES = 256 * 2**20
"""A record is held until its quotes are closed; a file with a longer one is refused."""

_DELIMITERS = b",;\t|"

csv.field_size_limit(2**31 - 1)  # Of the process: it can only be set for all. `rows.max_bytes` is the limit here.


class Record(NamedTuple):
    line: int
    """The line of the file it begins at, from 1."""

    num_bytes: int
    cells: list[str] | Refused


def read_csv(path: Path, stream: io.BufferedReader, kind: Format) -> tuple[tuple[str, ...], "Iterator[Record]"]:
    """Read the header; returns its names, and the records after it.

    TSV has tabs; the delimiter of CSV is the one that its header has most often.

    Raises:
        InputError: there is no header, or a column stands in it twice; from `records`, a quote is never closed.

    """
    lines = _Lines(path, stream)
    first = next(lines, None)
    if first is None:
        raise no_rows(path)
    delimiter = "\t" if kind == "tsv" else delimiter_of(first.encode())
    records = _records(lines, csv.reader(chain([first], lines), delimiter=delimiter))
    header = next(records)
    if header.num_bytes > READ_BYTES:
        raise InputError(f"{path}: its header is longer than {READ_BYTES:,} bytes", hint="is it CSV?")
    if isinstance(header.cells, Refused):
        what, hint = (
            ("is not UTF-8", f"rewrite it as UTF-8: iconv -t UTF-8 {path}")
            if header.cells.code == "not_utf8"
            else ("goes on over bare carriage returns", "end lines with newlines: tr '\\r' '\\n'")
        )
        raise InputError(f"{path}: its header {what}", hint=hint)
    names = tuple(header.cells)
    repeated = next((name for i, name in enumerate(names) if name and name in names[:i]), None)
    if repeated is not None:
        raise InputError(f"{path}: has more than one column {shown(repeated)}", hint="rename or drop one in its header")
    # Where there is but one column, spaces are what its cell holds.
    lines.blank = b"\r\n" if len(names) == 1 else BLANK.replace(delimiter.encode(), b"")
    return names, records


def csv_rows(
    path: Path, stream: io.BufferedReader, kind: Format, *, columns: Columns, max_row_bytes: int
) -> Iterator[FileRow]:
    """The rows of a file; a record of more than `max_row_bytes` comes as `row_too_large`.

    Raises:
        InputError: as :func:`read_csv`.

    """
    names, records = read_csv(path, stream, kind)
    converters = _converters(names, columns)
    for line, num_bytes, cells in records:
        row: dict[str, Any] | Refused
        if num_bytes > max_row_bytes:
            row = row_too_large(max_row_bytes)
        elif isinstance(cells, Refused):
            row = cells
        elif len(cells) != len(names):
            row = Refused("wrong_type", f"the header has {len(names)} columns, the row {len(cells)}")
        else:
            row = dict(zip(names, cells, strict=True))
            try:
                for name, convert in converters.items():
                    row[name] = convert(row[name])
            except Refused as refused:
                row = refused
        yield FileRow(row, line, num_bytes)


def delimiter_of(head: bytes) -> str:
    """The delimiter that the first line has most often outside of quotes."""
    first = head.lstrip(BLANK).split(b"\n", 1)[0]
    plain = b"".join(first.split(b'"')[::2])
    return max((chr(each) for each in _DELIMITERS), key=lambda each: plain.count(each.encode()))


def cells_of(line: str, delimiter: str) -> list[str]:
    """The cells of a line; none where it is no CSV."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _converters(names: Sequence[str], columns: Columns) -> dict[str, Callable[[str], Any]]:
    """What makes values of the cells in those columns that do not hold mere texts."""
    converters = text_converters(names, columns) | dict.fromkeys(columns_of(MEDIA_FIELDS, names, columns), _media)
    return converters | dict.fromkeys(columns_of(("label",), names, columns), _label)


def _media(cell: str) -> str | None:
    return None if cell.strip() in {"", "[]", "null"} else cell


def _label(cell: str) -> str | bool:
    return {"true": True, "false": False}.get(cell.lower(), cell)


def _records(lines: "_Lines", reader: Iterator[list[str]]) -> Iterator[Record]:
    """The records of a file, the header too."""
    while True:
        cells: list[str] | Refused
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            cells = Refused("wrong_type", "a bare carriage return outside of quotes")
        if lines.bad_byte is not None:
            cells = Refused("not_utf8", f"invalid UTF-8 at byte {lines.bad_byte}")
        yield Record(lines.first, lines.num_bytes, cells)
        lines.num_bytes, lines.bad_byte = 0, None


class _Lines:
    """The lines of a file for `csv.reader`, which takes as many as a record has; blank ones between are passed over."""

    def __init__(self, path: Path, stream: io.BufferedReader) -> None:
        self._path = path
        self._stream = stream
        self._number = 0
        self.blank = BLANK
        """Characters that count as nothing: a line of these alone is skipped."""

        self.first = 0
        """The line at which the record begins."""

        self.num_bytes = 0
        self.bad_byte: int | None = None
        """Place of the first byte of the record that is not UTF-8."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._next_line()
        if not self.num_bytes:
            while line and not line.strip(self.blank):
                self._number += skip_blank_lines(self._stream, self.blank)
                line = self._next_line()
            self.first = self._number
        elif not line:
            raise InputError(
                f"{self._path}: a quote that opens in the record of line {self.first} is never closed",
                hint="double the quotes inside of a quoted cell, and close it",
            )
        if not line:
            raise StopIteration
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            text = line.decode("utf-8", "replace")
            self.bad_byte = self.num_bytes + error.start if self.bad_byte is None else self.bad_byte
        self.num_bytes += len(line)
        return text

    def _next_line(self) -> bytes:
        line = self._stream.readline(MAX_RECORD_BYTES + 1 - self.num_bytes)
        if self.num_bytes + len(line) > MAX_RECORD_BYTES:
            raise InputError(
                f"{self._path}: the record of line {self.first or self._number} has more than {MAX_RECORD_BYTES:,} "
                "bytes",
                hint="is a quote in it never closed? Else write its rows as JSON lines",
            )
        self._number += 1
        return line
