"""Parquet files, as pyarrow opens and decodes them.

Of a footer only what is said of whole row groups is read. What it says of their columns is not asked for: where a
footer is damaged, pyarrow's `RowGroupMetaData.column` ends the process, while its decoder answers with an error.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from packer.source.row_groups import Group, is_bomb

BATCH_ROWS = 256
"""A dictionary of strings, by default of a megabyte at most, brings its longest text into each of these rows."""

_BATCH_BYTES = 16 * 2**20
_BUFFER_BYTES = 2**20
_USUAL_RATIO = 20
"""Text is compressed to a tenth. A file of fewer bytes is decoded a row at a time."""


def open_parquet(path: Path) -> Any:
    """The file as pyarrow has it. Not mapped into memory: a file that shrinks meanwhile would kill the process."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - takes as long as a tenth of a small build

    return pq.ParquetFile(
        pa.OSFile(str(path)), buffer_size=_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
    )


def parquet_groups(path: Path, metadata: Any) -> tuple[Group, ...]:
    """The row groups, in order; their places are those in a file that is not compressed.

    Raises:
        ValueError: the footer makes no sense, or a group decodes to far more than the file has; holds one sentence.

    """
    file_bytes = path.stat().st_size
    groups = []
    start = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        num_rows, num_bytes = group.num_rows, group.total_byte_size
        if num_rows < 0 or num_bytes < 0:
            raise ValueError("its footer is damaged")
        if is_bomb(file_bytes, num_bytes):
            raise ValueError(f"a row group of a file of {file_bytes:,} bytes decodes to {num_bytes:,}")
        groups.append(Group(start=start, stop=start + num_bytes, num_rows=num_rows, num_bytes=num_bytes))
        start += num_bytes
    return tuple(groups)


def parquet_batches(path: Path, numbers: Sequence[int] | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups, or of all; of other columns nothing is read."""
    with open_parquet(path) as file:
        file_bytes = path.stat().st_size
        groups = parquet_groups(path, file.metadata)
        for number in range(len(groups)) if numbers is None else numbers:
            group = groups[number]
            row_bytes = group.num_bytes // max(group.num_rows, 1) + 1
            is_dense = group.num_bytes > _USUAL_RATIO * file_bytes
            batch_rows = 1 if is_dense else max(1, min(BATCH_ROWS, _BATCH_BYTES // row_bytes))
            yield from file.iter_batches(
                batch_size=batch_rows, row_groups=[number], columns=list(columns), use_threads=False
            )
