"""Reading the rows of a partition: every row becomes a sample or a rejection."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias, cast

import xxhash

from packer.batches import Rejection, RowBatch, Sample
from packer.source.chunks import changed, read_chunks, without_mark
from packer.source.compression import decompressed
from packer.source.csv_rows import CsvFormat, CsvRow, csv_rows
from packer.source.decode import Refused, decode_json, decode_rows
from packer.source.elements import BrokenArray, split_elements
from packer.source.lines import split_lines
from packer.source.partition import CSV_FORMATS, TABLE_FORMATS, Format, Partition
from packer.source.schema import Schema, read_row
from packer.source.table_partition import partition_values
from packer.source.tables import RowValue

BATCH_BYTES = 16 * 2**20
"""A batch of large rows ends early: batches are bounded by bytes as well as by rows."""

PendingRow: TypeAlias = bytes | dict[str, Any] | Refused | None
"""A row of a batch: its bytes, or None where they are too many; or its value, or why it has none."""


def read_rows(
    partition: Partition,
    *,
    schema: Schema,
    columns: Mapping[str, str | None],
    max_row_bytes: int,
    batch_rows: int = 1024,
) -> Iterator[RowBatch]:
    """The rows of a partition, a batch at a time.

    Memory is bounded by a batch: `batch_rows` rows, or about `BATCH_BYTES` and one row. The bytes are hashed on the way
    and compared with the partition's digest when they are all read: whoever writes what he read must read to the end.

    Args:
        partition: The piece of the file.
        schema: How to read a row.
        columns: New name of a field → its name in the rows, or None to hide it.
        max_row_bytes: A larger row is rejected without being held.
        batch_rows: Rows of a batch at most.

    Raises:
        InputError: the file cannot be read, or is not what it was when it was cut.

    """
    reader = _BatchReader(schema=schema, columns=columns, max_row_bytes=max_row_bytes, first_line=partition.first_line)
    if partition.format in TABLE_FORMATS:
        values = partition_values(partition, schema=schema, columns=columns, max_row_bytes=max_row_bytes)
        yield from _table_batches(reader, values, batch_rows)
        return
    digest = xxhash.xxh3_128()
    chunks = _hashed(read_chunks(partition.path, partition.start, partition.stop), digest)
    for row, line in _rows(partition, chunks, columns, max_row_bytes):
        reader.take(row, line)
        if reader.pending_rows == batch_rows or reader.pending_bytes >= BATCH_BYTES:
            yield reader.batch()
    for _ in chunks:
        pass  # the end of a file that is read as a whole, beyond a limit
    num_rows = reader.num_rows + reader.pending_rows
    if num_rows != partition.num_rows:
        raise changed(partition.path, f"expected {partition.num_rows} rows, found {num_rows}")
    if digest.hexdigest() != partition.xxh3:
        raise changed(partition.path, f"bytes {partition.start} to {partition.stop} are not what they were")
    if reader.pending_rows:
        yield reader.batch()


def _table_batches(reader: "_BatchReader", values: Iterator[RowValue], batch_rows: int) -> Iterator[RowBatch]:
    for value, num_bytes in values:
        reader.take_value(value, num_bytes)
        if reader.pending_rows == batch_rows or reader.pending_bytes >= BATCH_BYTES:
            yield reader.batch()
    if reader.pending_rows:
        yield reader.batch()


def lines_of_rows(partition: Partition, rows: Sequence[int]) -> list[int] | None:
    """The lines of the file, from 1, at which these rows of a partition begin; None where rows are no lines.

    The partition is read again: for the row of an error, where no batch told.

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
    lines = [line for _, line in _rows(partition, chunks, columns={}, max_row_bytes=0) if line is not None]
    if len(lines) != partition.num_rows:
        raise changed(partition.path, f"expected {partition.num_rows} rows, found {len(lines)}")
    return [partition.first_line + lines[row] for row in rows]


def _is_read_whole(partition: Partition) -> bool:
    """Whether rows beyond a limit are passed over; lines are cut where the limit lies."""
    return partition.format != "jsonl" or partition.codec is not None


def _text(partition: Partition, chunks: Iterator[bytes]) -> Iterator[bytes]:
    chunks = decompressed(partition.path, chunks, partition.codec)
    return without_mark(chunks) if partition.start == 0 else chunks


def split_rows(
    chunks: Iterator[bytes],
    *,
    format: Format,  # noqa: A002 - the recipe's word
    max_row_bytes: int,
) -> Iterator[tuple[bytes | None, int | None]]:
    """The bytes of every row, None for a row that is too large; and its line, from 1, where rows are lines.

    Raises:
        BrokenArray: a JSON file whose brackets do not add up.

    """
    if format == "jsonl":
        return split_lines(chunks, max_row_bytes=max_row_bytes)
    return ((row, None) for row in split_elements(chunks, max_row_bytes=max_row_bytes))


def understand(
    row: PendingRow, *, number: int, schema: Schema, columns: Mapping[str, str | None], max_row_bytes: int
) -> Sample:
    """What a row says.

    Raises:
        Refused: with the code of the rejection.

    """
    value = _decoded(row, max_row_bytes=max_row_bytes)
    return read_row(value, number=number, schema=schema, columns=columns)


def _decoded(row: PendingRow, *, max_row_bytes: int) -> Any:
    if isinstance(row, Refused):
        raise row
    if isinstance(row, dict):
        return row
    if row is None:
        raise Refused("row_too_large", f"more than rows.max_bytes, {max_row_bytes} bytes")
    return decode_json(row)


def _hashed(chunks: Iterator[bytes], digest: xxhash.xxh3_128) -> Iterator[bytes]:
    """The chunks, hashed as they are taken. No generator: whoever stops early must leave the rest to be read."""

    def hashed(chunk: bytes) -> bytes:
        digest.update(chunk)
        return chunk

    return map(hashed, chunks)


def _rows(
    partition: Partition, chunks: Iterator[bytes], columns: Mapping[str, str | None], max_row_bytes: int
) -> Iterator[tuple[bytes | CsvRow | None, int | None]]:
    """The rows of bytes of a partition, each with its line there, from 1, where rows are lines."""
    text = _text(partition, chunks)
    rows: Iterator[tuple[bytes | CsvRow | None, int | None]]
    if partition.format in CSV_FORMATS:
        kind = cast("CsvFormat", partition.format)
        found = csv_rows(partition.path, text, kind, columns=columns, max_row_bytes=max_row_bytes)
        rows = ((row, row.line) for row in found)
    else:
        rows = split_rows(text, format=partition.format, max_row_bytes=max_row_bytes)
    try:
        yield from islice(rows, partition.num_rows) if _is_read_whole(partition) else rows
    except BrokenArray as error:
        raise changed(partition.path, str(error)) from None


class _BatchReader:
    """Numbers rows, understands them, and collects them into batches."""

    def __init__(
        self, *, schema: Schema, columns: Mapping[str, str | None], max_row_bytes: int, first_line: int
    ) -> None:
        self._schema = schema
        self._columns = columns
        self._max_row_bytes = max_row_bytes
        self._first_line = first_line
        self.num_rows = 0
        self._clear()

    def _clear(self) -> None:
        self._rows: list[PendingRow] = []
        self._lines: list[int] = []
        self.pending_bytes = 0

    @property
    def pending_rows(self) -> int:
        return len(self._rows)

    def take(self, row: bytes | CsvRow | None, line: int | None) -> None:
        if line is not None:
            self._lines.append(self._first_line + line)
        if isinstance(row, CsvRow):
            self.take_value(row.value, row.num_bytes)
            return
        self._rows.append(row)
        self.pending_bytes += len(row or b"")

    def take_value(self, value: dict[str, Any] | Refused, num_bytes: int) -> None:
        """A row that was decoded already, or why it could not be."""
        self._rows.append(value)
        self.pending_bytes += num_bytes

    def batch(self) -> RowBatch:
        rows = self._rows
        whole = [row for row in rows if isinstance(row, bytes)]
        values = decode_rows(whole) if len(whole) == len(rows) else None
        samples: list[Sample] = []
        rejections: list[Rejection] = []
        for i, number in enumerate(range(self.num_rows, self.num_rows + len(rows))):
            try:
                value = _decoded(rows[i], max_row_bytes=self._max_row_bytes) if values is None else values[i]
                samples.append(read_row(value, number=number, schema=self._schema, columns=self._columns))
            except Refused as refused:
                rejections.append(Rejection(row=number, code=refused.code, reason=refused.reason))
        lines = tuple(self._lines) if self._lines else None
        self.num_rows += len(rows)
        self._clear()
        return RowBatch(samples=tuple(samples), rejections=tuple(rejections), num_rows=len(rows), lines=lines)
