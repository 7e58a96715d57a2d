"""The rows of one record batch as flat arrays: built by the writers, viewed by the readers, digested by both."""

import struct
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_64

from packer.batches import BlockBatch, Float32, Int8, Int32, Int64, UInt64
from packer.layout import MASKED, concatenated_ranges, offsets_of
from packer.store.digest import Pieces, digest_rows

_DOCUMENT_HEADER = struct.Struct("<9q")
_SIDES = struct.Struct("<2q")
_PAIRS = struct.Struct("<q")
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

_FEW = 4
"""Below this number of rows, a loop is faster than operations on whole arrays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ragged:
    """A list column: row ``i`` is ``values[offsets[i]:offsets[i + 1]]``."""

    values: npt.NDArray[Any]
    offsets: npt.NDArray[np.integer]  # [R + 1]

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        """Return the values of one row; none if its range is out of bounds."""
        start, end = self.offsets.item(index), self.offsets.item(index + 1)
        return self.values[start:end] if 0 <= start <= end <= len(self.values) else self.values[:0]

    def bounds(self, index: int) -> tuple[int, int]:
        """Return start and end of one row, both 0 if its range is out of bounds."""
        start, end = self.offsets.item(index), self.offsets.item(index + 1)
        return (start, end) if 0 <= start <= end <= len(self.values) else (0, 0)

    def lengths(self) -> Int64:
        return np.diff(self.offsets).astype(np.int64, copy=False)

    def take(self, indices: Int64) -> tuple[Int64, Int64]:
        """Return starts and ends of some rows, int64[R] each.

        An invalid range becomes empty, so that its digest differs.

        `indices`: int64[R]
        """
        starts = self.offsets[indices].astype(np.int64, copy=False)
        ends = self.offsets[indices + 1].astype(np.int64, copy=False)
        possible = (starts >= 0) & (starts <= ends) & (ends <= len(self.values))
        return np.where(possible, starts, 0), np.where(possible, ends, 0)


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

    def sample_id_of(self, index: int) -> str | None:
        """Return the sample id of one row, or None."""
        return self.sample_id[index].tobytes().decode() if self.has_sample_id[index] else None

    def digests(self, indices: Int64 | None = None) -> UInt64:
        """Compute row digests as defined in :mod:`packer.store.digest`; by default of all rows.  # uint64[R]"""
        read_by_row = not isinstance(self.input_ids.values, np.ndarray)
        if indices is not None and (len(indices) < _FEW or read_by_row):
            return np.array([self.digest(row) for row in indices.tolist()], np.uint64)
        rows = np.arange(len(self.row), dtype=np.int64) if indices is None else indices
        counts = np.diff(self.span_offsets)[rows]
        if counts[counts > 0].sum(dtype=np.int64) > len(self.span_message):
            # Repeated rows, or overlapping lists in a handmade file, could make the copies arbitrarily large.
            return np.array([self.digest(row) for row in rows.tolist()], np.uint64)
        lists: list[Pieces] = [(column.values, *column.take(rows)) for column in (self.input_ids, self.labels)]
        if self.loss_weights is not None:
            lists.append((self.loss_weights.values, *self.loss_weights.take(rows)))
        spans = self._spans(rows)
        texts: Pieces = (self.sample_id.values, *self.sample_id.take(rows))
        sizes = [_sizes(column) for column in lists]
        if self.loss_weights is None:
            sizes.append(np.full(len(rows), -1))
        columns = [column[rows].astype(np.int64) for column in (self.doc_id, self.length, self.num_trained, self.row)]
        columns += [*sizes, _sizes(spans) // 3, np.where(self.has_sample_id[rows], _sizes(texts), -1)]
        if self.side is not None and self.margin is not None:
            columns += [self.side[rows].astype(np.int64), self.margin[rows].view(np.int32).astype(np.int64)]
        return digest_rows(np.stack(columns, axis=1), [*lists, spans, texts])

    def digest(self, row: int) -> int:
        """Compute the digest of one row, without the arrays that pay off only for many rows."""
        lists = [self.input_ids[row], self.labels[row]]
        if self.loss_weights is not None:
            lists.append(self.loss_weights[row])
        sizes = [len(values) for values in lists] + ([-1] if self.loss_weights is None else [])
        columns = (self.span_message, self.span_start, self.span_end)
        first, last = Ragged(values=min(columns, key=len), offsets=self.span_offsets).bounds(row)
        spans = [column[first:last] for column in columns]
        text = self.sample_id[row]
        sizes += [len(spans[0]), len(text) if self.has_sample_id[row] else -1]
        scalars = (self.doc_id[row], self.length[row], self.num_trained[row], self.row[row])
        state = xxh3_64(_DOCUMENT_HEADER.pack(*scalars, *sizes))
        if self.side is not None and self.margin is not None:
            state.update(_SIDES.pack(self.side[row], self.margin[row : row + 1].view(np.int32)[0]))
        for values in (*lists, *spans, text):
            state.update(values.data)
        return state.intdigest()

    def _spans(self, rows: Int64) -> Pieces:
        """Return the spans of some rows, ordered per row as all messages, all starts, all ends.

        One piece per row is digested faster than three.
        """
        columns = (self.span_message, self.span_start, self.span_end)
        starts, ends = Ragged(values=min(columns, key=len), offsets=self.span_offsets).take(rows)
        counts = ends - starts
        bounds = offsets_of(3 * counts)
        values = np.empty(int(bounds[-1]), np.int32)
        for number, column in enumerate(columns):
            places = concatenated_ranges(bounds[:-1] + number * counts, counts)
            values[places] = column[concatenated_ranges(starts, counts)]
        return values, bounds[:-1], bounds[1:]


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
    pairs: Ragged | None  # int64

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
            pairs=None if batch.pairs is None else Ragged(values=batch.pairs, offsets=batch.doc_offsets // 2),
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
        if self.pairs is not None:
            pairs = self.pairs[row]
            state.update(_PAIRS.pack(len(pairs)))
            state.update(pairs.data)
        return state.intdigest()


def list_array(kind: pa.DataType, values: pa.Array, offsets: npt.NDArray[np.integer]) -> pa.Array:
    """Build a list column without nulls from flat values, with the type given by the schema."""
    width = np.int64 if pa.types.is_large_list(kind) else np.int32
    bounds = pa.py_buffer(np.ascontiguousarray(offsets, width))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, bounds], children=[values])


def flat_array(kind: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    """Build a column of fixed-width values without nulls, with the type given by the schema; copies only to convert."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values, _DTYPES[kind]))])


def _sizes(column: Pieces) -> Int64:
    return column[2] - column[1]
