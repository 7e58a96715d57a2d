"""Rows of CSV and TSV: records below a header, every cell a text.

A cell that begins with a quote ends at the next quote that is not doubled, with delimiters and newlines in it; a quote
anywhere else is a quote. (The rules of Python's `csv`, and of pandas.) A file is cut into records before it is decoded,
so a record that is too large is never held, and one that is no UTF-8 is one bad row and not a bad file.

Cells of some columns hold JSON: ``[{"role": "user", …}]`` for messages; an empty one counts as absent. `true` and
`false` under `label` are booleans, so that a rated answer is seen as one. Every other cell is the text it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from packer.errors import InputError
from packer.source.chunks import READ_BYTES, no_rows, shown
from packer.source.decode import Refused
from packer.source.lines import BLANK, count_newlines, is_blank
from packer.source.projection import JSON_FIELDS, MESSAGES_FIELDS, columns_of
from packer.source.row import json_in_text, messages_in_text
from packer.source.unsuited import MEDIA_FIELDS

CsvFormat = Literal["csv", "tsv"]

_DELIMITERS = b",;\t|"
_QUOTE = ord('"')
_START, _PLAIN, _QUOTED, _CLOSING = range(4)
"""Where in a cell a place is: before it; outside of quotes; inside; behind a quote that may close or be doubled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvRow:
    """A record below the header."""

    line: int
    """Of the file, from 1: where it begins."""

    value: dict[str, Any] | Refused
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvRecords:
    """A file cut into records."""

    names: tuple[str, ...]
    delimiter: str
    records: Iterator[tuple[int, bytes | None]]
    """Line, from 1, and bytes of every record below the header; None for one that is too large."""


def split_csv(path: Path, chunks: Iterator[bytes], kind: CsvFormat, *, max_row_bytes: int) -> CsvRecords:
    """Read the header, and cut the rest.

    Args:
        path: The file, for errors.
        chunks: Its text, without byte order mark.
        kind: Tells a tab from the other delimiters, which are told by the header: the one that is in it most often.
        max_row_bytes: A larger record is not held.

    Raises:
        InputError: there is no header, or a column stands in it twice; from `records`, a quote is never closed.

    """
    line, head = _head(chunks)
    if not head.strip(BLANK):
        raise no_rows(path)
    delimiter = b"\t" if kind == "tsv" else delimiter_of(head)
    opened = _OpenRecord(delimiter=delimiter, max_row_bytes=max(max_row_bytes, READ_BYTES))  # for the header
    records = _records(path, chain([head], chunks), opened, line)
    _, header = next(records)
    if header is None:
        raise InputError(f"{path}: its header is longer than {READ_BYTES:,} bytes", hint="is it CSV?")
    try:
        names = fields_of(header.decode(), delimiter.decode())
    except UnicodeDecodeError:
        raise InputError(
            f"{path}: its header is not UTF-8", hint=f"rewrite it as UTF-8: iconv -t UTF-8 {path}"
        ) from None
    repeated = next((name for i, name in enumerate(names) if name and name in names[:i]), None)
    if repeated is not None:
        raise InputError(f"{path}: has more than one column {shown(repeated)}", hint="rename or drop one in its header")
    opened.max_row_bytes = max_row_bytes
    # Where there is but one column, spaces are what its cell holds.
    opened.blank = b"\r" if len(names) == 1 else BLANK.replace(delimiter, b"")
    return CsvRecords(names=tuple(names), delimiter=delimiter.decode(), records=records)


def _head(chunks: Iterator[bytes]) -> tuple[int, bytes]:
    """The beginning of a text, with all of its first line that is not blank; and the line, from 1, it begins at.

    Blank lines before it are left out, a megabyte of its own blanks at most is held.
    """
    head, line = b"", 1
    for chunk in chunks:
        head += chunk
        solid = head.lstrip(BLANK)
        if b"\n" in solid or len(solid) > READ_BYTES:
            break
        if not solid:
            line += count_newlines(head)
            head = head[head.rfind(b"\n") + 1 :][: READ_BYTES + 1]
    return line, head


def delimiter_of(head: bytes) -> bytes:
    """The delimiter that the first line has most often outside of quotes."""
    first = head.lstrip(BLANK).split(b"\n", 1)[0]
    plain = b"".join(first.split(b'"')[::2])
    return max((bytes([each]) for each in _DELIMITERS), key=plain.count)


def csv_rows(
    path: Path, chunks: Iterator[bytes], kind: CsvFormat, *, columns: Mapping[str, str | None], max_row_bytes: int
) -> Iterator[CsvRow]:
    """The rows of a file.

    Args:
        path: The file, for errors.
        chunks: Its text, without byte order mark.
        kind: Its format.
        columns: New name of a field → its name in the rows, or None to hide it: tells which columns hold JSON.
        max_row_bytes: A larger record comes as `row_too_large`.

    Raises:
        InputError: as :func:`split_csv`.

    """
    table = split_csv(path, chunks, kind, max_row_bytes=max_row_bytes)
    reader = _Reader(table.names, table.delimiter, columns)
    for line, record in table.records:
        value: dict[str, Any] | Refused
        try:
            if record is None:
                raise Refused("row_too_large", f"more than rows.max_bytes, {max_row_bytes} bytes")  # noqa: TRY301
            value = reader.row(record)
        except Refused as refused:
            value = refused
        yield CsvRow(line=line, value=value, num_bytes=len(record or b""))


def fields_of(record: str, delimiter: str) -> list[str]:
    """The cells of a record.

    Example:
        >>> fields_of('a,"b, ""c"" d",5" disk', ",")
        ['a', 'b, "c" d', '5" disk']

    """
    if '"' not in record:
        return record.split(delimiter)
    fields = []
    place = 0
    while True:
        text, place = _quoted(record, place + 1) if record.startswith('"', place) else ("", place)
        end = record.find(delimiter, place)
        fields.append(text + record[place : end if end >= 0 else len(record)])
        if end < 0:
            return fields
        place = end + len(delimiter)


def _quoted(record: str, place: int) -> tuple[str, int]:
    """The text from `place` to its closing quote, and the place behind that."""
    pieces: list[str] = []
    while True:
        quote = record.find('"', place)
        if quote < 0:
            return "".join([*pieces, record[place:]]), len(record)
        pieces.append(record[place:quote])
        if not record.startswith('"', quote + 1):
            return "".join(pieces), quote + 1
        pieces.append('"')
        place = quote + 2


class _Reader:
    """From the bytes of a record to a row."""

    def __init__(self, names: tuple[str, ...], delimiter: str, columns: Mapping[str, str | None]) -> None:
        self._names = names
        self._delimiter = delimiter
        self._json = columns_of(JSON_FIELDS, names, columns)
        self._messages = columns_of(MESSAGES_FIELDS, names, columns)
        self._media = columns_of(MEDIA_FIELDS, names, columns)
        self._label = columns.get("label", "label")

    def row(self, record: bytes) -> dict[str, Any]:
        try:
            fields = fields_of(record.decode(), self._delimiter)
        except UnicodeDecodeError as error:
            raise Refused("not_utf8", f"invalid UTF-8 at byte {error.start}") from None
        if len(fields) != len(self._names):
            raise Refused("wrong_type", f"the header has {len(self._names)} columns, the row {len(fields)}")
        row: dict[str, Any] = dict(zip(self._names, fields, strict=True))
        for name in self._json:
            row[name] = json_in_text(row[name], name)
        for name in self._messages:
            row[name] = messages_in_text(row[name])
        for name in self._media:
            row[name] = None if row[name].strip() in {"", "[]", "null"} else row[name]
        if row.get(self._label or "", "").lower() in {"true", "false"}:
            row[str(self._label)] = row[str(self._label)].lower() == "true"
        return row


def _records(
    path: Path, chunks: Iterable[bytes], opened: "_OpenRecord", line: int
) -> Iterator[tuple[int, bytes | None]]:
    """Line and bytes of every record, the header too; those that are blank are none."""
    for chunk in chunks:
        if opened.state == _QUOTED and b'"' not in chunk:
            opened.add(chunk, line)
            line += count_newlines(chunk)
            continue
        if opened.state != _QUOTED and b"\n" in chunk and is_blank(chunk, opened.blank + b"\n"):
            line += count_newlines(chunk) - 1
            chunk = chunk[: chunk.index(b"\n")] + chunk[chunk.rindex(b"\n") :]  # noqa: PLW2901
        pieces = chunk.split(b"\n")
        for last, piece in enumerate(pieces, 1 - len(pieces)):
            opened.add(piece, line)
            if not last:
                continue
            line += 1
            if opened.state == _QUOTED:
                opened.add(b"\n", line)
                continue
            if not opened.is_blank:
                yield opened.line, opened.take()
            opened.clear()
    if opened.state == _QUOTED:
        raise InputError(
            f"{path}: a quote that opens in the record of line {opened.line} is never closed",
            hint="double the quotes inside of a quoted cell, and close it",
        )
    if not opened.is_blank:
        yield opened.line, opened.take()


@dataclass(slots=True)
class _OpenRecord:
    """A record whose end has not been seen yet. Whether it is blank does not depend on how much of it is held."""

    delimiter: bytes
    max_row_bytes: int
    blank: bytes = BLANK
    """What is nothing where a record has nothing else."""

    state: int = _START
    line: int = 0
    num_bytes: int = 0
    is_blank: bool = True
    pieces: list[bytes] = field(default_factory=list)

    def add(self, piece: bytes, line: int) -> None:
        self.line = self.line or line
        self.num_bytes += len(piece)
        self.is_blank = self.is_blank and is_blank(piece, self.blank)
        if self.num_bytes <= self.max_row_bytes:
            self.pieces.append(piece)
        else:
            self.pieces.clear()
        if self.state in {_QUOTED, _CLOSING} or b'"' in piece:
            self.state = _walk(self.state, piece, self.delimiter)
        elif piece:
            self.state = _START if piece.endswith(self.delimiter) else _PLAIN

    def take(self) -> bytes | None:
        return b"".join(self.pieces).removesuffix(b"\r") if self.num_bytes <= self.max_row_bytes else None

    def clear(self) -> None:
        self.state, self.line, self.num_bytes, self.is_blank, self.pieces = _START, 0, 0, True, []


def _walk(state: int, piece: bytes, delimiter: bytes) -> int:
    """The state behind a piece of a record."""
    place = 0
    while place < len(piece):
        if state == _PLAIN:
            found = piece.find(delimiter, place)
        elif state == _QUOTED:
            found = piece.find(b'"', place)
        else:
            is_quote = piece[place] == _QUOTE
            state = _QUOTED if is_quote else _PLAIN
            place += is_quote
            continue
        if found < 0:
            return state
        state = _START if state == _PLAIN else _CLOSING
        place = found + 1
    return state
