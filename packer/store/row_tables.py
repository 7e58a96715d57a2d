"""Tables about the rows of the inputs: the traits of each partition, the selection, and ``rejected.jsonl``.

Traits and selection are Arrow files in `rows/` with one row per input row, named by their digest like shards. They are
read whole, and the digest is checked each time. A selection assigns documents to splits.

``rejected.jsonl`` has every row that is not in the cache, every part of a document that is in no block, and why: one
JSON object per line, in the order of the inputs and of their rows, so that the same build writes the same bytes. It
contains no content of the rows.

Its name is the same for every build, so the old manifest's file and the new one's cannot both have it. A build
therefore *stages* the file in `.packer/`, under a name that contains its digest; replaces the manifest, which commits;
and then *publishes* the file by renaming it. If the build is killed before the commit, the old file is untouched; if it
is killed after the commit, readers find the new file where it was staged, and the next build publishes it. Readers only
accept the file whose digest is in the manifest.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Meta
from xxhash import xxh3_128_hexdigest

from packer.batches import Int64, SelectedRows, UInt64
from packer.errors import StorageError
from packer.host.arrow_messages import batch_sizes
from packer.host.files import storage_errors
from packer.layout import array_of, numbers_of, offsets_of
from packer.rejections import ROW_REASONS
from packer.store.entries import Count, Kind, has_column
from packer.store.files import CacheFiles, damage
from packer.store.folder import PRIVATE
from packer.store.manifest import REJECTED_NAME, Manifest, RowSelection, Shard, StoredTable, pending_name
from packer.store.mapping import as_damage, check_size
from packer.store.shards import BlockShards, DocumentShards
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


def content_fingerprint(
    folder: Path, shards: Sequence[Shard], documents: Mapping[str, DocumentShards] | None = None
) -> str:
    """Compute the sha256 over each kind and split of all shards, in row order; digests are not checked here.

    A document contributes its doc_id (a digest of ids, labels and values of its row), its row in the input
    file, its side if it has one, and with values of files its row digest; a block contributes its
    row digest. A document's row digest is not used otherwise, as it also covers the row number within the partition:
    changing `partition_bytes` does not change the content. By default documents belong to the split of their shard.
    """
    if documents is None:
        documents = split_documents(folder, [shard for shard in shards if shard.kind == "documents"], None)
    blocks = [shard for shard in shards if shard.kind == "blocks"]
    rows: dict[tuple[Kind, str], Iterator[Int64 | UInt64]] = {
        ("documents", split): _document_content(own) for split, own in documents.items()
    }
    for split in {shard.split for shard in blocks}:
        own = BlockShards(folder, [each for each in blocks if each.split == split])
        rows["blocks", split] = (digests for _, (digests,) in own.by_shard({"digest": np.uint64}))
    whole = hashlib.sha256()
    for kind, split in sorted(rows):
        content = hashlib.sha256()
        for values in rows[kind, split]:
            content.update(values.data)
        whole.update(f"{kind}/{split} {content.hexdigest()}\n".encode())
    return whole.hexdigest()


def _document_content(documents: DocumentShards) -> Iterator[Int64]:
    """Yield what each document contributes, shard by shard.  # int64[rows of the shard, 2 to 4] each"""
    wanted: dict[str, type[np.generic]] = {"doc_id": np.int64, "row": np.int32}
    if any(shard.joined for shard in documents.shards):
        wanted["digest"] = np.uint64
    if has_column(documents.shards, "side"):
        wanted["side"] = np.int8
    for shard, found in documents.by_shard(wanted):
        columns = np.stack([each.astype("<i8") for each in found], axis=1)
        columns[:, 1] += shard.first_row
        yield columns


_MAX_LINE_BYTES = 16 * 2**20
"""Lines name a file and a reason; some hundred bytes."""


class Rejected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line."""

    source: str
    """Path of the input, as in the manifest."""

    row: Count
    """Row number from 0 within the input; blank lines do not count."""

    line: Count | None = None
    """Line of the input, from 1, if the whole row is rejected and rows are lines."""

    code: str
    reason: str
    document: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    """doc_id of the document of which a part was left out; None if the whole row is rejected."""

    split: str | None = None
    start: Count | None = None
    """First token of the part within its document."""

    tokens: Count | None = None


def stage_rejected(folder: Path, lines: Iterable[Rejected]) -> tuple[str, str]:
    """Write the file for a manifest that is about to be written; return its sha256 and `rejected_content`."""
    content = hashlib.sha256()
    with CacheFiles(folder).new_file(PRIVATE, lambda digest: pending_name(digest.sha256)) as file:
        for line in lines:
            file.write(msgspec.json.encode(line) + b"\n")
            content.update(content_of(line))
    return file.digest.sha256, content.hexdigest()


def is_pending(folder: Path, manifest: Manifest) -> bool:
    """Whether the build that wrote this manifest did not finish its commit on this machine."""
    return (folder / manifest.pending_rejected).is_file()


def publish_rejected(folder: Path, manifest: Manifest) -> None:
    """Rename the staged file into place, after the manifest was written; a no-op if that has been done."""
    if is_pending(folder, manifest):
        # In a bucket, readers use the staged object, which concurrent builds cannot mix up; the other is for users.
        CacheFiles(folder).rename(manifest.pending_rejected, REJECTED_NAME)


def content_of(line: Rejected) -> bytes:
    """Return what a line adds to `rejected_content`: all but the input's name, and the reason's words."""
    values = (line.row, line.line, line.code, line.document, line.split, line.start, line.tokens)
    return msgspec.json.encode(values) + b"\n"


def rejected_path(folder: Path, manifest: Manifest) -> str:
    """Return the path of a manifest's file, relative to the cache."""
    is_staged = CacheFiles(folder).size(manifest.pending_rejected) is not None
    return manifest.pending_rejected if is_staged else REJECTED_NAME


def read_rejected(folder: Path, manifest: Manifest) -> Iterator[Rejected]:
    """Yield the lines; the file's digest is checked before the first."""
    decoder = msgspec.json.Decoder(Rejected)
    name = rejected_path(folder, manifest)
    with storage_errors("read", folder / name), _open(folder, manifest) as file:
        # Open the file once, so that the bytes hashed are the bytes read even if a build replaces it meanwhile.
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != manifest.rejected_sha256:
            raise damage(folder, name, f"is damaged: expected sha256 {manifest.rejected_sha256}, found {found}")
        file.seek(0)
        for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE_BYTES + 1), b""), 1):
            if len(line) > _MAX_LINE_BYTES:
                raise damage(folder, name, f"line {number}: expected at most {_MAX_LINE_BYTES:,} bytes")
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise damage(folder, name, f"line {number}: {error}") from None


def rejected_rows(folder: Path, manifest: Manifest) -> list[list[Rejected]]:
    """Return the lines about whole rows, for each document shard those of its partition.

    Lines and shards are both in the order of inputs and rows, so each shard takes the next lines. Paths cannot be
    matched instead, as a file may be listed once per split.
    """
    lines = (line for line in read_rejected(folder, manifest) if line.document is None)
    return [list(islice(lines, shard.num_rejected)) for shard in manifest.document_shards]


def _open(folder: Path, manifest: Manifest) -> BufferedReader:
    """Open the staged file, or else the published one; files only ever move in that direction."""
    for name in (manifest.pending_rejected, REJECTED_NAME):
        try:
            return CacheFiles(folder).open(name)
        except StorageError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
    raise damage(folder, REJECTED_NAME, "is missing")
