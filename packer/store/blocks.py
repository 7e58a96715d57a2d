"""Writing a block shard: blocks of one length, one record batch a call."""

from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from packer.batches import BlockBatch
from packer.store.arrow_columns import BlockRows, Ragged, flat_array, list_array
from packer.store.manifest import Shard
from packer.store.schema import BLOCK_LISTS, BLOCK_PIECES, blocks_schema
from packer.store.shard_file import ShardFile


class BlockShardWriter:
    """One block shard being written. Leaving the context without `finish` removes it.

    Each appended batch becomes one record batch of the file, so the caller's batching is part of the bytes: cut it by
    a constant of the recipe or the format, never by the number of workers.

    Args:
        folder: the cache.
        block_len: tokens of a block, padding included.
        weighted: write loss_weights; where a batch has none, they are 1 where trained.

    Raises:
        StorageError: from any method, where the disk refuses.
        ValueError: a batch of another block length, or with weights where ``weighted`` is False.

    """

    def __init__(self, folder: Path, *, block_len: int, weighted: bool) -> None:
        self._block_len = block_len
        self._weighted = weighted
        self._file = ShardFile(folder / "blocks", schema=blocks_schema(block_len, weighted=weighted))
        self._num_tokens = 0
        self._num_trained = 0

    def append(self, batch: BlockBatch) -> None:
        """Add blocks; a batch without blocks adds nothing."""
        if batch.input_ids.shape[1] != self._block_len:
            raise ValueError(f"expected blocks of {self._block_len} tokens, found {batch.input_ids.shape[1]}")
        if batch.loss_weights is not None and not self._weighted:
            raise ValueError("the batch has loss weights, the shard was opened without")
        if batch.num_blocks == 0:
            return
        rows = BlockRows.of(batch, weighted=self._weighted)
        self._file.write(record_batch(rows))
        self._num_tokens += int(batch.length.sum(dtype=np.int64))
        self._num_trained += int(batch.num_trained.sum(dtype=np.int64))

    def finish(self, *, split: str, index: int) -> Shard:
        """Give the file its name."""
        return self._file.commit(
            kind="blocks", split=split, index=index, num_tokens=self._num_tokens, num_trained=self._num_trained
        )

    def abort(self) -> None:
        """Remove what was written so far."""
        self._file.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


def record_batch(rows: BlockRows) -> pa.RecordBatch:
    """Rows of a block shard, with their digests, as Arrow."""
    num_rows, block_len = rows.input_ids.shape
    schema = blocks_schema(block_len, weighted=rows.loss_weights is not None)
    columns = {
        "length": flat_array(pa.int32(), rows.length),
        "num_trained": flat_array(pa.int32(), rows.num_trained),
        "digest": flat_array(pa.uint64(), rows.digests()),
    }
    for name in BLOCK_LISTS:
        if name in schema.names:
            kind = schema.field(name).type
            values = flat_array(kind.value_type, getattr(rows, name).reshape(-1))
            columns[name] = pa.Array.from_buffers(kind, num_rows, [None], children=[values])
    for name in (*BLOCK_PIECES, "seq_lengths"):
        kind = schema.field(name).type
        column: Ragged = getattr(rows, name)
        columns[name] = list_array(kind, flat_array(kind.value_type, column.values), column.offsets)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
