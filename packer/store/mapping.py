"""A shard mapped read-only, its structure checked before it is believed.

Three things are checked before a row is looked at: the file's size (a shorter file would kill the process at a page
that is not there), the schema, and that every record batch lies where the manifest says. What the values are is for the
row digests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from packer.errors import CheckError, StorageError
from packer.store.failures import storage_errors
from packer.store.manifest import Shard
from packer.store.pages import MAPPED, Pages, ReadPages
from packer.store.schema import blocks_schema, documents_schema
from packer.store.shard_file import map_file, place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedShard:
    """Record batches over the file's own pages."""

    batches: tuple[pa.RecordBatch, ...]
    weighted: bool
    block_len: int
    """Blocks: their length. Documents: 0."""

    pages: Pages
    """How the values of its buffers are reached."""


def repair_hint(folder: Path) -> str:
    """What to do about a damaged file of a cache."""
    return f"packer build -o {folder} --repair makes damaged shards again"


def check_size(folder: Path, shard: Shard) -> None:
    """Compare a shard's size with the manifest.

    Raises:
        CheckError: the file is missing, truncated or longer than it was.

    """
    path = folder / shard.path
    try:
        with storage_errors("read", path):
            size = path.stat().st_size
    except StorageError as error:
        if not isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise
        raise CheckError(f"{path} is missing: expected {shard.num_bytes} bytes", hint=repair_hint(folder)) from None
    if size != shard.num_bytes or not path.is_file():
        state = "truncated" if size < shard.num_bytes else "too long"
        raise CheckError(f"{path} is {state}: expected {shard.num_bytes} bytes, found {size}", hint=repair_hint(folder))


def map_shard(folder: Path, shard: Shard, *, mmap: bool = True) -> MappedShard:
    """Map a shard and check its structure; without `mmap` its values are read from the file all the same.

    Raises:
        CheckError: size, schema or places are not what the manifest says.
        StorageError: the file cannot be opened.

    """
    path = folder / shard.path
    check_size(folder, shard)
    try:
        with storage_errors("read", path):
            mapped = map_file(path)
        reader = pa.ipc.open_file(pa.BufferReader(mapped))
        block_len = _check_schema(shard, reader.schema)
        batches = tuple(reader.get_batch(i) for i in range(reader.num_record_batches))
        _check_places(shard, batches, mapped.address)
    except (pa.ArrowException, OSError, ValueError, MemoryError, KeyError, IndexError) as error:
        raise CheckError(f"{path} is damaged: {error}", hint=repair_hint(folder)) from None
    pages = MAPPED if mmap else ReadPages(path, mapped.address)
    return MappedShard(
        batches=batches, weighted="loss_weights" in reader.schema.names, block_len=block_len, pages=pages
    )


def _check_schema(shard: Shard, schema: pa.Schema) -> int:
    """Block length of the schema, which must be one that packer writes."""
    weighted = "loss_weights" in schema.names
    block_len = 0
    if shard.kind == "documents":
        expected = documents_schema(weighted=weighted)
    else:
        kind = schema.field("input_ids").type
        block_len = kind.list_size if pa.types.is_fixed_size_list(kind) else 0
        expected = blocks_schema(block_len, weighted=weighted)
    if not schema.equals(expected, check_metadata=True):
        raise ValueError(f"its schema is not the one of {shard.kind}")
    return block_len


def _check_places(shard: Shard, batches: Sequence[pa.RecordBatch], base: int) -> None:
    first_row = 0
    if len(batches) != len(shard.places):
        raise ValueError(f"expected {len(shard.places)} record batches, found {len(batches)}")
    for i, (batch, expected) in enumerate(zip(batches, shard.places, strict=True)):
        found = place_of(batch, base=base, first_row=first_row)
        if found != expected:
            raise ValueError(f"record batch {i} does not lie where the manifest says")
        first_row += batch.num_rows
    if first_row != shard.num_rows:
        raise ValueError(f"expected {shard.num_rows} rows, found {first_row}")
