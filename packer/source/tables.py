"""Rows of Parquet and Arrow files, as the values a row of JSON would have."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from packer.errors import InputError
from packer.limits import out_of
from packer.source.arrow_ipc import arrow_batches, arrow_schema, open_arrow
from packer.source.columns import JSON_FIELDS, MESSAGES_FIELDS, columns_of
from packer.source.decode import Refused
from packer.source.file_bytes import changed, read_chunks, shown
from packer.source.parquet import open_parquet, parquet_batches, parquet_groups
from packer.source.partition import FileStatus, Partition, TableFormat
from packer.source.row import ID_FIELDS, FileRow, json_in_text, messages_in_text, row_too_large
from packer.source.row_groups import Group
from packer.source.table_values import Convert, bytes_of, converter, is_foreign, is_text, shares_buffers
from packer.source.unsupported_rows import MEDIA_FIELDS, PREFERENCE_FIELDS

_SLICE_ROWS = 1000
"""Rows of a record batch of Arrow that are Python values at one time."""


def row_groups(path: Path, kind: TableFormat) -> tuple[Group, ...]:
    """The row groups of a Parquet file, or the record batches of an Arrow file.

    Raises:
        InputError: it cannot be read, or is not whole; or two columns have the same name.

    """
    with _named(path, kind):
        if kind == "parquet":
            with open_parquet(path) as file:
                schema, groups = file.schema_arrow, parquet_groups(path, file.metadata)
        else:
            outline = open_arrow(path)
            schema, groups = outline.schema, outline.groups
        _refuse_repeated(path, schema)
        return groups


def table_schema(path: Path, kind: TableFormat) -> pa.Schema:
    """Names and types of the columns; of an Arrow file only its beginning is read.

    Raises:
        InputError: the file cannot be read, or two columns have the same name.

    """
    with _named(path, kind):
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


def table_rows(
    path: Path,
    kind: TableFormat,
    names: Sequence[str],
    *,
    columns: Mapping[str, str | None],
    max_row_bytes: int,
    partition: Partition | None = None,
) -> Iterator[FileRow]:
    """The rows of a file, or those from the start of a partition on, to the end of its groups.

    Args:
        path: The file.
        kind: Its format.
        names: Columns that are read.
        columns: New name of a field → its name in the rows, or None to hide it: tells which columns hold pictures, of
            which only is asked whether there is one, and of which a text is JSON.
        max_row_bytes: A larger row comes as `row_too_large`; sizes are those of the columns that are read.
        partition: Whose rows; None for all.

    Raises:
        InputError: the file cannot be read, or is damaged.

    """
    uses = _Uses(
        media=frozenset(columns_of(MEDIA_FIELDS, names, columns)),
        json=frozenset(columns_of(JSON_FIELDS, names, columns)),
        messages=frozenset(columns_of(MESSAGES_FIELDS, names, columns)),
        optional=frozenset(columns_of((*ID_FIELDS, *PREFERENCE_FIELDS, "label"), names, columns)),
    )
    skip = partition.skip if partition is not None else 0
    with _named(path, kind):
        for batch in _batches(path, kind, names, partition):
            passed = min(skip, batch.num_rows)
            skip -= passed
            own = batch.select(list(names))  # a name with a dot in it brings others
            for start in range(passed, own.num_rows, _SLICE_ROWS):
                yield from _rows(own.slice(start, _SLICE_ROWS), max_row_bytes, uses)


def _batches(
    path: Path, kind: TableFormat, names: Sequence[str], partition: Partition | None
) -> Iterator[pa.RecordBatch]:
    if kind == "arrow":
        return arrow_batches(path) if partition is None else arrow_batches(path, partition.start, partition.stop)
    if partition is None:
        return parquet_batches(path, None, names)
    return parquet_batches(path, range(partition.first_group, partition.first_group + partition.num_groups), names)


def refuse_changed(partition: Partition) -> None:
    """Compare the file of a table's partition with what it was. One that was only touched is read once more.

    Raises:
        InputError: it is another file, or cannot be read.

    """
    assert partition.table is not None, "partitions of tables have it"
    path = partition.path
    if FileStatus.of(path) != partition.table.status and table_sha256(path) != partition.table.sha256:
        raise changed(path, "it is not the file it was")


def table_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    for chunk in read_chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def _named(path: Path, kind: TableFormat) -> Iterator[None]:
    """Whatever a broken file makes of the reader, the file is named."""
    try:
        yield
    except (pa.lib.ArrowException, OSError, EOFError, ValueError, MemoryError, OverflowError) as error:
        if (limit := out_of(error, f"{path}: cannot be read")) is not None:
            raise limit from error
        name = {"parquet": "Parquet", "arrow": "an Arrow file"}[kind]
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"{path}: cannot be read as {name}: {shown(lines[0], 200)[1:-1]}",
            hint="is the file whole? Write or fetch it again",
        ) from error


def _rows(batch: pa.RecordBatch, max_row_bytes: int, uses: _Uses) -> Iterator[FileRow]:
    """The rows of a batch; one by one where they may be too large, or where a text is not UTF-8."""
    num_bytes = bytes_of(batch)
    is_single = batch.num_rows == 1
    values: Sequence[dict[str, Any] | Refused] | None = None
    if num_bytes <= max_row_bytes or (is_single and _fits(batch, max_row_bytes)):
        try:
            values = list(_values(batch, uses))
        except UnicodeDecodeError:
            values = [Refused("not_utf8", "a text is not valid UTF-8")] if is_single else None
    elif is_single:
        values = [row_too_large(max_row_bytes)]
    if values is None:
        for i in range(batch.num_rows):
            yield from _rows(batch.slice(i, 1), max_row_bytes, uses)
        return
    for value in values:
        yield FileRow(value, None, num_bytes // batch.num_rows)


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
