"""Parquet files, as pyarrow opens and decodes them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

_BUFFER_BYTES = 2**20


def open_parquet(path: Path) -> Any:
    """The file as pyarrow has it. Not mapped into memory: a file that shrinks meanwhile would kill the process."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - takes as long as a tenth of a small build

    return pq.ParquetFile(
        pa.OSFile(str(path)), buffer_size=_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
    )


def parquet_batches(file: Any, groups: range, columns: Sequence[str], *, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups, page by page; of other columns nothing is read."""
    batches: Iterator[pa.RecordBatch] = file.iter_batches(
        batch_size=batch_rows, row_groups=list(groups), columns=list(columns), use_threads=False
    )
    return batches
