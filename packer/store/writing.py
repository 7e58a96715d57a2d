"""Write shards: the documents of a partition, the blocks of a split.

The bytes are a function of the record batches and of Arrow's version: IPC *file* format, metadata version 5,
uncompressed, no dictionaries, no time, no host. A file has a temporary name until it is whole, and then a name with the
first digits of its sha256.

Record batches of documents are cut by content, not by the batches in which documents arrive: one ends with the row that
brings it to 16,384 rows or to 2^20 tokens.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_128

from packer.batches import BlockBatch, Bool, DocumentBatch
from packer.layout import (
    MASKED,
    concatenate_documents,
    document_labels,
    dtype_of,
    last_of_rows,
    numbers_of,
    offsets_of,
    select_documents,
)
from packer.store.arrow_columns import (
    BlockRows,
    DocumentRows,
    Ragged,
    digest_values,
    document_ids,
    shard_rows,
    value_pieces,
)
from packer.store.entries import (
    OPTIONAL_COLUMNS,
    VALUES_OF_FILES,
    VALUES_OF_ROWS,
    Kind,
    blocks_schema,
    documents_schema,
    place_of,
)
from packer.store.files import CacheFiles
from packer.store.manifest import Place, Shard
from packer.store.shards import DocumentShards

IPC_OPTIONS = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V5, compression=None, use_threads=False)

BATCH_ROWS = 16_384
BATCH_TOKENS = 2**20
"""A record batch ends with the row that reaches one of these limits."""


def shard_name(sha256: str, *, split: str = "", index: int | None = None) -> str:
    """Return the file name of a shard: of documents by its bytes alone, of blocks ``train-00000-0123456789ab.arrow``.

    A partition's shard keeps its name wherever the partition stands in a later build; two that are equal are one file.
    """
    return f"{sha256[:20]}.arrow" if index is None else f"{split}-{index:05d}-{sha256[:12]}.arrow"


def write_shard(
    cache: Path,
    batches: Iterable[pa.RecordBatch],
    *,
    empty: pa.Schema,
    kind: Kind,
    split: str,
    index: int | None = None,
) -> Shard:
    """Write record batches of one schema, none of them empty, as one atomic file; without any, it has `empty`.

    Return the manifest's entry, with the values that follow from the file itself; the others are left empty.
    """
    num_rows = num_tokens = num_trained = 0
    row_digests, values = xxh3_128(), hashlib.sha256()
    waiting = iter(batches)
    first = [*islice(waiting, 1)]
    schema = first[0].schema if first else empty
    with CacheFiles(cache).new_file(kind, lambda digest: shard_name(digest.sha256, split=split, index=index)) as file:
        with pa.ipc.new_file(file, schema, options=IPC_OPTIONS) as writer, ThreadPoolExecutor(1) as aside:
            for batch in chain(first, waiting):
                hashing = aside.submit(digest_values, values, shard_rows(batch, kind))  # while its bytes are hashed
                writer.write_batch(batch)
                num_rows += batch.num_rows
                num_tokens += int(numbers_of(batch.column("length")).sum(dtype=np.int64))
                num_trained += int(numbers_of(batch.column("num_trained")).sum(dtype=np.int64))
                row_digests.update(numbers_of(batch.column("digest")).data)
                hashing.result()
        file.flush()
        places = find_places(file.path)
    return Shard(
        path=f"{kind}/{file.path.name}",
        kind=kind,
        split=split,
        source=None,
        key=None,
        first_row=0,
        num_rows=num_rows,
        num_kept=0,
        num_input_rows=0,
        num_rejected=0,
        num_tokens=num_tokens,
        num_trained=num_trained,
        num_merged=0,
        num_last_tokens=0,
        **file.digest.recorded,
        rows_xxh3=row_digests.hexdigest(),
        rows_sha256=values.hexdigest(),
        places=places,
    )


def find_places(path: Path) -> tuple[Place, ...]:
    """Return where each record batch of an Arrow file keeps its fixed-width columns."""
    mapped = CacheFiles(path.parent).map(path.name)
    reader = pa.ipc.open_file(pa.BufferReader(mapped))
    places: list[Place] = []
    first_row = 0
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        places.append(place_of(batch, base=mapped.address, first_row=first_row))
        first_row += batch.num_rows
    return tuple(places)


def write_documents(cache: Path, batches: Sequence[DocumentBatch], *, split: str) -> Shard:
    """Write all documents of a partition, in order; return the manifest's entry, with what follows from them."""
    # A batch whose rows are all rejected has no documents, and lacks columns that the others have.
    batches = [batch for batch in batches if batch.num_documents]
    if not batches:
        return write_shard(cache, (), empty=documents_schema(), kind="documents", split=split)
    documents = concatenate_documents(batches)
    shard = write_shard(cache, _record_batches(documents), empty=documents_schema(), kind="documents", split=split)
    is_last = last_of_rows(documents.sample, documents.side)
    return msgspec.structs.replace(shard, num_last_tokens=int(np.diff(documents.offsets)[is_last].sum()))


def _record_batches(documents: DocumentBatch) -> Iterator[pa.RecordBatch]:
    """Cut the documents into record batches; each ends with the row that brings it to its limit.

    Worked example: with a limit of 4 tokens and documents that end at offsets [0, 3, 5, 6], row 1 brings the first
    record batch to 5 tokens, so it ends before row 2.
    """
    first, offsets = 0, documents.offsets
    while first < documents.num_documents:
        by_tokens = int(np.searchsorted(offsets, offsets[first] + BATCH_TOKENS, side="left"))
        last = min(by_tokens, first + BATCH_ROWS, documents.num_documents)
        yield record_batch(rows_of(select_documents(documents, np.arange(first, last))))
        first = last


def rewrite_documents(
    cache: Path, shard: Shard, change: Callable[[DocumentRows], DocumentRows], *, joined: bool
) -> Shard:
    """Write a document shard again with columns that come from files; return the manifest's entry."""
    documents = DocumentShards(cache, (shard,))
    documents.verify_files()
    if not shard.places:
        return shard
    batches = (record_batch(change(rows)) for rows, _ in documents.chunks())
    written = write_shard(cache, batches, empty=documents_schema(), kind="documents", split=shard.split)
    of_file = ("path", "num_bytes", "xxh3", "sha256", "rows_xxh3", "rows_sha256", "places")
    return msgspec.structs.replace(shard, joined=joined, **{name: getattr(written, name) for name in of_file})


def rows_of(documents: DocumentBatch) -> DocumentRows:
    """Convert documents to rows of a shard."""
    labels, offsets = document_labels(documents), documents.offsets
    trained = offsets_of(labels != MASKED)
    sample_id, has_sample_id = _texts(documents.sample_id)
    values = _values(documents)
    return DocumentRows(
        doc_id=document_ids(
            input_ids=documents.input_ids,
            labels=labels,
            offsets=offsets,
            media=documents.media,
            values=value_pieces(values),
        ),
        input_ids=Ragged(values=documents.input_ids, offsets=offsets),
        labels=Ragged(values=labels, offsets=offsets),
        span_offsets=documents.run_offsets.astype(np.int32),
        span_message=documents.run_message,
        span_start=documents.run_start,
        span_end=documents.run_end,
        length=np.diff(offsets).astype(np.int32),
        num_trained=(trained[offsets[1:]] - trained[offsets[:-1]]).astype(np.int32),
        row=documents.sample,
        sample_id=sample_id,
        has_sample_id=has_sample_id,
        side=documents.side,
        media=documents.media,
        values=values,
    )


def _values(documents: DocumentBatch) -> dict[str, npt.NDArray[Any] | Ragged]:
    values: dict[str, npt.NDArray[Any] | Ragged] = {**documents.values}
    values |= {name: Ragged(values=each, offsets=documents.offsets) for name, each in documents.token_values.items()}
    return dict(sorted(values.items()))


def fields_of(values: Mapping[str, npt.NDArray[Any] | Ragged], joined: Collection[str] = ()) -> list[pa.Field]:
    """Return the fields of columns that a recipe declares; `joined` are those whose values come from a file."""
    fields = []
    for name, column in values.items():
        flat = column.values if isinstance(column, Ragged) else column
        kind = pa.from_numpy_dtype(flat.dtype)
        kind = kind if flat.ndim == 1 else pa.list_(kind, flat.shape[1])
        kind = pa.large_list(kind) if isinstance(column, Ragged) else kind
        fields.append(pa.field(name, kind, metadata=VALUES_OF_FILES if name in joined else VALUES_OF_ROWS))
    return fields


def record_batch(rows: DocumentRows | BlockRows) -> pa.RecordBatch:
    """Convert rows of a shard to Arrow, with their digests; every buffer starts at its first row."""
    if isinstance(rows, BlockRows):
        schema = blocks_schema(rows.input_ids.shape[1])
    else:
        present = [name for name in OPTIONAL_COLUMNS if getattr(rows, name) is not None]
        schema = documents_schema(present, fields_of(rows.values, rows.joined))
    return pa.RecordBatch.from_arrays([_array(field, rows) for field in schema], schema=schema)


def _array(field: pa.Field, rows: Any) -> pa.Array:
    kind = field.type
    if field.name == "spans":
        return _structs_array(kind, (rows.span_message, rows.span_start, rows.span_end), rows.span_offsets)
    if field.name == "sample_id":
        return _string_array(rows)
    if field.name == "media":
        return _structs_array(kind, (rows.media.sha256, *rows.media.places.T), rows.media.offsets)
    if field.name == "digest":
        return _flat_array(kind, rows.digests())
    column = getattr(rows, "values", {}).get(field.name)
    column = getattr(rows, field.name) if column is None else column
    if isinstance(column, Ragged):
        return _list_array(kind, _wide_array(kind.value_type, column.values), column.offsets)
    return _wide_array(kind, column)


def _list_array(kind: pa.DataType, values: pa.Array, offsets: npt.NDArray[np.integer]) -> pa.Array:
    """Build a list column without nulls from flat values, with the type given by the schema."""
    width = np.int64 if pa.types.is_large_list(kind) else np.int32
    bounds = pa.py_buffer(np.ascontiguousarray(offsets, width))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, bounds], children=[values])


def _flat_array(kind: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    """Build a column of fixed-width values without nulls, with the type given by the schema; copies only to convert."""
    stored = np.ascontiguousarray(values, np.uint8 if pa.types.is_fixed_size_binary(kind) else dtype_of(kind))
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(stored)])


def _wide_array(kind: pa.DataType, column: npt.NDArray[Any]) -> pa.Array:
    if column.ndim == 1:
        return _flat_array(kind, column)
    return pa.Array.from_buffers(kind, len(column), [None], children=[_flat_array(kind.value_type, column.reshape(-1))])


def _structs_array(kind: pa.DataType, columns: Sequence[npt.NDArray[Any]], offsets: npt.NDArray[Any]) -> pa.Array:
    structs = kind.value_type
    fields = [_flat_array(structs.field(place).type, column) for place, column in enumerate(columns)]
    return _list_array(kind, pa.Array.from_buffers(structs, len(columns[0]), [None], children=fields), offsets)


def _texts(texts: tuple[str | None, ...]) -> tuple[Ragged, Bool]:
    encoded = [b"" if text is None else text.encode() for text in texts]
    offsets = offsets_of([len(text) for text in encoded]).astype(np.int32)
    values = np.frombuffer(b"".join(encoded), np.uint8)
    return Ragged(values=values, offsets=offsets), np.array([text is not None for text in texts], np.bool_)


def _string_array(rows: DocumentRows) -> pa.Array:
    present = rows.has_sample_id
    validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    values = pa.py_buffer(np.ascontiguousarray(rows.sample_id.values))
    return pa.Array.from_buffers(
        pa.string(), len(present), [validity, pa.py_buffer(np.ascontiguousarray(rows.sample_id.offsets)), values]
    )


def write_blocks(
    cache: Path,
    batches: Iterable[BlockBatch],
    *,
    block_len: int,
    split: str,
    index: int,
) -> Shard:
    """Write a block shard, the `index`-th of its split.

    Each batch becomes one record batch of the file, so the caller's batching affects the bytes: cut it by a constant of
    the recipe or the format, never by the number of workers.
    """
    return write_shard(
        cache,
        (record_batch(BlockRows.of(batch)) for batch in batches if batch.num_blocks),
        empty=blocks_schema(block_len),
        kind="blocks",
        split=split,
        index=index,
    )
