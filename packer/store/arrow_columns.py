"""The rows of one record batch as flat arrays: built by the writers, viewed by the readers, digested by both.

A reader's arrays are views of the record batch's own memory. Arrow keeps no checksums, so a flipped bit in a file's
metadata can result in any length and any offset: a batch of a file is validated before it is viewed. The values
themselves are checked by the digests.

**doc_id**: xxh3-64 of int64 (number of tokens, then 0), input_ids and labels; interpreted as int64. If it has images,
the second number is 2 more, and the sha256 and then the five int32 of each follow. If the recipe takes columns from
rows, it is 4 more, and the document's values of each follow, by name. It depends on the document alone, not on its row,
its file, its neighbors, or the columns that files give.

**Row digest**: xxh3-64 (seed 0) of one row's bytes, little-endian as Arrow stores them.

First a header of int64 values, then the bytes of each list column of the row, in the order of the schema. The header
contains the length of every list, so that no two different rows have the same bytes. The digest is stored in the column
``digest``, which it does not cover.

- documents: header = doc_id, length, num_trained, row, then the lengths of input_ids, labels, spans and sample_id
  (UTF-8 bytes; -1 for null); only if the file has this column, also side. Bytes: input_ids, labels, spans' messages,
  starts and ends, sample_id; then, of a document with images, the sha256 of each, and the five int32 of each; then its
  values of columns that the recipe declares, by name.
- blocks: header = length, num_trained, L, then the lengths of doc_ids, doc_starts, doc_lengths, doc_places and
  seq_lengths. Bytes: input_ids, labels, position_ids, doc_ids, doc_starts, doc_lengths, doc_places, seq_lengths.
"""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_64

from packer.batches import BlockBatch, Int8, Int32, Int64, UInt64
from packer.layout import numbers_of
from packer.media.carried import Media
from packer.store.entries import BLOCK_PIECES, VALUES_OF_FILES, value_fields

Pieces: TypeAlias = tuple[npt.NDArray[Any], Int64, Int64]
"""A flat array, with the start and end of each row's piece of it (counted in values)."""

_BLOCK_HEADER = struct.Struct("<8q")


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


def flat_values(column: Ragged | None) -> Any:
    """Return all values of the rows of a list column; None without one."""
    return None if column is None else column.values[int(column.offsets[0]) : int(column.offsets[-1])]


Column: TypeAlias = npt.NDArray[Any] | Ragged | None
"""A column of a shard; None if it has no such column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRows:
    """Rows of a document shard. R rows."""

    doc_id: Int64  # [R]
    input_ids: Ragged  # int32
    labels: Ragged  # int32
    span_offsets: Int32  # [R + 1]
    span_message: Int32  # [U]
    span_start: Int32  # [U]
    span_end: Int32  # [U]
    length: Int32  # [R]
    num_trained: Int32  # [R]
    row: Int32  # [R]
    sample_id: Ragged  # uint8, UTF-8
    has_sample_id: npt.NDArray[np.bool_]  # [R]
    side: Int8 | None  # [R] index into SIDES; None if the rows have none
    media: Media | None = None  # of R documents; None if the shard has no images
    values: Mapping[str, npt.NDArray[Any] | Ragged] = field(default_factory=dict)
    """Columns that the recipe declares: a number for each document, or those of its tokens."""

    joined: frozenset[str] = frozenset()
    """Those whose values come from a file, which names documents by doc_id; a doc_id covers the others."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns; the three of the spans, and the two of images if there are any, as lists."""
        spans = (self.span_message, self.span_start, self.span_end)
        media = () if self.media is None else (self.media.sha256, self.media.places)
        return (
            *(self.doc_id, self.length, self.num_trained, self.row),
            *(self.input_ids, self.labels),
            *(Ragged(values=values, offsets=self.span_offsets) for values in spans),
            *(self.sample_id, self.has_sample_id, self.side),
            *(Ragged(values=values, offsets=self.media.offsets) for values in media if self.media is not None),
            *self.values.values(),
        )

    def without_joined(self) -> Self:
        """Return the rows without columns whose values come from files."""
        values = {name: each for name, each in self.values.items() if name not in self.joined}
        return replace(self, values=values, joined=frozenset())

    def ids_of(self, row: int) -> Int64:
        """Return the id of the document of a row.  # int64[1]"""
        return self.doc_id[row : row + 1]

    def sample_id_of(self, index: int) -> str | None:
        """Return the sample id of one row, or None."""
        return self.sample_id[index].tobytes().decode(errors="backslashreplace") if self.has_sample_id[index] else None

    def digests(self, indices: Int64 | None = None) -> UInt64:
        """Compute row digests as defined above; by default of all rows.  # uint64[R]"""
        rows = np.arange(len(self.length)) if indices is None else indices
        spans = (self.span_message, self.span_start, self.span_end)
        columns = [_pieces(each.values, each.offsets, rows) for each in (self.input_ids, self.labels)]
        columns += (_pieces(each, self.span_offsets, rows) for each in spans)
        columns.append(_pieces(self.sample_id.values, self.sample_id.offsets, rows))
        lengths = [ends - starts for _, starts, ends in columns]
        header: list[npt.NDArray[Any]] = [self.doc_id[rows], self.length[rows], self.num_trained[rows], self.row[rows]]
        header += *lengths[:2], lengths[-2], np.where(self.has_sample_id[rows], lengths[-1], -1)
        if self.side is not None:
            header.append(self.side[rows])
        if self.media is not None:
            columns += (_pieces(each, self.media.offsets, rows) for each in (self.media.sha256, self.media.places))
        columns += ((values, starts[rows], ends[rows]) for values, starts, ends in value_pieces(self.values))
        return digest_rows(np.stack([each.astype(np.int64) for each in header], axis=1), columns)


def _pieces(values: npt.NDArray[Any], offsets: npt.NDArray[np.integer], rows: Int64) -> Pieces:
    """Return the pieces of some rows of a list column, whose values may be several numbers each."""
    bounds = offsets.astype(np.int64) * (values.shape[1] if values.ndim == 2 else 1)
    return values.reshape(-1), bounds[rows], bounds[rows + 1]


def value_pieces(values: Mapping[str, npt.NDArray[Any] | Ragged]) -> list[Pieces]:
    """Return columns that come from rows, each with the start and end of each document's values."""
    columns = []
    for column in values.values():
        flat = column.values if isinstance(column, Ragged) else column
        offsets = column.offsets if isinstance(column, Ragged) else np.arange(len(flat) + 1)
        columns.append(_pieces(flat, offsets, np.arange(len(offsets) - 1)))
    return columns


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

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns."""
        return (
            *(self.length, self.num_trained, self.input_ids, self.labels, self.position_ids),
            *(self.doc_ids, self.doc_starts, self.doc_lengths, self.doc_places, self.seq_lengths),
        )

    def ids_of(self, row: int) -> Int64:
        """Return the ids of the documents in a block, in the order of their pieces.  # int64[P]"""
        return self.doc_ids[row]

    @classmethod
    def of(cls, batch: BlockBatch) -> Self:
        """Return the rows of a batch."""
        return cls(
            input_ids=batch.input_ids,
            labels=batch.labels,
            position_ids=batch.position_ids,
            **{name: Ragged(values=getattr(batch, name), offsets=batch.doc_offsets) for name in BLOCK_PIECES},
            seq_lengths=Ragged(values=batch.seq_lengths, offsets=batch.seq_offsets),
            length=batch.length,
            num_trained=batch.num_trained,
        )

    def digests(self, indices: Int64 | None = None) -> UInt64:
        """Compute row digests as defined above; by default of all rows.  # uint64[R]"""
        numbers = range(len(self.length)) if indices is None else indices.tolist()
        return np.fromiter(map(self.digest, numbers), np.uint64, len(numbers))

    def digest(self, row: int) -> int:
        """Compute the digest of one row."""
        columns = (self.doc_ids, self.doc_starts, self.doc_lengths, self.doc_places, self.seq_lengths)
        lists = [column[row] for column in columns]
        sizes = (self.input_ids.shape[1], *(len(values) for values in lists))
        state = xxh3_64(_BLOCK_HEADER.pack(self.length.item(row), self.num_trained.item(row), *sizes))
        for tokens in (self.input_ids, self.labels, self.position_ids):
            state.update(tokens[row].data)
        for values in lists:
            state.update(values.data)
        return state.intdigest()


def document_ids(
    *,
    input_ids: Int32,
    labels: Int32,
    offsets: Int64,
    media: Media | None = None,
    values: Sequence[Pieces] = (),
) -> Int64:
    """Compute the doc_id of each of D documents of K tokens, as defined above.  # int64[D]

    `values` are of columns that come from rows.
    """
    starts, ends = offsets[:-1], offsets[1:]
    header = np.zeros((len(starts), 2), np.int64)
    header[:, 0] = ends - starts
    columns: list[Pieces] = [(input_ids, starts, ends), (labels, starts, ends)]
    if media is not None:
        first, last = media.offsets[:-1], media.offsets[1:]
        header[:, 1] += 2 * (last > first)
        columns.append((media.sha256.reshape(-1), first * 32, last * 32))
        columns.append((media.places.reshape(-1), first * 5, last * 5))
    header[:, 1] += 4 * bool(values)
    return digest_rows(header, [*columns, *values]).view(np.int64)


def digest_rows(header: Int64, columns: Sequence[Pieces]) -> UInt64:
    """Compute the xxh3-64 of each row: its line of the header [R, H], then its piece of each column.  # uint64[R]

    Worked example: header [[2], [1]] and one int32 column ([7, 8, 9], starts [0, 2], ends [2, 3]) digest the bytes
    of int64 2, int32 7, 8 and of int64 1, int32 9.
    """
    num_rows, width = header.shape[0], header.shape[1] * header.itemsize
    heads = _bytes_of(np.ascontiguousarray(header))
    views = [
        (_bytes_of(values), (starts * values.itemsize).tolist(), (ends * values.itemsize).tolist())
        for values, starts, ends in columns
        if len(values)
    ]
    digests = np.empty(num_rows, np.uint64)
    for i in range(num_rows):
        state = xxh3_64(heads[i * width : (i + 1) * width])
        for view, starts, ends in views:
            state.update(view[starts[i] : ends[i]])
        digests[i] = state.intdigest()
    return digests


def _bytes_of(values: npt.NDArray[Any]) -> memoryview:
    return values.reshape(-1).view(np.uint8).data


def digest_values(digest: "hashlib._Hash", rows: DocumentRows | BlockRows) -> None:
    """Add the rows of a record batch to the digest of a shard's values, the manifest's `rows_sha256`.

    Of each column in the order of `columns`, it gets a line with the number of bytes, then the bytes, little-endian. A
    list column is two: its lengths as int64, then its values. One that the file does not have is a line that says -1.
    """
    for column in rows.columns:
        parts: tuple[npt.NDArray[Any] | None, ...] = (None if isinstance(column, Ragged) else column,)
        if isinstance(column, Ragged):
            parts = (column.lengths(), flat_values(column))
        for values in parts:
            digest.update(b"%d\n" % (-1 if values is None else values.nbytes))
            digest.update(b"" if values is None else np.ascontiguousarray(values).data)


def shard_rows(batch: pa.RecordBatch, kind: Literal["documents", "blocks"]) -> DocumentRows | BlockRows:
    """Return the rows of a record batch of a shard, which Arrow has validated; ValueError if it is not valid."""
    return document_rows(batch) if kind == "documents" else BlockRows(**_columns(batch))


def document_rows(batch: pa.RecordBatch) -> DocumentRows:
    """Return the rows of a record batch of a document shard; ValueError as in :func:`shard_rows`."""
    span_offsets, (message, start, end) = _structs(batch.column("spans"))
    validity, text_offsets, text = batch.column("sample_id").buffers()
    has_sample_id = np.ones(batch.num_rows, np.uint8)
    if validity is not None:
        has_sample_id = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little", count=batch.num_rows)
    values = {each.name: each for each in value_fields(batch.schema)}
    columns = _columns(batch)
    return DocumentRows(
        values={name: columns.pop(name) for name in values},
        joined=frozenset(name for name, each in values.items() if each.metadata == VALUES_OF_FILES),
        **{"side": None} | columns,
        span_offsets=span_offsets,
        span_message=numbers_of(message),
        span_start=numbers_of(start),
        span_end=numbers_of(end),
        media=_media(batch.column("media")) if "media" in batch.schema.names else None,
        sample_id=Ragged(
            values=np.frombuffer(text or b"", np.uint8),
            offsets=np.frombuffer(text_offsets, np.int32, batch.num_rows + 1),
        ),
        has_sample_id=has_sample_id.view(np.bool_),
    )


def _columns(batch: pa.RecordBatch) -> dict[str, Any]:
    apart = ("spans", "sample_id", "media", "digest")  # of another kind, or not part of the rows
    return {name: _column(batch.column(name)) for name in batch.schema.names if name not in apart}


def _column(column: pa.Array) -> Any:
    """Return a column of numbers: an array of one value or L values per row, or lists of either."""
    if pa.types.is_primitive(column.type):
        return numbers(column)
    values = _column(_filled(column).values)
    if pa.types.is_fixed_size_list(column.type):
        return values.reshape(len(column), column.type.list_size)
    return Ragged(values=values, offsets=numbers_of(column.offsets))


def _media(column: pa.Array) -> Media:
    offsets, (sha256, *places) = _structs(column)
    digests = np.frombuffer(sha256.buffers()[1] or b"", np.uint8, 32 * len(sha256))
    return Media(
        offsets=offsets.astype(np.int64),
        sha256=digests.reshape(-1, 32),
        places=np.stack([numbers_of(place) for place in places], axis=1),
    )


def _structs(column: pa.Array) -> tuple[npt.NDArray[Any], list[pa.Array]]:
    """Return the offsets of a column of lists of structs, and the values of each field."""
    structs = _filled(_filled(column).values)
    return numbers_of(column.offsets), [_filled(structs.field(place)) for place in range(structs.type.num_fields)]


def numbers(column: pa.Array) -> npt.NDArray[Any]:
    """Return the values of a column of numbers; ValueError if it marks nulls."""
    return numbers_of(_filled(column))


def _filled(column: pa.Array) -> pa.Array:
    if column.null_count:
        raise ValueError("a column without nulls marks nulls")
    return column
