"""Writing a block shard: blocks of one length, one record batch a call."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from packer.batches import BlockBatch
from packer.store.arrow_columns import BlockRows, Ragged, flat_array, list_array
from packer.store.manifest import Shard
from packer.store.schema import BLOCK_LISTS, BLOCK_PIECES, blocks_schema
from packer.store.shard_file import write_shard


def write_blocks(
    cache: Path, batches: Iterable[BlockBatch], *, block_len: int, weighted: bool, split: str, index: int
) -> Shard:
    """Write a block shard.

    Each batch becomes one record batch of the file, so the caller's batching is part of the bytes: cut it by a constant
    of the recipe or the format, never by the number of workers.

    Args:
        cache: the cache.
        batches: the blocks; a batch without blocks adds nothing.
        block_len: tokens of a block, padding included.
        weighted: write loss_weights; where a batch has none, they are 1 where trained.
        split: of the blocks.
        index: number of the shard in its split.

    Raises:
        StorageError: the disk refuses.

    """
    return write_shard(
        cache,
        (record_batch(BlockRows.of(batch, weighted=weighted)) for batch in batches if batch.num_blocks),
        schema=blocks_schema(block_len, weighted=weighted),
        kind="blocks",
        split=split,
        index=index,
    )


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
