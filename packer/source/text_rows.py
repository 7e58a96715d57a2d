"""Rows of text files: lines of JSON lines, elements of a JSON array, records of CSV and TSV.

A line is a row unless it is blank, that is, consists only of spaces, tabs and carriage returns. The last one may lack
its newline.

An array is cut without being decoded and without being held in memory. Only quotes, escapes, brackets and commas decide
where an element ends, so an element that is not JSON is one bad row, not a bad file. Worked example,
``[{"a": [1, 2]}, 7]``: the depth of brackets outside of strings is 1 between the elements. An element ends at a comma
at depth 1, or at the bracket that brings the depth from 1 to 0. The comma between 1 and 2 is at depth 3 and ends
nothing.

CSV is read by Python's `csv` as records below a header; every cell is a text. Cells of some columns contain JSON, such
as ``[{"role": "user", …}]`` for messages; an empty one counts as absent. `true` and `false` under `label` are booleans,
so that a rated answer is recognized. Every other cell is used as it is.
"""

import csv
import io
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import InputError
from packer.source.decode import Refused, decode_lines
from packer.source.file_bytes import BLANK, READ_BYTES, FilePath, delimiter_of, no_rows_error, quoted, skip_blank_lines
from packer.source.jq_commands import jq_command
from packer.source.partition import CSV_FORMATS, Format
from packer.source.row import Columns, FileRow, row_too_large_error
from packer.source.schema import columns_with_fields
from packer.source.unsupported_rows import MEDIA_FIELDS

MAX_RECORD_BYTES = 256 * 2**20
"""A record is held in memory until its quotes are closed; a file with a longer one is refused."""


csv.field_size_limit(2**31 - 1)  # Applies to the whole process. Here `rows.max_bytes` is the limit.


def text_rows(
    path: FilePath,
    stream: io.BufferedReader,
    format: Format,  # noqa: A002 - the recipe's word
    *,
    columns: Columns,
    max_row_bytes: int,
) -> Iterator[FileRow]:
    """Yield the rows of JSON or CSV; one of more than `max_row_bytes` is yielded as `row_too_large` and never held."""
    if format in CSV_FORMATS:
        yield from csv_rows(path, stream, format, columns=columns, max_row_bytes=max_row_bytes)
    elif format == "jsonl":
        for content, line in split_lines(stream, max_row_bytes=max_row_bytes):
            yield _row_of_line(content, line, max_row_bytes)
    else:
        for content in split_elements(path, stream, max_row_bytes=max_row_bytes):
            too_large = row_too_large_error(max_row_bytes)
            yield FileRow(too_large if content is None else content, None, len(content or b""))


def decoded_lines(stream: io.BufferedReader, *, max_row_bytes: int) -> Iterator[FileRow]:
    """Yield the rows of JSON lines as :func:`text_rows` does, decoded by the megabyte where each line is a row."""
    number = 0
    while ahead := stream.peek():
        lines = stream.read(ahead.rfind(b"\n") + 1)
        ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == _NEWLINE)
        sizes = np.diff(ends, prepend=-1)
        values = decode_lines(lines) if sizes.max(initial=0) <= max_row_bytes else None
        if values:
            yield from map(FileRow, values, count(number + 1), sizes.tolist())
            number += len(values)
            continue
        # One by one; of a line that begins in the buffer and does not end there, that one alone.
        rows = split_lines(io.BufferedReader(io.BytesIO(lines)) if lines else stream, max_row_bytes=max_row_bytes)
        line = 0
        for content, line in rows if lines else islice(rows, 1):
            yield _row_of_line(content, number + line, max_row_bytes)
        number += len(ends) if lines else line


def _row_of_line(content: bytes | None, line: int, max_row_bytes: int) -> FileRow:
    return FileRow(row_too_large_error(max_row_bytes) if content is None else content, line, len(content or b""))


class Record(NamedTuple):
    line: int
    """Line of the file at which it begins, from 1."""

    num_bytes: int
    cells: list[str] | Refused


def read_csv(path: FilePath, stream: io.BufferedReader, kind: Format) -> tuple[tuple[str, ...], "Iterator[Record]"]:
    """Read the header; return its names and an iterator over the records after it.

    The delimiter of TSV is the tab; that of CSV is the one that is most frequent in the header.
    """
    lines = _Lines(path, stream)
    first = next(lines, None)
    if first is None:
        raise no_rows_error(path)
    delimiter = "\t" if kind == "tsv" else delimiter_of(first.encode())
    records = _records(lines, csv.reader(chain([first], lines), delimiter=delimiter))
    header = next(records)
    if header.num_bytes > READ_BYTES:
        raise InputError(f"{path}: its header is longer than {READ_BYTES:,} bytes", hint="is it CSV?")
    if isinstance(header.cells, Refused):
        what, hint = (
            ("is not UTF-8", f"rewrite it as UTF-8: iconv -f ENCODING -t UTF-8 {shlex.quote(str(path))}")
            if header.cells.code == "not_utf8"
            else ("continues over bare carriage returns", "end lines with newlines: tr '\\r' '\\n'")
        )
        raise InputError(f"{path}: its header {what}", hint=hint)
    names = tuple(header.cells)
    first_place: dict[str, int] = {}
    for i, name in enumerate(names):
        first_place.setdefault(name, i)
    repeated = next((name for i, name in enumerate(names) if name and first_place[name] < i), None)
    if repeated is not None:
        raise InputError(
            f"{path}: has more than one column {quoted(repeated)}", hint="rename or drop one in its header"
        )
    # With a single column, a line of spaces is a cell of spaces, not a blank line.
    lines.blank = b"\r\n" if len(names) == 1 else BLANK.replace(delimiter.encode(), b"")
    return names, records


def csv_rows(
    path: FilePath, stream: io.BufferedReader, kind: Format, *, columns: Columns, max_row_bytes: int
) -> Iterator[FileRow]:
    """Yield the rows of a file; a record of more than `max_row_bytes` is yielded as `row_too_large`."""
    names, records = read_csv(path, stream, kind)
    converters = _converters(names, columns)
    for line, num_bytes, cells in records:
        row: dict[str, Any] | Refused
        if num_bytes > max_row_bytes:
            row = row_too_large_error(max_row_bytes)
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


def cells_of(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line; empty if it is not CSV."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _converters(names: Sequence[str], columns: Columns) -> dict[str, Callable[[str], Any]]:
    """Return converters for the columns whose cells are not plain texts, by column."""
    converters: dict[str, Callable[[str], Any]] = dict.fromkeys(
        columns_with_fields(MEDIA_FIELDS, names, columns), _parse_media
    )
    return converters | dict.fromkeys(columns_with_fields(("label",), names, columns), _parse_label)


def _parse_media(cell: str) -> str | None:
    return None if cell.strip().lower() in {"", "[]", "null", "0", "0.0", "false"} else cell


def _parse_label(cell: str) -> str | bool:
    return {"true": True, "false": False}.get(cell.lower(), cell)


def _records(lines: "_Lines", reader: Iterator[list[str]]) -> Iterator[Record]:
    """Yield the records of a file, including the header."""
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
    """The lines of a file for `csv.reader`, which reads as many as a record has; skips blank lines between records."""

    def __init__(self, path: FilePath, stream: io.BufferedReader) -> None:
        self._path = path
        self._stream = stream
        self._number = 0
        self.blank = BLANK
        """Characters of blank lines: a line that consists only of these is skipped."""

        self.first = 0
        """The line at which the current record begins."""

        self.num_bytes = 0
        self.bad_byte: int | None = None
        """Position of the first byte of the record that is not valid UTF-8."""

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
                hint="is a quote in it never closed? If not, write its rows as JSON lines",
            )
        self._number += 1
        return line


_QUOTE, _COMMA, _NEWLINE = b'",\n'

_STEP = np.zeros(256, np.int64)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1

_STRUCTURAL = np.zeros(256, np.bool_)
_STRUCTURAL[list(b"[]{},")] = True


def split_lines(stream: io.BufferedReader, *, max_row_bytes: int) -> Iterator[tuple[bytes | None, int]]:
    """Split a stream into rows, each with its line number, from 1.

    A row of more than `max_row_bytes` is yielded as None and is never held in memory. White space around a row is
    removed, but counts towards its size.
    """
    number = 0
    while line := stream.readline(max_row_bytes + 2):  # room for the newline, and one byte to detect a longer line
        number += 1
        row: bytes | None = line.strip(BLANK)
        is_row = bool(row)
        ends = line.endswith(b"\n")
        if len(line) - ends > max_row_bytes:
            row = None
            while not ends and (piece := stream.readline(READ_BYTES)):
                is_row = is_row or bool(piece.strip(BLANK))
                ends = piece.endswith(b"\n")
        if is_row:
            yield row, number
        else:
            number += skip_blank_lines(stream)


def split_elements(path: FilePath, stream: io.BufferedReader, *, max_row_bytes: int) -> Iterator[bytes | None]:
    """Split a stream into the elements of its array; one of more than `max_row_bytes` is yielded as None, never held.

    A stream that begins with ``{`` is a single element. Whatever is between two commas is an element, even if blank.
    """
    chunks = iter(partial(stream.read, READ_BYTES), b"")
    opening = next(filter(None, (chunk.lstrip(BLANK) for chunk in chunks)), b"")
    if not opening:
        return
    if opening[:1] not in (b"[", b"{"):
        raise _invalid_json(path, "it begins neither with [ nor with {")
    single = opening[:1] == b"{"
    brackets, element = _Brackets(), _OpenElement(max_row_bytes)
    start = 0 if single else 1  # the array's bracket is not part of an element, a single object's brackets are
    empty = True
    for chunk in chain([opening], chunks):
        data, ends = brackets.find_ends(chunk, single=single)
        for end, closes in ends:
            element.add(data[start : end + single])
            start = end + 1
            if not (closes and empty and element.num_bytes == 0):
                yield element.finish()
            empty = False
            if closes:
                if any(piece.strip(BLANK) for piece in chain([data[start:], brackets.pending], chunks)):
                    raise _invalid_json(path, "something follows the end of its array or object", several=single)
                return
        element.add(data[start:])
        start = 0
    raise _invalid_json(path, "it ends inside its array or object")


def _invalid_json(path: FilePath, what: str, *, several: bool = False) -> InputError:
    hint, command = "for a file of JSON lines, set format: jsonl", jq_command(path, ".") if several else None
    if command:
        hint = f"to write one object per line: {command}; {hint}"
    return InputError(f"{path}: is not JSON: {what}", hint=hint)


@dataclass(slots=True)
class _Brackets:
    """State of the bracket scanner between chunks: nesting depth, and whether it is inside a string."""

    depth: int = 0
    in_string: bool = False
    pending: bytes = b""
    """A backslash at the end of a chunk, which escapes the byte after it."""

    def find_ends(self, chunk: bytes, *, single: bool) -> tuple[bytes, list[tuple[int, bool]]]:
        """Return the data without what is held back, and where in it elements end.

        Each end comes with whether the array ends there, too.
        """
        data = self.pending + chunk
        self.pending = b"\\" * ((len(data) - len(data.rstrip(b"\\"))) % 2)
        data = data[: len(data) - len(self.pending)]
        if not data:
            return data, []
        # Blank out escapes, left to right and without changing positions: the remaining quotes delimit strings.
        plain = np.frombuffer(data.replace(b"\\\\", b"__").replace(b'\\"', b"__"), np.uint8)
        inside = (np.cumsum(plain == _QUOTE, dtype=np.int32) + self.in_string) % 2 == 1
        self.in_string = bool(inside[-1])
        positions: npt.NDArray[np.int64] = np.flatnonzero(_STRUCTURAL[plain] & ~inside)
        kinds = plain[positions]
        depths = self.depth + np.cumsum(_STEP[kinds])
        if len(depths):
            self.depth = int(depths[-1])
        closes = (depths <= 0) & (_STEP[kinds] < 0)
        chosen = np.flatnonzero(closes | ((kinds == _COMMA) & (depths == 1) & (not single)))
        return data, list(zip(positions[chosen].tolist(), closes[chosen].tolist(), strict=True))


@dataclass(slots=True)
class _OpenElement:
    """An element whose end has not been found yet."""

    max_row_bytes: int
    num_bytes: int = 0
    pieces: list[bytes] = field(default_factory=list)

    def add(self, piece: bytes) -> None:
        if not self.num_bytes:
            piece = piece.lstrip(BLANK)
        self.num_bytes += len(piece)
        if self.num_bytes <= self.max_row_bytes:
            self.pieces.append(piece)
        else:
            self.pieces.clear()

    def finish(self) -> bytes | None:
        element = b"".join(self.pieces).strip(BLANK) if self.num_bytes <= self.max_row_bytes else None
        self.num_bytes, self.pieces = 0, []
        return element
