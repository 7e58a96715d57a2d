"""The rows of one record batch as flat arrays: built by the writers, viewed by the readers, digested by both."""

import struct
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_64

from packer.batches import BlockBatch, Float32, Int8, Int32, Int64, UInt64
from packer.layout import MASKED
from packer.media.columns import Media

_DOCUMENT_HEADER = struct.Struct("<9q")
_SIDES = struct.Struct("<2q")
_BLOCK_HEADER = struct.Struct("<9q")
_DTYPES: dict[pa.DataType, type[np.generic]] = {
    pa.int8(): np.int8,
    pa.uint8(): np.uint8,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.uint64(): np.uint64,
    pa.float32(): np.float32,
}
"""numpy types of the schemas' fixed-width types; asking Arrow for them may import pandas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ragged:
    """A list column: row ``i`` is ``values[offsets[i]:offsets[i + 1]]``."""

    values: npt.NDArray[Any]
    offsets: npt.NDArray[np.integer]  # [R + 1]

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        """Return the values of one row."""
        return self.values[self.offsets.item(index) : self.offsets.item(index + 1)]

    def lengths(self) -> Int64:
        return np.diff(self.offsets).astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRows:
    """Rows of a document shard. R rows."""

    doc_id: Int64  # [R]
    input_ids: Ragged  # int32
    labels: Ragged  # int32
    loss_weights: Ragged | None  # float32
    span_offsets: Int32  # [R + 1]
    span_message: Int32  # [U]
    span_start: Int32  # [U]
    span_end: Int32  # [U]
    length: Int32  # [R]
    num_trained: Int32  # [R]
    row: Int32  # [R]
    sample_id: Ragged  # uint8, UTF-8
    has_sample_id: npt.NDArray[np.bool_]  # [R]
    side: Int8 | None  # [R] index into SIDES; None if the rows are not preference data
    margin: Float32 | None  # [R] NaN if a row has none; None if `side` is None
    media: Media | None = None  # of R documents; None if the shard has no images

    def sample_id_of(self, index: int) -> str | None:
        """Return the sample id of one row, or None."""
        return self.sample_id[index].tobytes().decode(errors="backslashreplace") if self.has_sample_id[index] else None

    def digests(self, indices: Int64 | None = None) -> UInt64:
        """Compute row digests as defined in :mod:`packer.store.digest`; by default of all rows.  # uint64[R]"""
        rows = range(len(self.row)) if indices is None else indices.tolist()
        return np.fromiter((self.digest(row) for row in rows), np.uint64, len(rows))

    def digest(self, row: int) -> int:
        """Compute the digest of one row."""
        lists: list[Any] = [self.input_ids[row], self.labels[row]]
        if self.loss_weights is not None:
            lists.append(self.loss_weights[row])
        start, end, text = self.span_offsets.item(row), self.span_offsets.item(row + 1), self.sample_id[row]
        lists += self.span_message[start:end], self.span_start[start:end], self.span_end[start:end]
        header = _DOCUMENT_HEADER.pack(
            self.doc_id[row],
            self.length[row],
            self.num_trained[row],
            self.row[row],
            len(lists[0]),
            len(lists[1]),
            -1 if self.loss_weights is None else len(lists[2]),
            end - start,
            len(text) if self.has_sample_id[row] else -1,
        )
        state = xxh3_64(header)
        if self.side is not None and self.margin is not None:
            state.update(_SIDES.pack(self.side[row], self.margin[row : row + 1].view(np.int32)[0]))
        for values in (*lists, text):
            state.update(values)
        if self.media is not None:
            first, last = self.media.offsets[row : row + 2].tolist()
            state.update(self.media.sha256[first:last].tobytes())
            state.update(self.media.places[first:last].tobytes())
        return state.intdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRows:
    """Rows of a block shard. R rows, L tokens each."""

    input_ids: Int32  # [R, L]
    labels: Int32  # [R, L]
    position_ids: Int32  # [R, L]
    doc_ids: Ragged  # int64
    doc_starts: Ragged  # int32
    doc_lengths: Ragged  # int32
    doc_places: Ragged  # int32
    seq_lengths: Ragged  # int32
    length: Int32  # [R]
    num_trained: Int32  # [R]
    loss_weights: Float32 | None  # [R, L]

    @classmethod
    def of(cls, batch: BlockBatch, *, weighted: bool) -> Self:
        """Return the rows of a batch; if ``weighted``, with its weights, or 1 for trained tokens if it has none."""
        weights = batch.loss_weights if weighted else None
        if weighted and weights is None:
            weights = (batch.labels != MASKED).astype(np.float32)
        return cls(
            input_ids=batch.input_ids,
            labels=batch.labels,
            position_ids=batch.position_ids,
            doc_ids=Ragged(values=batch.doc_ids, offsets=batch.doc_offsets),
            doc_starts=Ragged(values=batch.doc_starts, offsets=batch.doc_offsets),
            doc_lengths=Ragged(values=batch.doc_lengths, offsets=batch.doc_offsets),
            doc_places=Ragged(values=batch.doc_places, offsets=batch.doc_offsets),
            seq_lengths=Ragged(values=batch.seq_lengths, offsets=batch.seq_offsets),
            length=batch.length,
            num_trained=batch.num_trained,
            loss_weights=weights,
        )

    def digests(self, indices: Int64 | None = None) -> UInt64:
        """Compute row digests as defined in :mod:`packer.store.digest`; by default of all rows.  # uint64[R]"""
        rows = range(len(self.length)) if indices is None else indices.tolist()
        return np.fromiter((self.digest(row) for row in rows), np.uint64, len(rows))

    def digest(self, row: int) -> int:
        """Compute the digest of one row."""
        columns = (self.doc_ids, self.doc_starts, self.doc_lengths, self.doc_places, self.seq_lengths)
        lists = [column[row] for column in columns]
        weighted = self.loss_weights is not None
        sizes = (self.input_ids.shape[1], weighted, *(len(values) for values in lists))
        state = xxh3_64(_BLOCK_HEADER.pack(self.length.item(row), self.num_trained.item(row), *sizes))
        for tokens in (self.input_ids, self.labels, self.position_ids):
            state.update(tokens[row].data)
        for values in lists:
            state.update(values.data)
        if self.loss_weights is not None:
            state.update(self.loss_weights[row].data)
        return state.intdigest()


def list_array(kind: pa.DataType, values: pa.Array, offsets: npt.NDArray[np.integer]) -> pa.Array:
    """Build a list column without nulls from flat values, with the type given by the schema."""
    width = np.int64 if pa.types.is_large_list(kind) else np.int32
    bounds = pa.py_buffer(np.ascontiguousarray(offsets, width))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, bounds], children=[values])


def flat_array(kind: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    """Build a column of fixed-width values without nulls, with the type given by the schema; copies only to convert."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values, _DTYPES[kind]))])
