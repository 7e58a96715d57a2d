"""Tables of a cache with one row per input row: the traits of each partition, and the selection.

They are Arrow files in `rows/`, named by their digest like shards. They are read whole, and the digest is checked each
time.
"""

from pathlib import Path

import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from packer.display import repair_hint
from packer.errors import CheckError
from packer.store.files import CacheFiles
from packer.store.folder import AtomicFile
from packer.store.manifest import StoredTable
from packer.store.mapping import check_size
from packer.store.shard_file import IPC_OPTIONS

FOLDER = "rows"


def write_table(cache: Path, batches: list[pa.RecordBatch], *, kind: str, key: str | None) -> StoredTable:
    """Write record batches of one schema, at least one, as one atomic file; no byte depends on their boundaries.

    `kind`, `traits` or `selection`, is the prefix of its name. `key` is the identity of what traits are made from.

    Raises:
        StorageError: the disk cannot be written; nothing is left of the file.
    """
    table = pa.Table.from_batches(batches).combine_chunks()
    with AtomicFile(cache / FOLDER, below=cache) as file:
        with pa.ipc.new_file(file, table.schema, options=IPC_OPTIONS) as writer:
            writer.write_table(table)
        file.flush()
        digest = file.digest
        name = f"{kind}-{digest.sha256[:12]}.arrow"
        file.commit(name)
    return StoredTable(
        path=f"{FOLDER}/{name}",
        key=key,
        num_rows=table.num_rows,
        num_bytes=digest.num_bytes,
        xxh3=digest.xxh3,
        sha256=digest.sha256,
    )


def read_table(cache: Path, stored: StoredTable) -> pa.Table:
    """Read a table whole.

    Raises:
        CheckError: it is missing, or differs from what the manifest records.
        StorageError: it cannot be read.
    """
    path = cache / stored.path
    check_size(cache, stored)
    content = CacheFiles(cache).read(stored.path)
    if xxh3_128_hexdigest(content) != stored.xxh3:
        raise CheckError(f"{path} is damaged: its xxh3 is not the manifest's", hint=repair_hint(cache))
    try:
        table = pa.ipc.open_file(pa.BufferReader(content)).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CheckError(f"{path} is damaged: {error}", hint=repair_hint(cache)) from error
    if table.num_rows != stored.num_rows:
        raise CheckError(f"{path}: expected {stored.num_rows} rows, found {table.num_rows}", hint=repair_hint(cache))
    return table
