"""Reads the rows of a file or of a partition: each becomes a sample or a rejection."""

import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, count, islice
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pyarrow as pa
import xxhash

from packer.batches import Rejection, RowBatch, Sample
from packer.media.carried import Images, marked
from packer.media.images import UnusableImageError
from packer.source.decode import Refused, decoded_json
from packer.source.file_bytes import (
    TABLE_FORMATS,
    FilePath,
    FileStatus,
    Format,
    changed_error,
    codec_of,
    file_sha256,
    no_rows_error,
    read_chunks,
    tee_chunks,
    text_stream,
)
from packer.source.forms import FIELDS as FORM_FIELDS
from packer.source.partition import Partition, TableFile
from packer.source.row import Columns, FileRow, field_value, rename
from packer.source.schema import SCHEMAS, columns_read, fields_read, read_plain_rows, read_row
from packer.source.table_files import GroupRange, table_schema
from packer.source.tables import table_rows
from packer.source.text_rows import decoded_lines, text_rows
from packer.source.unsupported_rows import IMAGE_FIELDS, may_say_end

BATCH_BYTES = 16 * 2**20
"""A batch ends once its rows exceed this size, so batches are bounded by bytes as well as by rows."""

_CELLS = (*IMAGE_FIELDS, "messages", "conversations")
"""Fields that are JSON text in tables."""


class _How(TypedDict):
    schema: str
    columns: Columns


def file_stream(path: FilePath) -> io.BufferedReader:
    """Open the decompressed text of a file."""
    return text_stream(path, read_chunks(path), codec_of(path))


def file_rows(
    path: FilePath,
    *,
    format: Format,  # noqa: A002 - the recipe's word
    schema: str | None,
    columns: Columns,
    max_row_bytes: int,
    some: GroupRange | None = None,
    is_asked: Callable[[pa.Field], bool] | None = None,
) -> Iterator[FileRow]:
    """Yield the rows of a file from its start, or those of a table from the start of a range of groups.

    For a table, only the columns of the schema are decoded; if `schema` is None, those that determine one. Of other
    columns, those that are asked for come in addition.
    """
    if format in TABLE_FORMATS:
        every = table_schema(path, format)
        yield from table_rows(
            path,
            format,
            columns_read(every, schema, columns),
            columns=columns,
            max_row_bytes=max_row_bytes,
            some=some,
            fields=[field.name for field in every if is_asked is not None and is_asked(field)],
        )
    else:
        yield from text_rows(path, file_stream(path), format, columns=columns, max_row_bytes=max_row_bytes)


def refuse_empty(path: FilePath, *, format: Format) -> None:  # noqa: A002 - the recipe's word
    """Check that the file has at least one row, valid or not; a NoRowsError says that it has none."""
    if next(file_rows(path, format=format, schema=None, columns={}, max_row_bytes=1), None) is None:
        raise no_rows_error(path)


def read_rows(
    partition: Partition,
    *,
    schema: str,
    columns: Columns,
    roles: Mapping[str, str] = {},
    max_row_bytes: int,
    fields: Sequence[str] = (),
    batch_rows: int = 1024,
) -> Iterator[RowBatch]:
    """Yield the rows of a partition in batches.

    Memory is bounded by a batch: `batch_rows` rows, or about `BATCH_BYTES` plus one row. The digest of the partition is
    checked after its last row: a caller that uses the rows must read to the end. A row of more than `max_row_bytes` is
    rejected without being held in memory. `fields` are paths of fields, under their names in the file, whose values the
    batches have in addition; they do not affect the samples.
    """
    how: _How = {"schema": schema, "columns": columns}
    first_line, folder = partition.first_line, folder_of(partition.path)
    read = partial(read_batch, first_line=first_line, roles=roles, fields=fields, folder=folder, **how)
    first = num_bytes = 0
    pending: list[FileRow] = []
    for row in _partition_rows(partition, max_row_bytes=max_row_bytes, fields=fields, **how):
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
    folder: str | None = None,
) -> RowBatch:
    """Read consecutive rows; `first` is the number of the first, `first_line` the lines before the partition."""
    values: list[Any] = [row.content for row in rows]
    samples = read_plain_rows(values, first, schema=schema, columns=columns, roles=roles)
    rejections: list[Rejection] = []
    read = partial(_read_row, schema=schema, columns=columns, roles=roles)
    for place in [place for place, sample in enumerate(samples) if sample is None]:
        number, value, values[place] = first + place, None, None
        try:
            value = values[place] = rows[place].value()
            samples[place] = read(value, number=number)
        except Refused as refused:
            rejections.append(Rejection(row=number, code=refused.code, reason=refused.reason))
    named = (
        [value if row.fields is None else row.fields for row, value in zip(rows, values, strict=True)] if fields else []
    )
    return RowBatch(
        samples=tuple([sample for sample in samples if sample is not None]),
        rejections=tuple(rejections),
        num_rows=len(rows),
        first=first,
        lines=tuple([first_line + row.line for row in rows if row.line is not None]) or None,
        fields=tuple(tuple([field_value(row, path) for row in named]) for path in fields),
        names=frozenset().union(*{tuple(value) for value in values if type(value) is dict}),
        folder=folder,
    )


def _read_row(value: Any, *, number: int, schema: str, columns: Columns, roles: Mapping[str, str]) -> Sample:
    """Read a row as `packer.source.schema.read_row` does; of one that is refused because of its media, the images."""
    try:
        return read_row(value, number=number, schema=schema, columns=columns, roles=roles)
    except Refused as error:
        if error.code != "multimodal":
            raise
        refused = error
    try:
        row = rename(value, columns)
        texts = {name: decoded_json(row[name]) for name in _CELLS if isinstance(row.get(name), str)}
        row, sources = marked(row | {name: cell for name, cell in texts.items() if cell is not None})
    except UnusableImageError as error:
        raise Refused(error.code, error.reason) from None
    if not sources:
        raise refused
    images = Images(sources, refused.reason)
    sample = read_row(row, number=number, schema=schema, columns={}, roles=roles)
    return sample.with_sides(lambda side: msgspec.structs.replace(side, images=images))


def folder_of(path: FilePath) -> str | None:
    """Return the folder where the paths of images in rows begin; None if the file is not on this machine."""
    return str(path.parent) if isinstance(path, Path) else None


def _partition_rows(
    partition: Partition, *, schema: str, columns: Columns, max_row_bytes: int, fields: Sequence[str]
) -> Iterator[FileRow]:
    """Yield the rows of a partition, then check that it has not changed."""
    path = partition.path
    digest = xxhash.xxh3_128()
    chunks = tee_chunks(read_chunks(path, partition.start, partition.stop), digest.update)
    if partition.table is not None:
        _refuse_changed_table(path, partition.table)
        rows = file_rows(
            path,
            format=partition.format,
            schema=schema,
            columns=columns,
            max_row_bytes=max_row_bytes,
            some=partition.table.groups,
            is_asked=lambda column: any(f"{field}.".startswith(f"{column.name}.") for field in fields),
        )
    else:
        stream = text_stream(path, chunks, partition.codec, at_start=not partition.start)
        rows = (
            decoded_lines(stream, max_row_bytes=max_row_bytes)
            if partition.format == "jsonl"
            else text_rows(path, stream, partition.format, columns=columns, max_row_bytes=max_row_bytes)
        )
    numbers = count(1)  # none is 0, so no row is left out; a loop takes longer than decoding a short row
    yield from compress(islice(rows, partition.num_rows), numbers)
    num_rows = next(numbers) - 1
    if partition.table is not None:
        _refuse_changed_table(path, partition.table)
    else:
        for _ in chunks:  # read the rest for the digest
            pass
        if num_rows == partition.num_rows and digest.hexdigest() != partition.xxh3:
            raise changed_error(path, f"bytes {partition.start} to {partition.stop} are not what they were")
    if num_rows != partition.num_rows:
        raise changed_error(path, f"expected {partition.num_rows} rows, found {num_rows}")


def _refuse_changed_table(path: FilePath, table: TableFile) -> None:
    """Check that the file of a table's partition is unchanged; it is only hashed again if its status has changed."""
    if FileStatus.of(path) != table.status and file_sha256(path) != table.sha256:
        raise changed_error(path, "it is not the file it was")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRow:
    """A row as it is in its file, and the sample or rejection it was read as."""

    number: int
    """Its number in the file, from 0, not counting blank lines."""

    line: int | None
    """Its line in the file, from 1; None if rows are not lines."""

    content: bytes | None
    """The row's JSON, encoded from its values if the file is not JSON. None if the row is larger than `rows.max_bytes`,
    or if its values cannot be read."""

    batch: RowBatch
    """A batch of this row alone: one sample or one rejection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """An input file and how its rows are read."""

    name: str
    """The name by which a recipe would refer to this file alone."""

    path: FilePath
    split: str
    format: Format
    schema: str
    columns: Columns
    limit: int | None
    """Maximum number of the file's rows that the recipe uses; None for all."""

    max_row_bytes: int
    roles: Mapping[str, str] = field(default_factory=dict)
    source: int = 0
    """The number of its source in the recipe."""

    def unread(self, names: Collection[str]) -> set[str]:
        """Return those of the fields of its rows that neither the schema reads nor `columns` mentions."""
        read = fields_read(self.schema).difference(SCHEMAS[self.schema].checked_fields)
        mapped = (new for new, old in self.columns.items() if old is not None)
        if SCHEMAS[self.schema].missing(dict.fromkeys((*names, *mapped), True)) is not None:
            read |= FORM_FIELDS
        if self.schema != "rated":
            read -= {"label"}  # checked, but used only if boolean
        others = {*names}.difference(read, self.columns, self.columns.values())
        return {name for name in others if not may_say_end(name)}

    def rows(self, start: int = 0) -> Iterator[RawRow]:
        """Yield the rows from `start` to the limit, one at a time, without reading the whole file."""
        number = -1
        how: _How = {"schema": self.schema, "columns": self.columns}
        found = file_rows(self.path, format=self.format, max_row_bytes=self.max_row_bytes, **how)
        for number, row in enumerate(found):
            if number == self.limit:
                return
            if number >= start:
                batch = read_batch([row], number, first_line=0, roles=self.roles, folder=folder_of(self.path), **how)
                content = None if isinstance(row.content, Refused) else row.content
                content = msgspec.json.encode(content) if isinstance(content, dict) else content
                yield RawRow(number=number, line=row.line, content=content, batch=batch)
        if number < 0:
            raise no_rows_error(self.path)
