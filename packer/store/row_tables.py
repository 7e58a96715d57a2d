"""Tables of a cache with one row per input row: the traits of each partition, and the selection.

They are Arrow files in `rows/`, named by their digest like shards. They are read whole, and the digest is checked each
time. A selection assigns documents to splits.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from packer.batches import Int64, SelectedRows
from packer.host.arrow_messages import batch_sizes
from packer.layout import array_of, numbers_of, offsets_of
from packer.rejections import ROW_REASONS
from packer.store.document_shards import DocumentShards
from packer.store.files import CacheFiles, damage
from packer.store.manifest import Manifest, RowSelection, Shard, StoredTable
from packer.store.mapping import as_damage, check_size
from packer.store.writing import IPC_OPTIONS

FOLDER = "rows"

_MAGIC = b"ARROW1\0\0"
"""Begins an Arrow file; its messages follow."""


def write_table(cache: Path, batches: list[pa.RecordBatch], *, kind: str, key: str | None) -> StoredTable:
    """Write record batches of one schema, at least one, as one atomic file; no byte depends on their boundaries.

    `kind`, `traits` or `selection`, is the prefix of its name. `key` is the identity of what traits are made from.
    """
    table = pa.Table.from_batches(batches).combine_chunks()
    with (
        CacheFiles(cache).new_file(FOLDER, lambda digest: f"{kind}-{digest.sha256[:12]}.arrow") as file,
        pa.ipc.new_file(file, table.schema, options=IPC_OPTIONS) as writer,
    ):
        writer.write_table(table)
    return StoredTable(path=f"{FOLDER}/{file.path.name}", key=key, num_rows=table.num_rows, **file.digest.recorded)


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


_SELECTION = pa.schema(
    [
        ("split", pa.int32()),
        ("reason", pa.int32()),
        ("kept", pa.int64()),
        ("similarity", pa.float32()),
        ("detail", pa.int32()),
    ]
)


def write_selection(cache: Path, selected: SelectedRows, traits: Sequence[StoredTable]) -> RowSelection:
    """Write a selection and return its record for the manifest."""
    columns = [array_of(getattr(selected, field.name)) for field in _SELECTION]
    table = write_table(cache, [pa.RecordBatch.from_arrays(columns, schema=_SELECTION)], kind="selection", key=None)
    return RowSelection(splits=selected.splits, table=table, traits=tuple(traits), num_capped=selected.num_capped)


def read_selection(cache: Path, selection: RowSelection) -> SelectedRows:
    """Read a selection and check its digest."""
    table = read_table(cache, selection.table, _SELECTION)
    columns = {name: numbers_of(table.column(name)) for name in _SELECTION.names}
    if not _in_range(columns, len(selection.splits)):
        raise damage(cache, selection.table.path, "is not a selection")
    return SelectedRows(splits=selection.splits, **columns, num_capped=selection.num_capped)


def _in_range(columns: Mapping[str, npt.NDArray[Any]], num_splits: int) -> bool:
    """Whether the numbers of splits, reasons and rows exist; `kept` of a contaminated row is a question, not a row."""
    reason = columns["reason"]
    limited = (
        (columns["split"], num_splits),
        (reason, len(ROW_REASONS) + 1),
        (columns["kept"][reason != 1 + ROW_REASONS.index("contaminated")], len(reason)),
    )
    return int(reason.min(initial=0)) >= 0 and all(
        int(own.min(initial=-1)) >= -1 and int(own.max(initial=-1)) < limit for own, limit in limited
    )


def split_documents(cache: Path, shards: Sequence[Shard], selected: SelectedRows | None) -> dict[str, DocumentShards]:
    """Return the documents of every split, in the order of the splits; `shards` are the cache's document shards.

    Without a selection, every row is in the split of its source.
    """
    if selected is None:
        names = dict.fromkeys(shard.split for shard in shards)
        return {name: DocumentShards(cache, [s for s in shards if s.split == name]) for name in names}
    split = selected.split[rows_of_documents(cache, shards)]
    found = {}
    for number, name in enumerate(selected.splits):
        found[name] = DocumentShards(cache, shards, chosen=np.flatnonzero(split == number))
    return found


def rows_of_documents(cache: Path, shards: Sequence[Shard]) -> Int64:
    """Return the row of each document of all shards, in a selection's numbering.  # int64[D]"""
    documents = DocumentShards(cache, shards)
    first = offsets_of([shard.num_input_rows for shard in shards])[:-1] - [shard.first_row for shard in shards]
    return documents.file_rows() + np.repeat(first, [shard.num_rows for shard in shards])


def documents_of(cache: Path, manifest: Manifest) -> Mapping[str, DocumentShards]:
    """Return the documents of every split of a cache."""
    selected = None if manifest.selection is None else read_selection(cache, manifest.selection)
    return split_documents(cache, manifest.document_shards, selected)
