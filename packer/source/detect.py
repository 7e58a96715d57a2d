"""Detects the format of a file from its bytes, and the schema of its rows."""

import shlex
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice, starmap
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa

from packer.errors import InputError
from packer.host.files import FETCH_LFS, LFS_POINTER
from packer.names import data_ending
from packer.source.decode import Refused, decode_json, decoded_json
from packer.source.file_bytes import (
    BLANK,
    BYTE_ORDER_MARK,
    CSV_FORMATS,
    PIPED,
    TABLE_FORMATS,
    FilePath,
    Format,
    codec_of,
    decompressed,
    no_rows_error,
    read_chunks,
)
from packer.source.jq_commands import texts_as_rows
from packer.source.row import Columns, FileRow, rename
from packer.source.rows import InputFile, file_rows, file_stream
from packer.source.schema import SCHEMAS, schema_of
from packer.source.table_files import ARROW_CONTINUATION, ARROW_MAGIC, table_schema
from packer.source.tables import is_foreign, is_searched
from packer.source.text_rows import CsvFile
from packer.source.unsupported_rows import MEDIA_FIELDS

_SAMPLED_ROWS = 1000
_SAMPLED_BYTES = 64 * 2**20
"""Limits of the sample of first rows that determines a file's schema."""

_LONGEST_SAMPLED_BYTES = 16 * 2**20
"""Longer rows are not part of the sample, so that inspecting a file stays cheap."""

_EXPECTED = "JSON lines, a JSON array, CSV, Parquet or Arrow"

_FOREIGN: tuple[tuple[int, bytes | tuple[bytes, ...], str, str], ...] = (
    (0, b"\xfd7zXZ\x00", "xz", "unpack it first: xz -dk {path}; or pipe it in: xz -dc {path} | packer build - …"),
    (0, b"BZh", "bzip2", "unpack it first: bunzip2 -k {path}; or pipe it in: bzcat {path} | packer build - …"),
    (0, b"PK\x03\x04", "a zip archive", "unpack it first: unzip {path}; of a spreadsheet, save the table as CSV"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it first: 7z x {path}"),
    (257, (b"ustar\x00", b"ustar  \x00"), "a tar archive", "unpack it first: tar -xf {path}"),
    (0, (b"{'", b"[{'"), "objects as Python prints them", "write them with json.dumps, one object a line"),
    (0, LFS_POINTER, "a pointer of Git LFS in place of the file", FETCH_LFS),
    (0, b"\xff\xfe\x00\x00", "UTF-32 text", "rewrite it as UTF-8: iconv -f UTF-32 -t UTF-8 {path}"),
    (0, (b"\xff\xfe", b"\xfe\xff"), "UTF-16 text", "rewrite it as UTF-8: iconv -f UTF-16 -t UTF-8 {path}"),
)
"""Signatures of common formats that packer does not read: position, bytes, name and hint. Those of tar (POSIX and GNU)
contain a NUL, which tells them from a text with "mustard" there."""

_MAY_BE_CSV = (
    "if it is CSV, say format: csv in the recipe's source, or --set sources.format=csv; else convert it to JSON lines: "
    "one object a line, UTF-8"
)


def detect_format(path: FilePath) -> Format:
    """Return the format of a file, compressed or not: JSON lines, one JSON array or object, CSV, Parquet or Arrow.

    The bytes decide, but for CSV, which is hard to distinguish from other text: a file is CSV if its name says so.
    """
    head = next(read_chunks(path), b"")
    binary = _binary_format(head)
    if binary is not None:
        return binary
    codec = codec_of(path)
    if codec is not None:
        head = next(decompressed(path, read_chunks(path), codec), b"")
        if (binary := _binary_format(head)) is not None:
            raise InputError(
                f"{path}: holds {binary} data inside {codec}", hint="unpack it first; it is compressed within"
            )
    for position, mark, what, hint in _FOREIGN:  # first, as an archive may contain the text of JSON lines
        if head[position:].startswith(mark):
            message = f"{path}: expected {_EXPECTED}, found {what}"
            named = "FILE" if isinstance(path, Path) and path.name == PIPED else shlex.quote(str(path))
            raise InputError(message, hint=hint.format(path=named))
    return _text_format(path, head)


def _binary_format(head: bytes) -> Format | None:
    if head.startswith(b"PAR1"):
        return "parquet"
    return "arrow" if head.startswith((ARROW_MAGIC, ARROW_CONTINUATION)) else None


def _text_format(path: FilePath, head: bytes) -> Format:
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip(BLANK)
    if not text:
        raise no_rows_error(path)
    lines = [line.strip(b"\r") for line in text.split(b"\n")]
    named = {".csv", ".tsv"}.intersection(suffix.lower() for suffix in PurePath(str(path)).suffixes[-2:])
    if named and text[:1] not in (b"[", b"{") and b"\x00" not in head:
        return "tsv" if ".tsv" in named else "csv"
    if text[:1] == b"[" and text[1:2] != b"\x00":  # a zero byte means UTF-16
        # An array ends only where the text does. Otherwise lines are rows, although arrays are invalid rows.
        return "jsonl" if _is_json(lines[0]) and any(line.strip(BLANK) for line in lines[1:]) else "json"
    if any(line[:1] == b"{" and _is_json(line) for line in lines):
        return "jsonl"
    if text[:1] == b"{" and text[1:2] != b"\x00":
        one_line = len([line for line in lines if line.strip(BLANK)]) == 1
        return "jsonl" if one_line else "json"
    raise _unknown_format(path, head)


def _is_json(data: bytes) -> bool:
    try:
        decode_json(data)
    except Refused as refused:
        return refused.code != "not_json"
    return True


def _unknown_format(path: FilePath, head: bytes) -> InputError:
    what, hint = "text that is not JSON", _MAY_BE_CSV
    if b"\x00" in head:
        what, hint = "binary data", "convert it to JSON lines first: one object a line, UTF-8"
    elif isinstance(path, Path) and path.name != PIPED and path.suffix and data_ending(path.name) is None:
        hint = f"{hint}; {texts_as_rows(path.parent, path.suffix)}"
    return InputError(f"{path}: expected {_EXPECTED}, found {what}", hint=hint)


def detect_schema(path: FilePath, *, format: Format, columns: Columns) -> str | None:  # noqa: A002 - the recipe's word
    """Return the schema that most of the first rows fit; None if none of them fits any."""
    rows = first_rows(path, format, columns)
    votes = Counter(schema for row in rows if (schema := schema_of(rename(row, columns))) is not None)
    if votes:
        return max(SCHEMAS, key=lambda schema: votes[schema])  # on a tie, the first schema
    if format not in CSV_FORMATS and format not in TABLE_FORMATS:
        return None
    # The rows are empty or unreadable: each gets a rejection of its own.
    return schema_of(rename(column_types(path, format), columns))


def first_value(path: FilePath, format: Format, columns: Columns) -> Any:  # noqa: A002 - as above
    """Return the first row, or why it cannot be read."""
    try:
        return next(_rows(path, format, columns, every_column=False)).value()
    except Refused as refused:
        return refused


def field_names(path: FilePath, *, format: Format, max_rows: int = _SAMPLED_ROWS) -> set[str]:  # noqa: A002 - the recipe's word
    """Return the columns of a table, or all fields of the first `max_rows` rows of JSON."""
    if format in TABLE_FORMATS or format in CSV_FORMATS:
        return {*column_types(path, format)}
    return {name for row in first_rows(path, format, {}, max_rows) for name in row}


def has_field(file: InputFile, field: str, *, max_rows: int | None = _SAMPLED_ROWS) -> bool:
    """Whether a table, or one of the first rows that the recipe uses, has a field, null or not; None: any row.

    A dot in the field leads into an object, or into JSON text.
    """
    if file.format in CSV_FORMATS and field in column_types(file.path, file.format):
        return True
    if file.format in TABLE_FORMATS and _has_column(pa.struct(list(table_schema(file.path, file.format))), field):
        return True
    used = islice(_rows(file.path, file.format, {}, max_row_bytes=file.max_row_bytes), file.limit)
    return any(_has_field(row, field) for row in _objects(used if max_rows is None else _sampled(used, max_rows)))


def _has_field(row: Any, path: str) -> bool:
    name, separator, rest = path.partition(".")
    row = decoded_json(row) if isinstance(row, str) else row
    return isinstance(row, dict) and (path in row or (bool(separator) and _has_field(row.get(name), rest)))


def _has_column(kind: pa.DataType, path: str) -> bool:
    """Whether a struct has a field. True for types whose fields are unknown, such as maps and JSON in text."""
    if not pa.types.is_struct(kind):
        return pa.types.is_map(kind) or isinstance(kind, pa.BaseExtensionType)
    name, separator, rest = path.partition(".")
    at = kind.get_field_index(name)
    nested = bool(separator) and at >= 0 and _has_column(kind.field(at).type, rest)
    return kind.get_field_index(path) >= 0 or nested


def column_types(path: FilePath, format: Format) -> dict[str, str]:  # noqa: A002
    """Return the type of each column of a table."""
    if format in CSV_FORMATS:
        return dict.fromkeys(CsvFile(path, file_stream(path), format).names, "string")
    return {field.name: str(field.type) for field in table_schema(path, format)}


def first_rows(
    path: FilePath,
    format: Format,  # noqa: A002 - the recipe's word
    columns: Columns,
    max_rows: int = _SAMPLED_ROWS,
    *,
    every_column: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the objects among the first rows, which determine a schema: at most `max_rows`, and about 64 MiB.

    Rows of a table have the columns that determine a schema; with `every_column`, also those that a hint may need.

    Raises:
        NoRowsError: it contains no rows.
    """
    rows = _rows(path, format, columns, every_column=every_column)
    first = next(rows, None)
    if first is None:
        raise no_rows_error(path)
    yield from _objects(_sampled(chain([first], rows), max_rows))


def whole_rows(file: InputFile, max_rows: int) -> Iterator[dict[str, Any]]:
    """Yield the objects among the first rows that the recipe uses, with every field that may have a text or a verdict.

    Of a table, values that JSON does not have are left out.
    """
    rows = _rows(file.path, file.format, file.columns, schema=file.schema)
    return _objects(_sampled(islice(rows, file.limit), max_rows))


def _rows(
    path: FilePath,
    format: Format,  # noqa: A002 - the recipe's word
    columns: Columns,
    *,
    schema: str | None = None,
    max_row_bytes: int | None = None,
    every_column: bool = True,
) -> Iterator[FileRow]:
    return file_rows(
        path,
        format=format,
        schema=schema,
        columns=columns,
        max_row_bytes=max_row_bytes or _LONGEST_SAMPLED_BYTES,
        is_asked=_may_be_asked_about if every_column else None,
    )


def _sampled(rows: Iterator[FileRow], max_rows: int) -> Iterator[FileRow]:
    left = _SAMPLED_BYTES
    for row in islice(rows, max_rows):
        yield row
        left -= row.num_bytes
        if left < 0:
            return


def _objects(rows: Iterator[FileRow]) -> Iterator[dict[str, Any]]:
    """Yield those rows that are objects, with their further fields; of a row that is refused, those alone."""
    for row in rows:
        try:
            value = row.value()
        except Refused:
            value = row.fields
        if isinstance(value, dict):
            yield _with(row.fields or {}, value)


def _with(more: Any, own: Any) -> Any:
    """Return a row, or its messages, with further fields, such as the times of messages in a table."""
    if isinstance(own, dict) and isinstance(more, dict):
        return {**more, **{name: _with(more.get(name), value) for name, value in own.items()}}
    if isinstance(own, list) and own and isinstance(own[0], dict) and isinstance(more, list):
        return [*starmap(_with, zip(more, own, strict=True))]
    return own


def _may_be_asked_about(field: pa.Field) -> bool:
    """Whether a column of a table may have a text or a verdict."""
    is_plain = not (field.type.num_fields or is_foreign(field.type))
    return field.name not in MEDIA_FIELDS and (is_plain or is_searched(field.type))
