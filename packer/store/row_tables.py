"""Tables of a cache with one row per input row: the traits of each partition, and the selection.

They are Arrow files in `rows/`, named by their digest like shards. They are read whole, and the digest is checked each
time.
"""

from pathlib import Path

import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from packer.host.arrow_messages import batch_sizes
from packer.store.digest import FileDigest
from packer.store.files import CacheFiles, damage
from packer.store.manifest import StoredTable
from packer.store.mapping import as_damage, check_size
from packer.store.shard_file import IPC_OPTIONS

FOLDER = "rows"

_MAGIC = b"ARROW1\0\0"
"""Begins an Arrow file; its messages follow."""


def write_table(cache: Path, batches: list[pa.RecordBatch], *, kind: str, key: str | None) -> StoredTable:
    """Write record batches of one schema, at least one, as one atomic file; no byte depends on their boundaries.

    `kind`, `traits` or `selection`, is the prefix of its name. `key` is the identity of what traits are made from.
    """
    table = pa.Table.from_batches(batches).combine_chunks()

    def name(digest: FileDigest) -> str:
        return f"{kind}-{digest.sha256[:12]}.arrow"

    with (
        CacheFiles(cache).new_file(FOLDER, name) as file,
        pa.ipc.new_file(file, table.schema, options=IPC_OPTIONS) as writer,
    ):
        writer.write_table(table)
    digest = file.digest
    return StoredTable(
        path=f"{FOLDER}/{name(digest)}",
        key=key,
        num_rows=table.num_rows,
        num_bytes=digest.num_bytes,
        xxh3=digest.xxh3,
        sha256=digest.sha256,
    )


def read_table(cache: Path, stored: StoredTable, schema: pa.Schema) -> pa.Table:
    """Read a table whole. What it holds is where it is in the file: nothing is decoded, so it takes no more memory."""
    check_size(cache, stored)
    content = CacheFiles(cache).read(stored.path, max_bytes=stored.num_bytes)
    if xxh3_128_hexdigest(content) != stored.xxh3:
        raise damage(cache, stored.path, "is damaged: its xxh3 is not the manifest's")
    with as_damage(cache, stored):
        table = _table(content, schema)
        if table.num_rows != stored.num_rows:
            raise ValueError(f"expected {stored.num_rows} rows, found {table.num_rows}")
        return table


def _table(content: bytes, schema: pa.Schema) -> pa.Table:
    with pa.BufferReader(content) as file:
        reader = pa.ipc.open_file(file)
        if not reader.schema.equals(schema):
            raise ValueError(f"expected the columns {', '.join(schema.names)}, each of its type")
        file.seek(len(_MAGIC))
        if any(each.is_compressed for each in batch_sizes(file)):
            raise ValueError("it is compressed")
        table = reader.read_all()
    table.validate(full=True)
    if any(map(_num_nulls, table.columns)):
        raise ValueError("it has nulls")
    return table


def _num_nulls(column: pa.ChunkedArray) -> int:
    import pyarrow.compute as pc  # noqa: PLC0415 - a twentieth of a second, which builds without rules about rows save

    is_list = pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type)
    return int(column.null_count) + (int(pc.list_flatten(column).null_count) if is_list else 0)
