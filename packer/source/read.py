"""Reading the rows of a partition: every row becomes a sample or a rejection."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import cast

import xxhash

from packer.batches import Rejection, RowBatch, Sample
from packer.source.columns import columns_read
from packer.source.compression import decompressed
from packer.source.decode import Refused
from packer.source.file_bytes import changed, read_chunks, without_mark
from packer.source.json_array import BrokenArray
from packer.source.partition import CSV_FORMATS, TABLE_FORMATS, Partition, TableFormat
from packer.source.row import FileRow
from packer.source.rows import text_rows
from packer.source.schema import Schema, read_row
from packer.source.tables import refuse_changed, table_rows, table_schema

BATCH_BYTES = 16 * 2**20
"""A batch of large rows ends early: batches are bounded by bytes as well as by rows."""


def read_rows(
    partition: Partition,
    *,
    schema: Schema,
    columns: Mapping[str, str | None],
    max_row_bytes: int,
    batch_rows: int = 1024,
) -> Iterator[RowBatch]:
    """The rows of a partition, a batch at a time.

    Memory is bounded by a batch: `batch_rows` rows, or about `BATCH_BYTES` and one row. The partition is compared with
    its digest when all of it is read: whoever writes what he read must read to the end.

    Args:
        partition: The piece of the file.
        schema: How to read a row.
        columns: New name of a field → its name in the rows, or None to hide it.
        max_row_bytes: A larger row is rejected without being held.
        batch_rows: Rows of a batch at most.

    Raises:
        InputError: the file cannot be read, or is not what it was when it was cut.

    """
    first = num_bytes = 0
    pending: list[FileRow] = []
    for row in _partition_rows(partition, schema=schema, columns=columns, max_row_bytes=max_row_bytes):
        pending.append(row)
        num_bytes += row.num_bytes
        if len(pending) == batch_rows or num_bytes >= BATCH_BYTES:
            yield read_batch(pending, first, first_line=partition.first_line, schema=schema, columns=columns)
            first += len(pending)
            pending, num_bytes = [], 0
    if pending:
        yield read_batch(pending, first, first_line=partition.first_line, schema=schema, columns=columns)


def read_batch(
    rows: list[FileRow], first: int, *, first_line: int, schema: Schema, columns: Mapping[str, str | None]
) -> RowBatch:
    """What some rows that follow one another say.

    Args:
        rows: The rows.
        first: Number of the first of them.
        first_line: Lines of the file before line 1 of the rows.
        schema: How to read a row.
        columns: New name of a field → its name in the rows, or None to hide it.

    """
    samples: list[Sample] = []
    rejections: list[Rejection] = []
    for number, row in enumerate(rows, first):
        try:
            samples.append(read_row(row.value(), number=number, schema=schema, columns=columns))
        except Refused as refused:
            rejections.append(Rejection(row=number, code=refused.code, reason=refused.reason))
    lines = tuple(first_line + row.line for row in rows if row.line is not None)
    return RowBatch(samples=tuple(samples), rejections=tuple(rejections), num_rows=len(rows), lines=lines or None)


def _partition_rows(
    partition: Partition, *, schema: Schema, columns: Mapping[str, str | None], max_row_bytes: int
) -> Iterator[FileRow]:
    """The rows of a partition. Whoever writes what he read must read to the end: only there is it compared.

    Raises:
        InputError: the file cannot be read, or is not what it was when it was cut.

    """
    path = partition.path
    num_rows = 0
    if partition.format in TABLE_FORMATS:
        kind = cast("TableFormat", partition.format)
        refuse_changed(partition)
        names = columns_read(table_schema(path, kind).names, schema, columns)
        rows = table_rows(path, kind, names, columns=columns, max_row_bytes=max_row_bytes, partition=partition)
        for row in islice(rows, partition.num_rows):
            num_rows += 1
            yield row
        refuse_changed(partition)
    else:
        digest = xxhash.xxh3_128()
        # No generator: one that is left early would not hand out the rest.
        chunks = map(partial(_hashed, digest), read_chunks(path, partition.start, partition.stop))
        for row in _text_of(partition, chunks, columns, max_row_bytes):
            num_rows += 1
            yield row
        for _ in chunks:
            pass  # what stands behind the rows that are taken
        if num_rows == partition.num_rows and digest.hexdigest() != partition.xxh3:
            raise changed(path, f"bytes {partition.start} to {partition.stop} are not what they were")
    if num_rows != partition.num_rows:
        raise changed(path, f"expected {partition.num_rows} rows, found {num_rows}")


def lines_of_rows(partition: Partition, rows: Sequence[int]) -> list[int] | None:
    """The lines of the file, from 1, at which these rows of a partition begin; None where rows are no lines.

    The partition is read again, for the row of an error that came without its batch.

    Args:
        partition: The piece of the file.
        rows: Row numbers from 0 within it, ascending.

    Raises:
        InputError: the file cannot be read, or is not what it was when it was cut.

    """
    if partition.format != "jsonl" and partition.format not in CSV_FORMATS:
        return None
    if not rows:
        return []
    chunks = read_chunks(partition.path, partition.start, partition.stop)
    lines = [row.line for row in _text_of(partition, chunks, columns={}, max_row_bytes=0) if row.line is not None]
    if len(lines) != partition.num_rows:
        raise changed(partition.path, f"expected {partition.num_rows} rows, found {len(lines)}")
    return [partition.first_line + lines[row] for row in rows]


def _hashed(digest: xxhash.xxh3_128, chunk: bytes) -> bytes:
    digest.update(chunk)
    return chunk


def _text_of(
    partition: Partition, chunks: Iterator[bytes], columns: Mapping[str, str | None], max_row_bytes: int
) -> Iterator[FileRow]:
    """The rows in the bytes of a partition."""
    text = decompressed(partition.path, chunks, partition.codec)
    text = text if partition.start else without_mark(text)
    rows = text_rows(partition.path, text, partition.format, columns=columns, max_row_bytes=max_row_bytes)
    try:
        yield from islice(rows, partition.num_rows)
    except BrokenArray as error:
        raise changed(partition.path, str(error)) from None
