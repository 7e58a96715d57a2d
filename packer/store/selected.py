"""Store and read the selection of a cache, and assign documents to splits by it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.arrow_arrays import array_of, numbers_of
from packer.batches import Int64, SelectedRows
from packer.layout import offsets_of
from packer.rejections import ROW_REASONS
from packer.store.document_shards import DocumentShards
from packer.store.files import damage
from packer.store.manifest import Manifest, RowSelection, Shard, StoredTable
from packer.store.row_tables import read_table, write_table

_SCHEMA = pa.schema(
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
    columns = [array_of(getattr(selected, field.name)) for field in _SCHEMA]
    table = write_table(cache, [pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)], kind="selection", key=None)
    return RowSelection(splits=selected.splits, table=table, traits=tuple(traits), num_capped=selected.num_capped)


def read_selection(cache: Path, selection: RowSelection) -> SelectedRows:
    """Read a selection and check its digest."""
    table = read_table(cache, selection.table, _SCHEMA)
    columns = {name: numbers_of(table.column(name)) for name in _SCHEMA.names}
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
