"""Rows of text: lines of JSON lines, elements of the array that a JSON file is, records of CSV and TSV.

A line is a row unless it is blank: nothing but spaces, tabs and carriage returns. The last one may lack its newline.

An array is cut without being decoded and without being held: only quotes, escapes, brackets and commas decide where an
element ends, so an element that is not JSON is one bad row and not a bad file. Worked example, ``[{"a": [1, 2]}, 7]``:
the depth of brackets outside of strings is 1 between the elements. An element ends at a comma at depth 1, or at the
bracket that brings the depth from 1 to 0. The comma between 1 and 2 stands at depth 3 and ends nothing.

CSV is read by Python's `csv`, records below a header, every cell a text. Cells of some columns hold JSON:
``[{"role": "user", …}]`` for messages; an empty one counts as absent. `true` and `false` under `label` are booleans, so
that a rated answer is seen as one. Every other cell is the text it is.
"""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import InputError
from packer.source.decode import Refused
from packer.source.file_bytes import BLANK, READ_BYTES, FilePath, no_rows, shown, skip_blank_lines
from packer.source.partition import CSV_FORMATS, Format
from packer.source.row import Columns, FileRow, row_too_large
from packer.source.schema import columns_of, text_converters
from packer.source.unsupported_rows import MEDIA_FIELDS

MAX_RECORD_BYTES = 256 * 2**20
"""A record is held until its quotes are closed; a file with a longer one is refused."""

_DELIMITERS = b",;\t|"

csv.field_size_limit(2**31 - 1)  # Of the process: it can only be set for all. `rows.max_bytes` is the limit here.


def text_rows(
    path: FilePath,
    stream: io.BufferedReader,
    format: Format,  # noqa: A002 - the recipe's word
    *,
    columns: Columns,
    max_row_bytes: int,
) -> Iterator[FileRow]:
    """The rows of JSON or CSV. One of more than `max_row_bytes` comes as `row_too_large`, and is not held.

    Raises:
        InputError: the file is no CSV, or no JSON.

    """
    too_large = row_too_large(max_row_bytes)
    if format in CSV_FORMATS:
        yield from csv_rows(path, stream, format, columns=columns, max_row_bytes=max_row_bytes)
    elif format == "jsonl":
        for content, line in split_lines(stream, max_row_bytes=max_row_bytes):
            yield FileRow(too_large if content is None else content, line, len(content or b""))
    else:
        for content in split_elements(path, stream, max_row_bytes=max_row_bytes):
            yield FileRow(too_large if content is None else content, None, len(content or b""))


class Record(NamedTuple):
    line: int
    """The line of the file it begins at, from 1."""

    num_bytes: int
    cells: list[str] | Refused


def read_csv(path: FilePath, stream: io.BufferedReader, kind: Format) -> tuple[tuple[str, ...], "Iterator[Record]"]:
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
    path: FilePath, stream: io.BufferedReader, kind: Format, *, columns: Columns, max_row_bytes: int
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

    def __init__(self, path: FilePath, stream: io.BufferedReader) -> None:
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


_QUOTE, _COMMA = b'",'

_STEP = np.zeros(256, np.int64)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1

_STRUCTURAL = np.zeros(256, np.bool_)
_STRUCTURAL[list(b"[]{},")] = True


def split_lines(stream: io.BufferedReader, *, max_row_bytes: int) -> Iterator[tuple[bytes | None, int]]:
    """Cut a stream into rows, each with its line from 1.

    A row of more than `max_row_bytes` comes as None and is never held in memory. Blanks around a row are not part of
    what is handed out, but count towards its size.
    """
    number = 0
    while line := stream.readline(max_row_bytes + 2):  # a newline, and a byte that tells that there are more
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
    """Cut a stream into the elements of its array; one of more than `max_row_bytes` comes as None, never held.

    A stream that begins with ``{`` is a single element. What stands between two commas is an element even if blank.

    Raises:
        InputError: no array and no object, brackets left open, or something after the end.

    """
    chunks = iter(partial(stream.read, READ_BYTES), b"")
    opening = next(filter(None, (chunk.lstrip(BLANK) for chunk in chunks)), b"")
    if not opening:
        return
    if opening[:1] not in (b"[", b"{"):
        raise _broken(path, "it begins neither with [ nor with {")
    single = opening[:1] == b"{"
    brackets, element = _Brackets(), _OpenElement(max_row_bytes)
    start = 0 if single else 1  # the array's own bracket belongs to no element, the single object's brackets do
    empty = True
    for chunk in chain([opening], chunks):
        data, ends = brackets.ends(chunk, single=single)
        for end, closes in ends:
            element.add(data[start : end + single])
            start = end + 1
            if not (closes and empty and element.num_bytes == 0):
                yield element.take()
            empty = False
            if closes:
                if any(piece.strip(BLANK) for piece in chain([data[start:], brackets.held], chunks)):
                    raise _broken(path, "something follows the end of its array or object")
                return
        element.add(data[start:])
        start = 0
    raise _broken(path, "it ends inside its array or object")


def _broken(path: FilePath, what: str) -> InputError:
    return InputError(f"{path}: is not JSON: {what}", hint="for a file of JSON lines, set format: jsonl")


@dataclass(slots=True)
class _Brackets:
    """How deep brackets are nested, and what the next chunk must know of the one before."""

    depth: int = 0
    in_string: bool = False
    held: bytes = b""
    """A backslash at the end of a chunk, which belongs to the byte after it."""

    def ends(self, chunk: bytes, *, single: bool) -> tuple[bytes, list[tuple[int, bool]]]:
        """The chunk without what is held, and where in it an element ends, each with whether the array ends there."""
        data = self.held + chunk
        self.held = b"\\" * ((len(data) - len(data.rstrip(b"\\"))) % 2)
        data = data[: len(data) - len(self.held)]
        if not data:
            return data, []
        # Two bytes for two, from left to right: after this no quote and no backslash is escaped.
        plain = np.frombuffer(data.replace(b"\\\\", b"__").replace(b'\\"', b"__"), np.uint8)
        inside = (np.cumsum(plain == _QUOTE, dtype=np.int32) + self.in_string) % 2 == 1
        self.in_string = bool(inside[-1])
        places: npt.NDArray[np.int64] = np.flatnonzero(_STRUCTURAL[plain] & ~inside)
        kinds = plain[places]
        depths = self.depth + np.cumsum(_STEP[kinds])
        if len(depths):
            self.depth = int(depths[-1])
        closes = (depths <= 0) & (_STEP[kinds] < 0)
        chosen = np.flatnonzero(closes | ((kinds == _COMMA) & (depths == 1) & (not single)))
        return data, list(zip(places[chosen].tolist(), closes[chosen].tolist(), strict=True))


@dataclass(slots=True)
class _OpenElement:
    """An element whose end has not been seen yet."""

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

    def take(self) -> bytes | None:
        element = b"".join(self.pieces).strip(BLANK) if self.num_bytes <= self.max_row_bytes else None
        self.num_bytes, self.pieces = 0, []
        return element
