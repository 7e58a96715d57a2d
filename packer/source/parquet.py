"""Parquet files: their row groups, and the rows in them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from packer.source.groups import Group

_BUFFER_BYTES = 2**20


def open_parquet(path: Path) -> Any:
    """The file as pyarrow has it. Not mapped into memory: a file that shrinks meanwhile would kill the process."""
    return pq.ParquetFile(
        pa.OSFile(str(path)), buffer_size=_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
    )


def parquet_groups(file: Any) -> tuple[Group, ...]:
    """The row groups, in order.

    A group's bytes are those from its first column chunk to its last. Dictionary pages stand before data pages.
    """
    groups = []
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        chunks = [group.column(i) for i in range(group.num_columns)]
        starts = [_first_byte(chunk) for chunk in chunks]
        stops = [start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True)]
        groups.append(
            Group(
                start=min(starts, default=0),
                stop=max(stops, default=0),
                num_rows=group.num_rows,
                num_bytes=group.total_byte_size,
            )
        )
    return tuple(groups)


def _first_byte(chunk: Any) -> int:
    dictionary = chunk.dictionary_page_offset
    first: int = chunk.data_page_offset if not dictionary else min(dictionary, chunk.data_page_offset)
    return first


def parquet_batches(file: Any, groups: range, columns: Sequence[str], *, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups, page by page; of other columns nothing is read."""
    batches: Iterator[pa.RecordBatch] = file.iter_batches(
        batch_size=batch_rows, row_groups=list(groups), columns=list(columns), use_threads=False
    )
    return batches
