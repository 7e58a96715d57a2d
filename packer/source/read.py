"""Reading the rows of a partition: every row becomes a sample or a rejection."""

from collections.abc import Iterator, Mapping

from packer.batches import Rejection, RowBatch, Sample
from packer.source.decode import Refused
from packer.source.partition import Partition
from packer.source.row import FileRow
from packer.source.rows import partition_rows
from packer.source.schema import Schema, read_row

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
    for row in partition_rows(partition, schema=schema, columns=columns, max_row_bytes=max_row_bytes):
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
        first_line: Lines of the file before those that rows tell.
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
