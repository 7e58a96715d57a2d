"""The rows of a file or of a partition: every one becomes a sample or a rejection."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import msgspec
import xxhash

from packer.batches import Rejection, RowBatch, Sample
from packer.source.decode import Refused
from packer.source.file_bytes import FilePath, changed, codec_of, file_sha256, hashed, no_rows, read_chunks, text_stream
from packer.source.partition import TABLE_FORMATS, FileStatus, Format, Partition
from packer.source.row import NO_ROLES, Columns, FileRow, field_value
from packer.source.schema import columns_read, read_row
from packer.source.table_files import table_schema
from packer.source.tables import table_rows
from packer.source.text_rows import text_rows

BATCH_BYTES = 16 * 2**20
"""A batch of large rows ends early: batches are bounded by bytes as well as by rows."""


def file_stream(path: FilePath) -> io.BufferedReader:
    """The text of a file.

    Raises:
        InputError: the file cannot be read.

    """
    return text_stream(path, read_chunks(path), codec_of(path))


def file_rows(
    path: FilePath,
    *,
    format: Format,  # noqa: A002 - the recipe's word
    schema: str | None,
    columns: Columns,
    max_row_bytes: int,
) -> Iterator[FileRow]:
    """The rows of a file, from its start. Of a table, only the columns of the schema are decoded; None is any schema.

    Raises:
        InputError: the file cannot be read, or is not what its format says.

    """
    if format in TABLE_FORMATS:
        names = columns_read(table_schema(path, format).names, schema, columns)
        yield from table_rows(path, format, names, columns=columns, max_row_bytes=max_row_bytes)
    else:
        yield from text_rows(path, file_stream(path), format, columns=columns, max_row_bytes=max_row_bytes)


def refuse_empty(path: FilePath, *, format: Format) -> None:  # noqa: A002 - the recipe's word
    """Look for a first row, whatever it is.

    Raises:
        NoRowsError: there is none.
        InputError: the file cannot be read, or is not the array its format says.

    """
    if next(file_rows(path, format=format, schema=None, columns={}, max_row_bytes=1), None) is None:
        raise no_rows(path)


def read_rows(
    partition: Partition,
    *,
    schema: str,
    columns: Columns,
    roles: Mapping[str, str] = NO_ROLES,
    max_row_bytes: int,
    fields: Sequence[str] = (),
    batch_rows: int = 1024,
) -> Iterator[RowBatch]:
    """The rows of a partition, a batch at a time.

    Memory is bounded by a batch: `batch_rows` rows, or about `BATCH_BYTES` and one row. The partition is compared with
    its digest when all of it is read: whoever writes what he read must read to the end. A row of more than
    `max_row_bytes` is rejected without being held. `fields` are paths of fields of rows, under the names that the file
    has for them, whose values the batches hold besides; they change nothing of the samples.

    Raises:
        InputError: the file cannot be read, or is not what it was when it was cut.

    """
    read = partial(
        read_batch, first_line=partition.first_line, schema=schema, columns=columns, roles=roles, fields=fields
    )
    first = num_bytes = 0
    pending: list[FileRow] = []
    rows = _partition_rows(partition, schema=schema, columns=columns, max_row_bytes=max_row_bytes, fields=fields)
    for row in rows:
        pending.append(row)
        num_bytes += row.num_bytes
        if len(pending) == batch_rows or num_bytes >= BATCH_BYTES:
            yield read(pending, first)
            first += len(pending)
            pending, num_bytes = [], 0
    if pending:
        yield read(pending, first)


def read_batch(
    rows: list[FileRow],
    first: int,
    *,
    first_line: int,
    schema: str,
    columns: Columns,
    roles: Mapping[str, str],
    fields: Sequence[str] = (),
) -> RowBatch:
    """Rows that follow one another; `first` is the number of the first, `first_line` the lines before them."""
    samples: list[Sample] = []
    rejections: list[Rejection] = []
    found: list[list[Any]] = [[] for _ in fields]
    for number, row in enumerate(rows, first):
        value = None
        try:
            value = row.value()
            samples.append(read_row(value, number=number, schema=schema, columns=columns, roles=roles))
        except Refused as refused:
            rejections.append(Rejection(row=number, code=refused.code, reason=refused.reason))
        for path, values in zip(fields, found, strict=True):
            values.append(field_value(value if row.fields is None else row.fields, path))
    lines = tuple(first_line + row.line for row in rows if row.line is not None)
    return RowBatch(
        samples=tuple(samples),
        rejections=tuple(rejections),
        num_rows=len(rows),
        lines=lines or None,
        fields=tuple(tuple(values) for values in found),
    )


def _partition_rows(
    partition: Partition, *, schema: str, columns: Columns, max_row_bytes: int, fields: Sequence[str]
) -> Iterator[FileRow]:
    """The rows of a partition, which is compared with what it was at the end."""
    path = partition.path
    digest = xxhash.xxh3_128()
    chunks = hashed(read_chunks(path, partition.start, partition.stop), digest.update)
    num_rows = 0
    if partition.format in TABLE_FORMATS:
        _refuse_changed_table(partition)
        every = table_schema(path, partition.format).names
        rows = table_rows(
            path,
            partition.format,
            columns_read(every, schema, columns),
            columns=columns,
            max_row_bytes=max_row_bytes,
            partition=partition,
            fields=[name for name in every if any(field == name or field.startswith(f"{name}.") for field in fields)],
        )
    else:
        stream = text_stream(path, chunks, partition.codec, at_start=not partition.start)
        rows = text_rows(path, stream, partition.format, columns=columns, max_row_bytes=max_row_bytes)
    for num_rows, row in enumerate(islice(rows, partition.num_rows), 1):  # noqa: B007 - counted until here
        yield row
    if partition.format in TABLE_FORMATS:
        _refuse_changed_table(partition)
    else:
        for _ in chunks:  # what follows the rows that are taken
            pass
        if num_rows == partition.num_rows and digest.hexdigest() != partition.xxh3:
            raise changed(path, f"bytes {partition.start} to {partition.stop} are not what they were")
    if num_rows != partition.num_rows:
        raise changed(path, f"expected {partition.num_rows} rows, found {num_rows}")


def _refuse_changed_table(partition: Partition) -> None:
    """Compare the file of a table's partition with what it was. One that was only touched is read once more."""
    assert partition.table is not None, "partitions of tables have it"
    path = partition.path
    if FileStatus.of(path) != partition.table.status and file_sha256(path) != partition.table.sha256:
        raise changed(path, "it is not the file it was")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRow:
    """A row as it stands in its file, and what it was understood as."""

    number: int
    """From 0 in the file; blank lines do not count."""

    line: int | None
    """From 1 in the file, where its rows are lines."""

    content: bytes | None
    """None where it is larger than `rows.max_bytes`. Of a row that is no JSON in its file, its values as JSON; None
    where they could not be had."""

    batch: RowBatch
    """The row alone: one sample or one rejection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """An input, and how its rows are read."""

    name: str
    """As a recipe would name this file alone."""

    path: FilePath
    split: str
    format: Format
    schema: str
    columns: Columns
    limit: int | None
    """Rows of the file that the recipe takes; None takes all."""

    max_row_bytes: int
    roles: Mapping[str, str] = field(default_factory=dict)

    def rows(self, start: int = 0) -> Iterator[RawRow]:
        """The rows from `start` on, one at a time, up to the limit, without reading the file whole.

        Raises:
            InputError: the file cannot be read, holds no rows, or is not what its format says.

        """
        number = -1
        found = file_rows(
            self.path,
            format=self.format,
            schema=self.schema,
            columns=self.columns,
            max_row_bytes=self.max_row_bytes,
        )
        for number, row in enumerate(found):
            if number == self.limit:
                return
            if number >= start:
                batch = read_batch(
                    [row], number, first_line=0, schema=self.schema, columns=self.columns, roles=self.roles
                )
                yield RawRow(number=number, line=row.line, content=_as_json(row), batch=batch)
        if number < 0:
            raise no_rows(self.path)


def _as_json(row: FileRow) -> bytes | None:
    if isinstance(row.content, Refused):
        return None
    return row.content if isinstance(row.content, bytes) else msgspec.json.encode(row.content)
