"""Rows of CSV and TSV: records below a header, every cell a text, as Python's `csv` reads them.

Cells of some columns hold JSON: ``[{"role": "user", …}]`` for messages; an empty one counts as absent. `true` and
`false` under `label` are booleans, so that a rated answer is seen as one. Every other cell is the text it is.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from packer.errors import InputError
from packer.source.columns import JSON_FIELDS, MESSAGES_FIELDS, columns_of
from packer.source.decode import Refused
from packer.source.file_bytes import BLANK, READ_BYTES, count_newlines, is_blank, no_rows, shown
from packer.source.partition import CsvFormat
from packer.source.row import FileRow, json_in_text, messages_in_text, row_too_large
from packer.source.unsupported_rows import MEDIA_FIELDS

MAX_RECORD_BYTES = 256 * 2**20
"""A record is held until its quotes are closed; a file with a longer one is refused."""

_DELIMITERS = b",;\t|"

csv.field_size_limit(2**31 - 1)  # Of the process: it can only be set for all. `rows.max_bytes` is the limit here.


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvTable:
    """A file behind its header."""

    names: tuple[str, ...]
    records: "Iterator[_Record]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    line: int
    """Of the file, from 1: where it begins."""

    num_bytes: int
    cells: list[str] | Refused


def read_csv(path: Path, chunks: Iterator[bytes], kind: CsvFormat) -> CsvTable:
    """Read the header.

    Args:
        path: The file, for errors.
        chunks: Its text, without byte order mark.
        kind: TSV has tabs; the delimiter of CSV is the one that its header has most often.

    Raises:
        InputError: there is no header, or a column stands in it twice; from `records`, a quote is never closed.

    """
    lines = _Lines(path, chunks)
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
    lines.blank = b"\r" if len(names) == 1 else BLANK.replace(delimiter.encode(), b"")
    return CsvTable(names=names, records=records)


def csv_rows(
    path: Path, chunks: Iterator[bytes], kind: CsvFormat, *, columns: Mapping[str, str | None], max_row_bytes: int
) -> Iterator[FileRow]:
    """The rows of a file.

    Args:
        path: The file, for errors.
        chunks: Its text, without byte order mark.
        kind: Its format.
        columns: New name of a field → its name in the rows, or None to hide it: tells which columns hold JSON.
        max_row_bytes: A larger record comes as `row_too_large`.

    Raises:
        InputError: as :func:`read_csv`.

    """
    table = read_csv(path, chunks, kind)
    cells = _Cells(table.names, columns)
    for record in table.records:
        row: dict[str, Any] | Refused
        try:
            row = row_too_large(max_row_bytes) if record.num_bytes > max_row_bytes else cells.row(record.cells)
        except Refused as refused:
            row = refused
        yield FileRow(row, record.line, record.num_bytes)


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


class _Cells:
    """From the cells of a record to a row."""

    def __init__(self, names: tuple[str, ...], columns: Mapping[str, str | None]) -> None:
        self._names = names
        self._json = columns_of(JSON_FIELDS, names, columns)
        self._messages = columns_of(MESSAGES_FIELDS, names, columns)
        self._media = columns_of(MEDIA_FIELDS, names, columns)
        self._label = columns.get("label", "label")

    def row(self, cells: list[str] | Refused) -> dict[str, Any]:
        if isinstance(cells, Refused):
            raise cells
        if len(cells) != len(self._names):
            raise Refused("wrong_type", f"the header has {len(self._names)} columns, the row {len(cells)}")
        row: dict[str, Any] = dict(zip(self._names, cells, strict=True))
        for name in self._json:
            row[name] = json_in_text(row[name], name)
        for name in self._messages:
            row[name] = messages_in_text(row[name])
        for name in self._media:
            row[name] = None if row[name].strip() in {"", "[]", "null"} else row[name]
        if row.get(self._label or "", "").lower() in {"true", "false"}:
            row[str(self._label)] = row[str(self._label)].lower() == "true"
        return row


def _records(lines: "_Lines", reader: Iterator[list[str]]) -> Iterator[_Record]:
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
        yield _Record(line=lines.first, num_bytes=lines.num_bytes, cells=cells)
        lines.begin_record()


class _Lines:
    """The lines of a file for `csv.reader`, which takes as many as a record has.

    Blank lines between records are passed over.
    """

    def __init__(self, path: Path, chunks: Iterator[bytes]) -> None:
        self._path = path
        self._lines = self._split(chunks)
        self.blank = BLANK
        """What is nothing where a line has nothing else."""

        self.begin_record()

    def begin_record(self) -> None:
        self.first = 0
        """The line at which the record begins."""

        self.num_bytes = 0
        self.bad_byte: int | None = None
        """Of the record, where it is not UTF-8."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        number, line = next(self._lines)
        self.first = self.first or number
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            text = line.decode("utf-8", "replace")
            self.bad_byte = self.num_bytes + error.start if self.bad_byte is None else self.bad_byte
        self.num_bytes += len(line)
        return text

    def _split(self, chunks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
        """Number, from 1, and bytes of every line that is part of a record."""
        number = 1
        left: list[bytes] = []
        for chunk in chunks:
            is_between = not self.num_bytes and all(is_blank(piece, self.blank) for piece in left)
            if is_between and b"\n" in chunk and is_blank(chunk, self.blank + b"\n"):
                # Many lines, and none of them is a record.
                number += count_newlines(chunk) - 1
                chunk = chunk[: chunk.index(b"\n")] + chunk[chunk.rindex(b"\n") :]  # noqa: PLW2901
            first, *rest = chunk.split(b"\n")
            left.append(first)
            if rest:
                for line in (b"".join(left), *rest[:-1]):
                    if self.num_bytes or line.strip(self.blank):
                        yield number, line + b"\n"
                    number += 1
                left = [rest[-1]]
            if self.num_bytes + sum(map(len, left)) > MAX_RECORD_BYTES:
                raise InputError(
                    f"{self._path}: the record of line {self.first or number} has more than {MAX_RECORD_BYTES:,} bytes",
                    hint="is a quote in it never closed? Else write its rows as JSON lines",
                )
        line = b"".join(left)
        if line and (self.num_bytes or line.strip(self.blank)):
            yield number, line
        if self.num_bytes:
            raise InputError(
                f"{self._path}: a quote that opens in the record of line {self.first} is never closed",
                hint="double the quotes inside of a quoted cell, and close it",
            )
