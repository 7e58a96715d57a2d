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
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import InputError
from packer.source.decode import Refused, decode_lines
from packer.source.file_bytes import (
    BLANK,
    CSV_FORMATS,
    READ_BYTES,
    FilePath,
    Format,
    delimiter_of,
    no_rows_error,
    quoted,
    skip_blank_lines,
)
from packer.source.jq_commands import jq_command
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
        yield from CsvFile(path, stream, format).rows(columns, max_row_bytes)
    elif format == "jsonl":
        for content, line in split_lines(stream, max_row_bytes=max_row_bytes):
            yield _row_of(content, line, max_row_bytes)
    else:
        for content in split_elements(path, stream, max_row_bytes=max_row_bytes):
            yield _row_of(content, None, max_row_bytes)


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
            yield _row_of(content, number + line, max_row_bytes)
        number += len(ends) if lines else line


def _row_of(content: bytes | None, line: int | None, max_row_bytes: int) -> FileRow:
    return FileRow(row_too_large_error(max_row_bytes) if content is None else content, line, len(content or b""))


_NO_MEDIA = frozenset({"", "[]", "null", "0", "0.0", "false"})
_LABELS: Mapping[str, bool] = {"true": True, "false": False}


class CsvFile:
    """A file of CSV or TSV: the names in its header, then the records below it.

    The delimiter of TSV is the tab; that of CSV is the one that is most frequent in the header.
    """

    def __init__(self, path: FilePath, stream: io.BufferedReader, kind: Format) -> None:
        self._path = path
        self._stream = stream
        self._blank = BLANK
        """Characters of blank lines: a line that consists only of these is skipped."""

        self._number = 0
        self._first = 0
        """The line at which the current record begins."""

        self._num_bytes = 0
        self._bad_byte: int | None = None
        """Position of the first byte of the record that is not valid UTF-8."""

        first = self._line()
        if not first:
            raise no_rows_error(path)
        delimiter = "\t" if kind == "tsv" else delimiter_of(first.encode())
        self._reader = csv.reader(chain([first], iter(self._line, "")), delimiter=delimiter)
        self.names = self._header()
        # With a single column, a line of spaces is a cell of spaces, not a blank line.
        self._blank = b"\r\n" if len(self.names) == 1 else BLANK.replace(delimiter.encode(), b"")

    def rows(self, columns: Columns, max_row_bytes: int) -> Iterator[FileRow]:
        """Yield the rows; a record of more than `max_row_bytes` is yielded as `row_too_large`."""
        media, labels = (columns_with_fields(each, self.names, columns) for each in (MEDIA_FIELDS, ("label",)))
        while True:
            self._num_bytes, self._bad_byte = 0, None
            cells = self._record()
            row: dict[str, Any] | Refused
            if cells is None:
                return
            if self._num_bytes > max_row_bytes:
                row = row_too_large_error(max_row_bytes)
            elif isinstance(cells, Refused):
                row = cells
            elif len(cells) != len(self.names):
                row = Refused("wrong_type", f"the header has {len(self.names)} columns, the row {len(cells)}")
            else:
                row = dict(zip(self.names, cells, strict=True))
                given = {name: None for name in media if row[name].strip().lower() in _NO_MEDIA}
                row |= given | {name: _LABELS.get(row[name].lower(), row[name]) for name in labels}
            yield FileRow(row, self._first, self._num_bytes)

    def _header(self) -> tuple[str, ...]:
        header = self._record() or []
        if self._num_bytes > READ_BYTES:
            raise InputError(f"{self._path}: its header is longer than {READ_BYTES:,} bytes", hint="is it CSV?")
        if isinstance(header, Refused):
            utf8 = f"rewrite it as UTF-8: iconv -f ENCODING -t UTF-8 {shlex.quote(str(self._path))}"
            hint = utf8 if header.code == "not_utf8" else "end lines with newlines: tr '\\r' '\\n'"
            raise InputError(f"{self._path}: its header has {header.reason}", hint=hint)
        repeated = next((name for name, count in Counter(filter(None, header)).items() if count > 1), None)
        if repeated is not None:
            what = f"has more than one column {quoted(repeated)}"
            raise InputError(f"{self._path}: {what}", hint="rename or drop one in its header")
        return tuple(header)

    def _record(self) -> list[str] | Refused | None:
        """Return the cells of the next record, or why it has none; None at the end."""
        try:
            cells = next(self._reader, None)
        except csv.Error:
            return Refused("wrong_type", "a bare carriage return outside of quotes")
        return cells if self._bad_byte is None else Refused("not_utf8", f"invalid UTF-8 at byte {self._bad_byte}")

    def _line(self) -> str:
        """Return the next line of a record, of which `csv.reader` takes as many as it has; empty at the end."""
        line = self._next_line()
        if not self._num_bytes:
            while line and not line.strip(self._blank):
                self._number += skip_blank_lines(self._stream, self._blank)
                line = self._next_line()
            self._first = self._number
        elif not line:
            raise InputError(
                f"{self._path}: a quote that opens in the record of line {self._first} is never closed",
                hint="double the quotes inside of a quoted cell, and close it",
            )
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            text = line.decode("utf-8", "replace")
            self._bad_byte = self._num_bytes + error.start if self._bad_byte is None else self._bad_byte
        self._num_bytes += len(line)
        return text

    def _next_line(self) -> bytes:
        line = self._stream.readline(MAX_RECORD_BYTES + 1 - self._num_bytes)
        if self._num_bytes + len(line) > MAX_RECORD_BYTES:
            raise InputError(
                f"{self._path}: the record of line {self._first or self._number} has more than {MAX_RECORD_BYTES:,} "
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
    brackets, empty = _Brackets(), True
    pieces, num_bytes = list[bytes](), 0  # of the element whose end has not been found yet
    start = 0 if single else 1  # the array's bracket is not part of an element, a single object's brackets are
    for chunk in chain([opening], chunks):
        data, ends = brackets.find_ends(chunk, single=single)
        for end, closes in [*ends, (len(data), None)]:
            piece = data[start : end + single]
            piece = piece if num_bytes else piece.lstrip(BLANK)
            num_bytes += len(piece)
            if num_bytes <= max_row_bytes:
                pieces.append(piece)
            else:
                pieces.clear()
            if closes is None:  # the element goes on in the next chunk
                continue
            if not (closes and empty and num_bytes == 0):
                yield b"".join(pieces).strip(BLANK) if num_bytes <= max_row_bytes else None
            start, empty, num_bytes = end + 1, False, 0
            pieces.clear()
            if closes:
                if any(piece.strip(BLANK) for piece in chain([data[start:], brackets.pending], chunks)):
                    raise _invalid_json(path, "something follows the end of its array or object", several=single)
                return
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

    def find_ends(self, chunk: bytes, *, single: bool) -> tuple[bytes, list[tuple[int, bool | None]]]:
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
