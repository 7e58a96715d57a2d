"""Rows of Parquet and Arrow files, as the values a row of JSON would have."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from packer.errors import InputError
from packer.limits import out_of
from packer.source.arrow_ipc import arrow_batches, arrow_schema, open_arrow
from packer.source.arrow_message import MAX_UNFOLDED_BYTES
from packer.source.chunks import shown
from packer.source.decode import Refused
from packer.source.groups import Group
from packer.source.parquet import open_parquet, parquet_batches
from packer.source.parquet_footer import row_groups
from packer.source.projection import JSON_FIELDS, MESSAGES_FIELDS, columns_of
from packer.source.row import ID_FIELDS, json_in_text, messages_in_text
from packer.source.unsuited import MEDIA_FIELDS, PREFERENCE_FIELDS
from packer.source.validated import all_in_utf8
from packer.source.values import Convert, bytes_of, converter, is_foreign, is_text, shares_buffers

TableFormat = Literal["parquet", "arrow"]

BATCH_ROWS = 1000
_BATCH_BYTES = 16 * 2**20

RowValue: TypeAlias = tuple[dict[str, Any] | Refused, int]
"""A row, or why it is none, and about how many bytes it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The outline of a file."""

    schema: pa.Schema
    groups: tuple[Group, ...]

    @property
    def outline(self) -> bytes:
        """What of the file, beside the bytes of a group, decides its rows: names and types of the columns."""
        return "\n".join(f"{field.name}: {field.type}" for field in self.schema).encode()


def open_table(path: Path, kind: TableFormat) -> Table:
    """Read the outline of a file.

    Raises:
        InputError: it cannot be read, or is not whole; or two columns have the same name.

    """
    with _told(path, kind):
        if kind == "parquet":
            with open_parquet(path) as file:
                table = Table(schema=file.schema_arrow, groups=row_groups(path))
                if file.metadata.num_row_groups != len(table.groups):
                    raise ValueError("its footer is damaged")
        else:
            outline = open_arrow(path)
            table = Table(schema=outline.schema, groups=outline.groups)
        _refuse_repeated(path, table.schema)
        return table


def table_schema(path: Path, kind: TableFormat) -> pa.Schema:
    """Names and types of the columns; of an Arrow file only its beginning is read.

    Raises:
        InputError: the file cannot be read, or two columns have the same name.

    """
    with _told(path, kind):
        if kind == "arrow":
            schema = arrow_schema(path)
        else:
            with open_parquet(path) as file:
                schema = file.schema_arrow
        _refuse_repeated(path, schema)
        return schema


def _refuse_repeated(path: Path, schema: pa.Schema) -> None:
    repeated = sorted(name for name, count in Counter(schema.names).items() if count > 1)
    if repeated:
        raise InputError(
            f"{path}: has more than one column {shown(repeated[0])}",
            hint="rename or drop one, and write the file again",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Uses:
    """Columns that are not read as they stand."""

    media: frozenset[str]
    """Of which only is asked whether there is something."""

    json: frozenset[str]
    """In which a text is JSON."""

    messages: frozenset[str]
    """In which a text may be the JSON of messages."""

    optional: frozenset[str]
    """Which say something if they hold what JSON can hold, and nothing otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Some groups of a file: where they are, by whichever of the two its format goes by."""

    groups: range | None = None
    """Of a Parquet file."""

    start: int = 0
    stop: int | None = None
    """Bytes of an Arrow file."""


def table_rows(
    path: Path,
    kind: TableFormat,
    names: Sequence[str],
    *,
    max_row_bytes: int,
    extent: Extent | None = None,
    skip: int = 0,
    columns: Mapping[str, str | None],
) -> Iterator[RowValue]:
    """The rows of some groups, or of a whole file.

    Args:
        path: The file.
        kind: Its format.
        names: Columns that are read.
        max_row_bytes: A larger row comes as `row_too_large`; sizes are those of the columns that are read.
        extent: The groups; None for all.
        skip: Rows at their beginning that are passed over.
        columns: New name of a field → its name in the rows, or None to hide it: tells which columns hold pictures, of
            which only is asked whether there is one, and of which a text is JSON.

    Raises:
        InputError: the file cannot be read, or is damaged.

    """
    uses = _Uses(
        media=frozenset(columns_of(MEDIA_FIELDS, names, columns)),
        json=frozenset(columns_of(JSON_FIELDS, names, columns)),
        messages=frozenset(columns_of(MESSAGES_FIELDS, names, columns)),
        optional=frozenset(columns_of((*ID_FIELDS, *PREFERENCE_FIELDS, "label"), names, columns)),
    )
    with _told(path, kind):
        for batch in _batches(path, kind, names, extent or Extent()):
            passed = min(skip, batch.num_rows)
            skip -= passed
            if passed == batch.num_rows:
                continue
            in_utf8 = all_in_utf8(batch)
            for start in range(passed, batch.num_rows, BATCH_ROWS):
                yield from _rows(batch.slice(start, BATCH_ROWS), max_row_bytes, uses, in_utf8=in_utf8)


@contextmanager
def _told(path: Path, kind: TableFormat) -> Iterator[None]:
    """Whatever a broken file makes of the reader, the file is named."""
    try:
        yield
    except (pa.lib.ArrowException, OSError, EOFError, ValueError, MemoryError, OverflowError) as error:
        if (limit := out_of(error, f"{path}: cannot be read")) is not None:
            raise limit from error
        name = {"parquet": "Parquet", "arrow": "an Arrow file"}[kind]
        told = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"{path}: cannot be read as {name}: {shown(told[0], 200)[1:-1]}",
            hint="is the file whole? Write or fetch it again",
        ) from error


def _batches(path: Path, kind: TableFormat, names: Sequence[str], extent: Extent) -> Iterator[pa.RecordBatch]:
    if kind == "arrow":
        for batch in arrow_batches(path, extent.start, extent.stop):
            yield batch.select(list(names))
        return
    with open_parquet(path) as file:
        groups = extent.groups if extent.groups is not None else range(file.metadata.num_row_groups)
        outlines = row_groups(path)
        for group in groups:
            outline = file.metadata.row_group(group)
            row_bytes = outline.total_byte_size // max(outline.num_rows, 1) + 1
            repeated_bytes = max(outlines[group].repeated_bytes, 1)  # a row may have the longest text of a dictionary
            batch_rows = max(1, min(BATCH_ROWS, _BATCH_BYTES // row_bytes, MAX_UNFOLDED_BYTES // repeated_bytes))
            for batch in parquet_batches(file, range(group, group + 1), names, batch_rows=batch_rows):
                yield batch.select(list(names))  # a name with a dot in it brings others


def _rows(batch: pa.RecordBatch, max_row_bytes: int, uses: _Uses, *, in_utf8: bool) -> Iterator[RowValue]:
    """The rows of a batch in which nothing points outside of it."""
    if batch.num_rows > 1 and (bytes_of(batch) > max_row_bytes or not in_utf8):
        for i in range(batch.num_rows):
            yield from _rows(batch.slice(i, 1), max_row_bytes, uses, in_utf8=in_utf8)
        return
    if bytes_of(batch) > max_row_bytes and not _fits(batch, max_row_bytes):
        yield Refused("row_too_large", f"more than rows.max_bytes, {max_row_bytes} bytes"), 0
        return
    row_bytes = bytes_of(batch) // max(batch.num_rows, 1)
    try:
        for row in _values(batch, uses):
            yield row, row_bytes
    except UnicodeDecodeError:
        assert not in_utf8, "all texts of the batch were looked at"
        yield Refused("not_utf8", "a text is not valid UTF-8"), row_bytes


def _fits(row: pa.RecordBatch, max_row_bytes: int) -> bool:
    """Whether a row that shares buffers with others, as dictionaries and views do, is small all the same."""
    if not any(shares_buffers(kind) for kind in row.schema.types):
        return False
    return sum(len(str(value)) for column in row.columns for value in column.to_pylist()) <= max_row_bytes


def _values(batch: pa.RecordBatch, uses: _Uses) -> Iterator[dict[str, Any] | Refused]:
    columns: list[tuple[str, list[Any], Convert | None]] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in uses.media:
            columns.append((name, _is_there(column).to_pylist(), None))
        elif name in uses.optional and is_foreign(column.type):
            continue
        elif name in uses.json and is_text(column.type):
            columns.append((name, column.to_pylist(), partial(json_in_text, column=name)))
        elif name in uses.messages and is_text(column.type):
            columns.append((name, column.to_pylist(), messages_in_text))
        else:
            columns.append((name, column.to_pylist(), converter(column.type, name)))
    for i in range(batch.num_rows):
        try:
            yield _row(columns, i)
        except Refused as refused:
            yield refused


def _row(columns: Sequence[tuple[str, list[Any], Convert | None]], i: int) -> dict[str, Any]:
    row = {}
    for name, values, convert in columns:
        value = values[i]
        if value is not None and convert is not None:
            value = convert(value)
        if value is not None:
            row[name] = value
    return row


def _is_there(column: pa.Array) -> pa.Array:
    """Which rows of a column of pictures have one: they are not null, no empty list and no empty text."""
    import pyarrow.compute as pc  # noqa: PLC0415 - a twentieth of a second that rows of JSON need not wait

    valid = column.is_valid()
    for measure in (pc.list_value_length, pc.binary_length):
        try:
            return pc.and_(valid, pc.greater(pc.fill_null(measure(column), 0), 0))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            continue
    return valid
