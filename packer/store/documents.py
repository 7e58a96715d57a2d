"""Writing a document shard: the documents of one partition.

The bytes are a function of the documents alone. Record batches are cut by content, not by how documents were handed
over: one ends with the row that brings it to 16,384 rows or to 2^20 tokens. The column ``loss_weights`` is there
exactly when some weight of the partition is fractional; where the first one comes late, what was written without it is
written again.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from packer.batches import Bool, DocumentBatch, Int32, Int64
from packer.layout import MASKED, document_labels, document_weights, offsets_of
from packer.store.arrow_columns import DocumentRows, Ragged, flat_array, list_array
from packer.store.digest import document_ids
from packer.store.files import CacheFiles
from packer.store.manifest import Shard
from packer.store.schema import documents_schema
from packer.store.shard_file import ShardFile
from packer.store.views import document_rows

BATCH_ROWS = 16_384
BATCH_TOKENS = 2**20
"""A record batch ends with the row that reaches one of these."""


class DocumentShardWriter:
    """One document shard being written; holds one record batch. Leaving the context without `finish` removes it.

    Args:
        folder: the cache.
        special_ids: int32[S], the ids that ``special_tokens_mask`` marks.

    Raises:
        StorageError: from any method, where the disk refuses.

    """

    def __init__(self, folder: Path, *, special_ids: Int32) -> None:
        self._folder = folder / "documents"
        self._special_ids = special_ids
        self._weighted = False
        self._file = ShardFile(self._folder, schema=documents_schema(weighted=False))
        self._pending: list[DocumentBatch] = []
        self._pending_rows = 0
        self._pending_tokens = 0
        self._num_trained = 0
        self._samples: list[Int32] = []
        self._lengths: list[Int64] = []

    def append(self, batch: DocumentBatch) -> None:
        """Add documents, in order; a batch without documents adds nothing."""
        first = 0
        while first < batch.num_documents:
            last, complete = self._cut(batch.offsets, first)
            piece = batch if (first, last) == (0, batch.num_documents) else slice_documents(batch, first, last)
            self._pending.append(piece)
            self._pending_rows += last - first
            self._pending_tokens += int(batch.offsets[last] - batch.offsets[first])
            if complete:
                self._flush()
            first = last

    def finish(self, *, split: str, index: int) -> Shard:
        """Write what is left and give the file its name."""
        self._flush()
        sample = np.concatenate([np.zeros(0, np.int32), *self._samples])
        lengths = np.concatenate([np.zeros(0, np.int64), *self._lengths])
        is_last = np.append(sample[1:] != sample[:-1], True)[: len(sample)]  # of its input row
        return self._file.commit(
            kind="documents",
            split=split,
            index=index,
            num_tokens=int(lengths.sum()),
            num_trained=self._num_trained,
            num_last_tokens=int(lengths[is_last].sum()),
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

    def _cut(self, offsets: Int64, first: int) -> tuple[int, bool]:
        """Row before which the current record batch ends, and whether that makes it complete.

        Worked example: 1 token is missing, documents end at offsets [0, 3, 5], first 0: row 0 brings the batch past its
        size, so it ends before row 1.
        """
        missing = BATCH_TOKENS - self._pending_tokens
        by_tokens = int(np.searchsorted(offsets, offsets[first] + missing, side="left"))
        by_rows = first + BATCH_ROWS - self._pending_rows
        last = min(by_tokens, by_rows, len(offsets) - 1)
        return last, last in {by_rows, by_tokens}

    def _flush(self) -> None:
        if not self._pending:
            return
        documents = concatenate_documents(self._pending)
        self._pending, self._pending_rows, self._pending_tokens = [], 0, 0
        if not self._weighted and (documents.run_weight != 1).any():
            self._add_weights()
        special = np.isin(documents.input_ids, self._special_ids)
        rows = rows_of(documents, special=special, weighted=self._weighted)
        self._num_trained += int(rows.num_trained.sum())
        self._samples.append(documents.sample)
        self._lengths.append(np.diff(documents.offsets))
        self._file.write(record_batch(rows))

    def _add_weights(self) -> None:
        """Write again, with the column, what was written without: there every weight is 1 where trained."""
        self._weighted = True
        plain = self._file
        self._file = ShardFile(self._folder, schema=documents_schema(weighted=True))
        try:
            plain.close()
            for batch in _batches(plain.path):
                self._file.write(record_batch(_with_weights(document_rows(batch))))
        finally:
            plain.abort()


def rows_of(documents: DocumentBatch, *, special: Bool, weighted: bool) -> DocumentRows:
    """Documents as rows of a shard.

    Args:
        documents: K tokens.
        special: which tokens are special.  # bool[K]
        weighted: whether the shard has loss weights; a doc_id holds fractional ones in any case.

    """
    labels, offsets = document_labels(documents), documents.offsets
    fractional = weighted or bool((documents.run_weight != 1).any())
    weights = document_weights(documents) if fractional else None
    trained = offsets_of(labels != MASKED)
    sample_id, has_sample_id = _texts(documents.sample_id)
    return DocumentRows(
        doc_id=document_ids(input_ids=documents.input_ids, labels=labels, loss_weights=weights, offsets=offsets),
        input_ids=Ragged(values=documents.input_ids, offsets=offsets),
        labels=Ragged(values=labels, offsets=offsets),
        special_tokens_mask=Ragged(values=np.packbits(special, bitorder="little"), offsets=offsets),
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
    )


def record_batch(rows: DocumentRows) -> pa.RecordBatch:
    """Rows of a document shard, with their digests, as Arrow; every buffer starts at its first row."""
    schema = documents_schema(weighted=rows.loss_weights is not None)
    mask = rows.special_tokens_mask
    num_tokens = len(rows.input_ids.values)
    spans = schema.field("spans").type
    columns = {
        "doc_id": flat_array(pa.int64(), rows.doc_id),
        "input_ids": _list(schema, "input_ids", rows.input_ids),
        "labels": _list(schema, "labels", rows.labels),
        "special_tokens_mask": list_array(
            schema.field("special_tokens_mask").type,
            pa.Array.from_buffers(pa.bool_(), num_tokens, [None, pa.py_buffer(mask.values)]),
            mask.offsets,
        ),
        "spans": list_array(
            spans,
            pa.Array.from_buffers(
                spans.value_type,
                len(rows.span_message),
                [None],
                children=[
                    flat_array(pa.int32(), values) for values in (rows.span_message, rows.span_start, rows.span_end)
                ],
            ),
            rows.span_offsets,
        ),
        "length": flat_array(pa.int32(), rows.length),
        "num_trained": flat_array(pa.int32(), rows.num_trained),
        "row": flat_array(pa.int32(), rows.row),
        "sample_id": _string_array(rows),
        "digest": flat_array(pa.uint64(), rows.digests()),
    }
    if rows.loss_weights is not None:
        columns["loss_weights"] = _list(schema, "loss_weights", rows.loss_weights)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def concatenate_documents(batches: list[DocumentBatch]) -> DocumentBatch:
    """Several batches as one."""
    if len(batches) == 1:
        return batches[0]
    return DocumentBatch(
        input_ids=np.concatenate([batch.input_ids for batch in batches]),
        offsets=_join_offsets([batch.offsets for batch in batches]),
        sample=np.concatenate([batch.sample for batch in batches]),
        sample_id=tuple(name for batch in batches for name in batch.sample_id),
        run_offsets=_join_offsets([batch.run_offsets for batch in batches]),
        run_start=np.concatenate([batch.run_start for batch in batches]),
        run_end=np.concatenate([batch.run_end for batch in batches]),
        run_message=np.concatenate([batch.run_message for batch in batches]),
        run_weight=np.concatenate([batch.run_weight for batch in batches]),
    )


def slice_documents(batch: DocumentBatch, first: int, last: int) -> DocumentBatch:
    """Documents ``[first, last)`` of a batch."""
    tokens = slice(int(batch.offsets[first]), int(batch.offsets[last]))
    runs = slice(int(batch.run_offsets[first]), int(batch.run_offsets[last]))
    return DocumentBatch(
        input_ids=batch.input_ids[tokens],
        offsets=batch.offsets[first : last + 1] - batch.offsets[first],
        sample=batch.sample[first:last],
        sample_id=batch.sample_id[first:last],
        run_offsets=batch.run_offsets[first : last + 1] - batch.run_offsets[first],
        run_start=batch.run_start[runs],
        run_end=batch.run_end[runs],
        run_message=batch.run_message[runs],
        run_weight=batch.run_weight[runs],
    )


def _join_offsets(offsets: list[Int64]) -> Int64:
    """[0, 2, 3] and [0, 4] give [0, 2, 3, 7]."""
    return offsets_of(np.concatenate([np.diff(each) for each in offsets]))


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


def _list(schema: pa.Schema, name: str, column: Ragged) -> pa.Array:
    kind = schema.field(name).type
    return list_array(kind, flat_array(kind.value_type, column.values), column.offsets)


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    reader = pa.ipc.open_file(pa.BufferReader(CacheFiles(path.parent).map(path.name)))
    for i in range(reader.num_record_batches):
        yield reader.get_batch(i)


def _with_weights(rows: DocumentRows) -> DocumentRows:
    weights = (rows.labels.values != MASKED).astype(np.float32)
    return replace(rows, loss_weights=Ragged(values=weights, offsets=rows.labels.offsets))
