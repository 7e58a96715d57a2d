"""Write shards: the documents of a partition, the blocks of a split.

The bytes are a function of the rows alone. Record batches of documents are cut by content, not by the batches in which
documents arrive: a record batch ends with the row that brings it to 16,384 rows or to 2^20 tokens. The column
``loss_weights`` exists exactly if some weight of the partition is fractional.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.arrow_arrays import dtype_of
from packer.batches import BlockBatch, Bool, DocumentBatch
from packer.layout import MASKED, document_labels, document_weights, last_of_rows, offsets_of, select_documents
from packer.media.columns import Media
from packer.store.arrow_columns import BlockRows, DocumentRows, Ragged, value_pieces
from packer.store.digest import document_ids
from packer.store.document_shards import DocumentShards
from packer.store.manifest import Shard
from packer.store.schema import OF_FILES, OF_ROWS, blocks_schema, documents_schema
from packer.store.shard_file import write_shard

BATCH_ROWS = 16_384
BATCH_TOKENS = 2**20
"""A record batch ends with the row that reaches one of these limits."""


def write_documents(cache: Path, batches: Sequence[DocumentBatch], *, split: str) -> Shard:
    """Write all documents of a partition, in order; return the manifest's entry, with what follows from them."""
    weighted = any((batch.run_weight != 1).any() for batch in batches)
    # A batch whose rows are all rejected has no documents, and no `side` column even for preference data.
    batches = [batch for batch in batches if batch.num_documents]
    shard = write_shard(
        cache,
        _record_batches(batches, weighted=weighted),
        schema=documents_schema(
            weighted=weighted,
            preference=any(batch.side is not None for batch in batches),
            media=any(batch.media is not None for batch in batches),
            values=fields_of(_values(batches[0])) if batches else (),
        ),
        kind="documents",
        split=split,
        index=None,
    )
    lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(batch.offsets) for batch in batches)])
    sample = np.concatenate([np.zeros(0, np.int32), *(batch.sample for batch in batches)])
    is_last = last_of_rows(sample, _concatenated("side", [batch.side for batch in batches]))
    return msgspec.structs.replace(shard, num_last_tokens=int(lengths[is_last].sum()))


def _record_batches(batches: Sequence[DocumentBatch], *, weighted: bool) -> Iterator[pa.RecordBatch]:
    """Cut the documents into record batches; each ends with the row that brings it to its limit.

    Worked example: with a limit of 4 tokens and documents that end at offsets [0, 3, 5, 6], row 1 brings the first
    record batch to 5 tokens, so it ends before row 2.
    """
    if not batches:
        return
    documents = concatenate_documents(batches)
    first, offsets = 0, documents.offsets
    while first < documents.num_documents:
        by_tokens = int(np.searchsorted(offsets, offsets[first] + BATCH_TOKENS, side="left"))
        last = min(by_tokens, first + BATCH_ROWS, documents.num_documents)
        yield record_batch(rows_of(select_documents(documents, np.arange(first, last)), weighted=weighted))
        first = last


def rewrite_documents(
    cache: Path, shard: Shard, change: Callable[[DocumentRows], DocumentRows], *, joined: bool
) -> Shard:
    """Write a document shard again with columns that come from files; return the manifest's entry."""
    documents = DocumentShards(cache, (shard,))
    documents.verify_files()
    batches = (record_batch(change(rows)) for rows, _ in documents.chunks())
    first = next(batches, None)
    if first is None:
        return shard
    written = write_shard(
        cache, chain([first], batches), schema=first.schema, kind="documents", split=shard.split, index=None
    )
    of_file = ("path", "num_bytes", "xxh3", "sha256", "rows_xxh3", "rows_sha256", "places")
    return msgspec.structs.replace(shard, joined=joined, **{name: getattr(written, name) for name in of_file})


def rows_of(documents: DocumentBatch, *, weighted: bool) -> DocumentRows:
    """Convert documents to rows of a shard, `weighted` or not; a doc_id includes fractional weights in any case."""
    labels, offsets = document_labels(documents), documents.offsets
    fractional = weighted or bool((documents.run_weight != 1).any())
    weights = document_weights(documents) if fractional else None
    trained = offsets_of(labels != MASKED)
    sample_id, has_sample_id = _texts(documents.sample_id)
    values = _values(documents)
    return DocumentRows(
        doc_id=document_ids(
            input_ids=documents.input_ids,
            labels=labels,
            loss_weights=weights,
            offsets=offsets,
            media=documents.media,
            values=value_pieces(values),
        ),
        input_ids=Ragged(values=documents.input_ids, offsets=offsets),
        labels=Ragged(values=labels, offsets=offsets),
        loss_weights=Ragged(values=weights, offsets=offsets) if weighted and weights is not None else None,
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
        margin=documents.margin,
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
        fields.append(pa.field(name, kind, metadata=OF_FILES if name in joined else OF_ROWS))
    return fields


def record_batch(rows: DocumentRows | BlockRows) -> pa.RecordBatch:
    """Convert rows of a shard to Arrow, with their digests; every buffer starts at its first row."""
    weighted = rows.loss_weights is not None
    if isinstance(rows, BlockRows):
        schema = blocks_schema(rows.input_ids.shape[1], weighted=weighted)
    else:
        schema = documents_schema(
            weighted=weighted,
            preference=rows.side is not None,
            media=rows.media is not None,
            values=fields_of(rows.values, rows.joined),
        )
    return pa.RecordBatch.from_arrays([_array(field, rows) for field in schema], schema=schema)


def _array(field: pa.Field, rows: Any) -> pa.Array:
    kind = field.type
    if field.name == "spans":
        parts = [_flat_array(pa.int32(), each) for each in (rows.span_message, rows.span_start, rows.span_end)]
        structs = pa.Array.from_buffers(kind.value_type, len(rows.span_message), [None], children=parts)
        return _list_array(kind, structs, rows.span_offsets)
    if field.name == "sample_id":
        return _string_array(rows)
    if field.name == "media":
        return _media_array(kind, rows.media)
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
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values, dtype_of(kind)))])


def _wide_array(kind: pa.DataType, column: npt.NDArray[Any]) -> pa.Array:
    if column.ndim == 1:
        return _flat_array(kind, column)
    return pa.Array.from_buffers(kind, len(column), [None], children=[_flat_array(kind.value_type, column.reshape(-1))])


def _media_array(kind: pa.DataType, media: Media) -> pa.Array:
    number = len(media.sha256)
    digests = pa.Array.from_buffers(pa.binary(32), number, [None, pa.py_buffer(media.sha256.tobytes())])
    places = [_flat_array(pa.int32(), column) for column in media.places.T]
    structs = pa.Array.from_buffers(kind.value_type, number, [None], children=[digests, *places])
    return _list_array(kind, structs, media.offsets)


def concatenate_documents(batches: Sequence[DocumentBatch]) -> DocumentBatch:
    """Concatenate batches."""
    if len(batches) == 1:
        return batches[0]
    names = [field.name for field in fields(DocumentBatch) if field.name != "media"]
    return DocumentBatch(
        **{name: _concatenated(name, [getattr(batch, name) for batch in batches]) for name in names},
        media=Media.join([(batch.media, batch.num_documents) for batch in batches]),
    )


def _concatenated(name: str, columns: Sequence[Any]) -> Any:
    """Concatenate a column that either all batches have or none; of offsets, [0, 2, 3] and [0, 4] are [0, 2, 3, 7]."""
    present = [column for column in columns if column is not None]
    if not present or isinstance(present[0], tuple):
        return tuple(chain.from_iterable(present)) if present else None
    if isinstance(present[0], Mapping):
        return {key: np.concatenate([column[key] for column in present]) for key in present[0]}
    if name.endswith("offsets"):
        return offsets_of(np.concatenate([np.diff(column) for column in present]))
    return np.concatenate(present)


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
    weighted: bool,
    split: str,
    index: int,
) -> Shard:
    """Write a block shard, the `index`-th of its split; if `weighted`, with weights of 1 where a batch has none.

    Each batch becomes one record batch of the file, so the caller's batching affects the bytes: cut it by a constant of
    the recipe or the format, never by the number of workers.
    """
    return write_shard(
        cache,
        (record_batch(BlockRows.of(batch, weighted=weighted)) for batch in batches if batch.num_blocks),
        schema=blocks_schema(block_len, weighted=weighted),
        kind="blocks",
        split=split,
        index=index,
    )
