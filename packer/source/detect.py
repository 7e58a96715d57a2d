"""What a file is, by its bytes: its format, and the schema of its rows."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, cast

from packer.errors import InputError
from packer.source.arrow_ipc import CONTINUATION, MAGIC
from packer.source.compression import codec_of, decompressed
from packer.source.csv_rows import cells_of, delimiter_of, read_csv
from packer.source.decode import Refused, decode_json
from packer.source.file_bytes import BLANK, BYTE_ORDER_MARK, no_rows, read_chunks, shown, unreadable
from packer.source.partition import CSV_FORMATS, TABLE_FORMATS, CsvFormat, Format, TableFormat
from packer.source.row import FileRow
from packer.source.rows import file_rows, text_chunks
from packer.source.schema import FIELDS, Schema, rename, schema_of
from packer.source.schema_errors import listed, no_schema, schema_hint
from packer.source.tables import table_schema

_HEAD_ROWS = 500
_SPREAD_PLACES = 50
_ROWS_PER_PLACE = 10
_LONGEST_SAMPLED_BYTES = 16 * 2**20
_LONGEST_SPREAD_BYTES = 2**20
"""Longer rows, among the first ones and elsewhere, do not vote, so that a look at a file stays a look."""

_LONGEST_ALONE_BYTES = 64 * 2**20
_LONG_ROWS = 10
"""Where no row can vote, the first of so many that is no longer than this decides alone."""

_KNOWN_FIELDS = {name for groups in FIELDS.values() for group in groups for name in group}

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\xfd7zXZ\x00", "xz"),
    (b"PK\x03\x04", "a zip archive"),
    (b"SQLite format 3", "an SQLite database"),
    (b"FEA1", "the first version of Feather"),
    (b"ORC", "ORC"),
    (b"%PDF", "PDF"),
    (b"\xff\xfe\x00\x00", "UTF-32 text"),
    (b"\x00\x00\xfe\xff", "UTF-32 text"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)
_WIDE = re.compile(
    rb"(?P<UTF_32LE>[\[{]\0\0\0)|(?P<UTF_32BE>\0\0\0[\[{])|(?P<UTF_16LE>[\[{]\0)|(?P<UTF_16BE>\0[\[{])", re.DOTALL
)
"""The first bracket of a file in wide characters, without a byte order mark."""

_EXPECTED = "JSON lines, a JSON array, CSV, Parquet or Arrow"

_SAY_CSV = "say format: csv in the recipe's source, or --set sources.format=csv"

_HINTS = {
    "CSV": f"its header names no field of a schema; if it is CSV, {_SAY_CSV}, and give `columns`",
    "what may be CSV of one column": f"if it is, {_SAY_CSV}; or end its name in .csv",
    "xz": "unpack it first: xz -dk {path}; or pipe it in: xz -dc {path} | packer build - …",
    "a zip archive": "unpack it first: unzip {path}",
    "UTF-16 text": "rewrite it as UTF-8: iconv -f UTF-16 -t UTF-8 {path}",
    "UTF-32 text": "rewrite it as UTF-8: iconv -f UTF-32 -t UTF-8 {path}",
}


def detect_format(path: Path) -> Format:
    """What a file holds, packed or not: JSON lines, one JSON array or object, CSV, Parquet or Arrow.

    The bytes decide. A name counts for CSV alone, which looks like many a text: files called so, and those whose header
    names a field of a schema.

    Raises:
        InputError: the file cannot be read, is empty, or is none of these; the message says what it looks like.

    """
    head = next(read_chunks(path), b"")
    binary = _binary_format(head)
    if binary is not None:
        return binary
    codec = codec_of(path)
    if codec is not None:
        head = next(decompressed(path, read_chunks(path), codec), b"")
        if _binary_format(head) is not None:
            raise InputError(
                f"{path}: holds {_binary_format(head)} data inside {codec}",
                hint="unpack it first; it is compressed within",
            )
    return _text_format(path, head)


def _binary_format(head: bytes) -> Format | None:
    if head.startswith(b"PAR1"):
        return "parquet"
    return "arrow" if head.startswith((MAGIC, CONTINUATION)) else None


def _text_format(path: Path, head: bytes) -> Format:
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip(BLANK)
    if not text:
        raise no_rows(path)
    lines = [line.strip(b"\r") for line in text.split(b"\n")]
    wide = _WIDE.match(head)
    named = {".csv", ".tsv"}.intersection(suffix.lower() for suffix in path.suffixes[-2:])
    if named and text[:1] not in (b"[", b"{") and b"\x00" not in head:
        return "tsv" if ".tsv" in named else "csv"
    if text[:1] == b"[" and wide is None:
        # An array ends where the text does; rows that are arrays are wrong, but they are rows.
        return "jsonl" if _is_json(lines[0]) and any(line.strip(BLANK) for line in lines[1:]) else "json"
    if any(line[:1] == b"{" and _is_json(line) for line in lines):
        return "jsonl"
    if wide is not None:
        raise _in_wide_characters(path, str(wide.lastgroup).replace("_", "-"))
    if text[:1] == b"{":
        one_line = len([line for line in lines if line.strip(BLANK)]) == 1
        return "jsonl" if one_line else "json"
    delimiter = delimiter_of(text)
    names = cells_of(lines[0].decode("utf-8", "replace"), delimiter)
    if len(names) > 1 and not _KNOWN_FIELDS.isdisjoint(names):
        return "tsv" if delimiter == "\t" else "csv"
    raise _neither(path, head)


def _is_json(data: bytes) -> bool:
    try:
        decode_json(data)
    except Refused as refused:
        return refused.code != "not_json"
    return True


def _in_wide_characters(path: Path, encoding: str) -> InputError:
    return InputError(
        f"{path}: expected {_EXPECTED}, found {encoding[:6]} text",
        hint=f"rewrite it as UTF-8: iconv -f {encoding} -t UTF-8 {path}",
    )


def _neither(path: Path, head: bytes) -> InputError:
    found = next((name for signature, name in _SIGNATURES if head.startswith(signature)), None)
    if found is None and b"\x00" in head:
        found = "binary data"
    if found is None and _looks_like_csv(head):
        found = "CSV"
    if found is None and _has_header_of_one(head):
        found = "what may be CSV of one column"
    hint = _HINTS.get(found or "", "convert it to JSON lines first: one object a line, UTF-8")
    message = f"{path}: expected {_EXPECTED}, found " + (found or "text that is not JSON")
    return InputError(message, hint=hint.format(path=path))


def _has_header_of_one(head: bytes) -> bool:
    """Whether the first of several lines is the name of a field of a schema, as the header of one column would be."""
    lines = [line for line in head.decode("utf-8-sig", "replace").splitlines() if line.strip()]
    return len(lines) > 1 and _KNOWN_FIELDS.issuperset(cells_of(lines[0], ","))


def _looks_like_csv(head: bytes) -> bool:
    """Whether the first lines have the same number of fields, at least two."""
    first = head.decode("utf-8-sig", "replace").splitlines()[:3]
    widths = [{len(cells_of(line, delimiter)) for line in first} for delimiter in ",\t;"]
    return any(len(found) == 1 and min(found) > 1 for found in widths)


def detect_schema(path: Path, *, format: Format, columns: Mapping[str, str | None]) -> Schema:  # noqa: A002 - the recipe's word
    """The schema that most rows fit, of up to a thousand: the first ones, and some from fifty places of the file.

    The places are those of plain JSON lines: nothing else can be entered anywhere but at its beginning.

    Args:
        path: The file.
        format: As :func:`detect_format` says.
        columns: New name of a field → its name in the rows, or None to hide it.

    Raises:
        InputError: the file cannot be read, or no row looked at fits a schema.

    """
    rows = [*_sampled_rows(path, format, columns)]
    if not rows and format not in CSV_FORMATS and format not in TABLE_FORMATS:
        rows = _first_long_row(path, format)
    votes = Counter(schema for row in rows if (schema := schema_of(rename(row, columns))) is not None)
    if votes:
        return max(FIELDS, key=lambda schema: votes[schema])  # the first of those with most votes
    if format not in CSV_FORMATS and format not in TABLE_FORMATS:
        raise no_schema(path, rows, columns)
    found = _columns_of(path, format)
    schema = schema_of(rename(found, columns))  # its rows are empty or unreadable: each is rejected with its reason
    if schema is None:
        raise no_schema(path, [found], columns)
    return schema


def hint_of_schema(path: Path, *, format: Format, schema: Schema, columns: Mapping[str, str | None]) -> str:  # noqa: A002
    """The hint for a file none of whose rows fits the schema that was named for it, by the rows it has.

    Raises:
        InputError: the file cannot be read.

    """
    rows = [*_sampled_rows(path, format, columns)]
    return schema_hint(rows, schema, columns)


def field_names(path: Path, *, format: Format, most: int | None = None) -> set[str]:  # noqa: A002 - the recipe's word
    """The fields that the rows of a file have; of JSON, those of the rows that are looked at for the schema.

    Args:
        path: The file.
        format: Its format.
        most: Look at the first rows of a file of JSON alone, at most so many.

    Raises:
        InputError: the file cannot be read.

    """
    if format in TABLE_FORMATS or format in CSV_FORMATS:
        return {*_columns_of(path, format)}
    rows: Iterable[dict[str, Any]] = _sampled_rows(path, format, {})
    if most is not None:
        found = file_rows(path, format=format, schema=None, columns={}, max_row_bytes=_LONGEST_SAMPLED_BYTES)
        rows = _objects(islice(found, most))
    return {name for row in rows for name in row}


def refuse_missing_columns(
    path: Path,
    *,
    format: Format,  # noqa: A002 - the recipe's word
    schema: Schema,
    columns: Mapping[str, str | None],
) -> None:
    """Refuse a table without a column that every row of its schema needs: one error in place of one a row.

    Raises:
        InputError: a column is missing, or the file cannot be read.

    """
    if format not in TABLE_FORMATS and format not in CSV_FORMATS:
        return
    found = _columns_of(path, format)
    renamed = rename(found, columns)
    missing = next((group for group in FIELDS[schema] if renamed.keys().isdisjoint(group)), None)
    if missing is None:
        return
    asked = next((columns[name] for name in missing if columns.get(name) is not None), None)
    needed = (
        f"`columns` takes '{missing[0]}' from {shown(asked)}"
        if asked
        else f"schema {schema} needs {' or '.join(missing)}"
    )
    raise InputError(
        f"{path}: {needed}, and there is no such column; there are: {listed(found)}",
        hint=schema_hint([found], schema, columns),
    )


def _columns_of(path: Path, format: Format) -> dict[str, str]:  # noqa: A002
    """Columns of a table → their types."""
    if format in CSV_FORMATS:
        return dict.fromkeys(read_csv(path, text_chunks(path), cast("CsvFormat", format)).names, "string")
    schema = table_schema(path, cast("TableFormat", format))
    return {field.name: str(field.type) for field in schema}


def _sampled_rows(path: Path, format: Format, columns: Mapping[str, str | None]) -> Iterator[dict[str, Any]]:  # noqa: A002
    """The objects among the rows that are looked at."""
    rows = file_rows(path, format=format, schema=None, columns=columns, max_row_bytes=_LONGEST_SAMPLED_BYTES)
    if format != "jsonl" or codec_of(path) is not None:
        yield from _objects(islice(rows, 2 * _HEAD_ROWS))
        return
    head_bytes = 0
    for row in islice(rows, _HEAD_ROWS):
        head_bytes += row.num_bytes
        yield from _objects([row])
    yield from _objects(_spread_lines(path, head_bytes))


def _objects(rows: Iterable[FileRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        with suppress(Refused):
            if isinstance(value := row.value(), dict):
                yield value


def _first_long_row(path: Path, format: Format) -> list[dict[str, Any]]:  # noqa: A002
    """The first object among the first rows, of those that are too long to vote; none where there is none.

    Raises:
        InputError: all of them are longer still.

    """
    found = file_rows(path, format=format, schema=None, columns={}, max_row_bytes=_LONGEST_ALONE_BYTES)
    are_too_long = set()
    for row in islice(found, _LONG_ROWS):
        are_too_long.add(isinstance(row.content, Refused))
        if objects := [*_objects([row])]:
            return objects
    if are_too_long == {True}:
        raise InputError(
            f"{path}: its first rows have more than {_LONGEST_ALONE_BYTES // 2**20} MiB each, and are not looked at",
            hint="name their schema (--schema, or `schema` in the recipe's source); rows.max_bytes says which rows are "
            "taken: --set rows.max_bytes=1GiB",
        )
    return []


def _spread_lines(path: Path, head_bytes: int) -> Iterator[FileRow]:
    """The rows after places at equal distances; a place within the first rows is passed over."""
    try:
        with path.open("rb") as file:
            num_bytes = file.seek(0, 2)
            for place in (num_bytes * i // _SPREAD_PLACES for i in range(1, _SPREAD_PLACES)):
                if place < head_bytes:
                    continue
                file.seek(place)
                # The first piece is the rest of the row the place lies in.
                for i in range(_ROWS_PER_PLACE + 1):
                    line = file.readline(_LONGEST_SPREAD_BYTES)
                    if line[-1:] != b"\n":
                        break  # too long, or the end of the file
                    if i and line.strip(BLANK):
                        yield FileRow(line.strip(BLANK), None, len(line))
    except OSError as error:
        raise unreadable(path, error) from error
