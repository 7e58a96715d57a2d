"""Reading documents: flat columns for packing, single documents for people; digests are checked on first touch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from packer.batches import Bool, DocumentColumns, Float32, Int32, Int64, UInt64
from packer.layout import MASKED, concatenated_ranges, offsets_of
from packer.store.arrow_columns import DocumentRows, Ragged
from packer.store.manifest import Shard
from packer.store.numbered_rows import Chunks

T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document. n tokens, U trained runs."""

    doc_id: int
    input_ids: Int32  # [n]
    labels: Int32  # [n]
    special_tokens_mask: Bool  # [n]
    loss_weights: Float32 | None  # [n], only in a shard with fractional weights
    span_message: Int32  # [U]
    span_start: Int32  # [U]
    span_end: Int32  # [U]
    length: int
    num_trained: int
    row: int
    """Row of its sample, from 0 in its partition."""

    sample_id: str | None
    digest: int
    path: str
    """Its shard, relative to the cache."""

    shard_row: int
    """Its row in that file."""


class FoundDocuments:
    """Some documents, found and checked, of one split or of several: what is left is to copy what is wanted of them.

    Args:
        opened: for each document the record batch it lies in.
        rows: for each document its row in there.

    """

    __slots__ = ("opened", "rows")

    def __init__(self, opened: list[DocumentRows], rows: list[int]) -> None:
        self.opened = opened
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def copy(
        self, name: str, into: npt.NDArray[Any], places: Sequence[int], lengths: Sequence[int], first: int
    ) -> None:
        """Write the first tokens of some documents into a flat array, widened on the way.

        Args:
            name: ``input_ids``, ``labels``, or ``loss_weights``: 1 where trained if none are stored, 0 where masked.
            into: [K], of a type that takes the values.
            places: where in it each document begins.
            lengths: how many of its tokens are written, at most as many as it has.
            first: number of the first of them.

        """
        end = first + len(places)
        rows = zip(places, lengths, self.opened[first:end], self.rows[first:end], strict=True)
        for place, length, opened, row in rows:
            into[place : place + length] = _values(opened, name, row)[:length]

    def doc_ids(self) -> list[Int64]:
        """Identity of each document.  # int64[1] each"""
        pairs = zip(self.opened, self.rows, strict=True)
        return [opened.doc_id[row : row + 1].astype(np.int64) for opened, row in pairs]

    def weight_sums(self, longest: int | None = None) -> npt.NDArray[np.float64]:
        """Summed loss weights of each document, of its first `longest` tokens.  # float64[D]"""
        pairs = zip(self.opened, self.rows, strict=True)
        sums = (_values(opened, "loss_weights", row)[:longest].sum(dtype=np.float64) for opened, row in pairs)
        return np.fromiter(sums, np.float64, len(self.rows))


def _values(opened: DocumentRows, name: str, row: int) -> npt.NDArray[Any]:
    if name != "loss_weights":
        column: Ragged = getattr(opened, name)
        return column.row(row)
    trained = opened.labels.row(row) != MASKED
    return trained if opened.loss_weights is None else np.where(trained, opened.loss_weights.row(row), 0)


class DocumentShards:
    """The documents of some shards, numbered through; needs no manifest. Pickles as folder, shards and choice.

    Args:
        folder: the cache.
        shards: document shards, in order.
        mmap: reach rows through a map of the file; False reads them, for network file systems.
        chosen: which of their documents these are, ascending; None is all of them.  # int64[N]

    """

    def __init__(
        self, folder: Path, shards: Sequence[Shard], *, mmap: bool = True, chosen: Int64 | None = None
    ) -> None:
        self._chunks: Chunks[DocumentRows] = Chunks(Path(folder), shards, kind="documents", mmap=mmap)
        self._chosen = chosen

    def __len__(self) -> int:
        return len(self._chunks) if self._chosen is None else len(self._chosen)

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(DocumentShards, mmap=self._chunks.mmap, chosen=self._chosen)
        return made, (self._chunks.folder, self._chunks.shards)

    @property
    def folder(self) -> Path:
        return self._chunks.folder

    @property
    def shards(self) -> tuple[Shard, ...]:
        return self._chunks.shards

    @property
    def weighted(self) -> bool:
        """Whether some shard has fractional loss weights."""
        return any(self._chunks.mapped(i).weighted for i in range(len(self.shards)))

    @property
    def num_tokens(self) -> int:
        """Tokens of these documents."""
        if self._chosen is None:
            return sum(shard.num_tokens for shard in self.shards)
        return int(self.lengths().sum(dtype=np.int64))

    def own(self, values: npt.NDArray[T]) -> npt.NDArray[T]:
        """Of values of all documents of the shards, in their order, those of these documents."""
        return values if self._chosen is None else values[self._chosen]

    def lengths(self) -> Int32:
        """Tokens of each document, compared with where its ids lie.  # int32[N]

        Raises:
            CheckError: a length is not the one of the ids; digests are not checked here.

        """
        return self._lengths

    def num_trained(self) -> Int32:
        """Trained tokens of each document; digests are not checked here.  # int32[N]"""
        parts = [rows.num_trained for rows, _ in self._chunks]
        return self.own(np.concatenate(parts) if parts else np.zeros(0, np.int32))

    def doc_ids(self) -> Int64:
        """Identity of each document; digests are not checked here.  # int64[N]"""
        return self._doc_ids

    def file_rows(self) -> Int64:
        """Row of its file, from 0, that each document comes from; digests are not checked here.  # int64[N]"""
        shard_of = self._chunks.shard_of
        parts = [rows.row + np.int64(self.shards[shard_of[i]].first_row) for i, (rows, _) in enumerate(self._chunks)]
        return self.own(np.concatenate(parts) if parts else np.zeros(0, np.int64))

    def runs(self) -> tuple[Int64, Int32, Int32]:
        """Trained runs: those of each document, and where each begins and ends in it; digests are not checked here.

        Returns:
            offsets int64[N + 1], starts and ends int32[U]

        Raises:
            CheckError: the runs of a record batch are not where it says.

        """
        counts, starts, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        for chunk, (rows, _) in enumerate(self._chunks):
            sizes = np.diff(rows.span_offsets)
            first, last = int(rows.span_offsets[0]), int(rows.span_offsets[-1])
            if (sizes < 0).any() or first < 0 or last > min(len(rows.span_start), len(rows.span_end)):
                raise self._chunks.damaged(chunk, "spans lie outside their column")
            counts.append(sizes.astype(np.int64))
            starts.append(rows.span_start[first:last])
            ends.append(rows.span_end[first:last])
        offsets, start, end = offsets_of(np.concatenate(counts)), np.concatenate(starts), np.concatenate(ends)
        if self._chosen is None:
            return offsets, start, end
        number = np.diff(offsets)[self._chosen]
        runs = concatenated_ranges(offsets[self._chosen], number)
        return offsets_of(number), start[runs], end[runs]

    def ids_at(self, documents: Int64, tokens: Int64) -> Int32:
        """One id of each of some documents; digests are not checked here.  # int32[Q]

        Args:
            documents: their numbers, ascending.  # int64[Q]
            tokens: which of their tokens, from 0.  # int64[Q]

        Raises:
            CheckError: a length is not the one of the ids.

        """
        self.lengths()
        chunks, rows = self._chunks.locate(self._in_shards(documents))
        ids = np.empty(len(documents), np.int32)
        bounds = np.searchsorted(chunks, np.arange(len(self._chunks.shard_of) + 1)).tolist()
        for chunk, (first, end) in enumerate(pairwise(bounds)):
            if first < end:
                column = self._chunks[chunk][0].input_ids
                ids[first:end] = column.values[column.offsets[rows[first:end]] + tokens[first:end]]
        return ids

    def columns(self) -> DocumentColumns:
        """All tokens, one flat array a record batch, over the files' own pages.

        No digest is checked: call :meth:`verify` with the documents that are about to be used. Where only some shards
        have loss weights, those of the others are made in memory (1 where trained), four bytes a token.

        Raises:
            CheckError: a shard's size or structure is not what the manifest says.

        """
        opened = [rows for rows, _ in self._chunks]
        starts = [rows.input_ids.offsets[:-1].astype(np.int64) for rows in opened]
        numbers = np.arange(len(opened), dtype=np.int32)
        weighted = any(rows.loss_weights is not None for rows in opened)
        return DocumentColumns(
            input_ids=tuple(rows.input_ids.values for rows in opened),
            labels=tuple(rows.labels.values for rows in opened),
            loss_weights=tuple(_weights(rows) for rows in opened) if weighted else None,
            chunk=self.own(np.repeat(numbers, np.diff(self._chunks.bounds))),
            start=self.own(np.concatenate(starts) if starts else np.zeros(0, np.int64)),
            length=self.lengths(),
            doc_id=self.doc_ids(),
        )

    def locate(self, indices: Int64) -> FoundDocuments:
        """Where some documents lie, in the order asked, their digests compared; nothing is copied yet.

        Raises:
            CheckError: a row is not what was written.
            IndexError: a document that is not there.

        """
        indices = self._in_shards(np.asarray(indices, np.int64))
        chunks, rows = self._chunks.locate(indices)
        self._chunks.check(indices)
        return FoundDocuments([self._chunks[chunk][0] for chunk in chunks.tolist()], rows.tolist())

    def verify(self, indices: Int64 | None = None) -> None:
        """Check the digests of some documents, of all where none are named.

        Raises:
            CheckError: a row is not what was written.

        """
        self._chunks.verify(self._chosen if indices is None else self._in_shards(indices))

    def digests(self) -> UInt64:
        """The stored row digests, in row order.  # uint64[N]"""
        return self.own(self._chunks.digests())

    def read(self, index: int) -> Document:
        """One document; its arrays are views of the file and cannot be written to.

        Raises:
            CheckError: the row is not what was written.
            IndexError: a document that is not there.

        """
        chunk, row = self._checked_row(index)
        rows, digests = self._chunks[chunk]
        spans = slice(int(rows.span_offsets[row]), int(rows.span_offsets[row + 1]))
        return Document(
            doc_id=int(rows.doc_id[row]),
            input_ids=rows.input_ids.row(row),
            labels=rows.labels.row(row),
            special_tokens_mask=rows.special_tokens(row),
            loss_weights=None if rows.loss_weights is None else rows.loss_weights.row(row),
            span_message=rows.span_message[spans],
            span_start=rows.span_start[spans],
            span_end=rows.span_end[spans],
            length=int(rows.length[row]),
            num_trained=int(rows.num_trained[row]),
            row=int(rows.row[row]),
            sample_id=rows.sample_id.row(row).tobytes().decode() if rows.has_sample_id[row] else None,
            digest=int(digests[row]),
            path=self._chunks.path_of(chunk),
            shard_row=self._chunks.row_in_shard(chunk, row),
        )

    def find(self, doc_id: int) -> int | None:
        """Number of the first document with this identity, or None."""
        order, ids = self._by_id
        place = int(np.searchsorted(ids, doc_id))
        return int(order[place]) if place < len(ids) and int(ids[place]) == doc_id else None

    def origin(self, index: int) -> tuple[int, int]:
        """Which of the manifest's inputs a document comes from, and the row in that file, from 0.

        Raises:
            CheckError: the row is not what was written.
            ValueError: the shard was made without a source.

        """
        chunk, row = self._checked_row(index)
        shard = self.shards[self._chunks.shard_of[chunk]]
        if shard.source is None:
            raise ValueError(f"{shard.path} names no source")
        return shard.source, shard.first_row + int(self._chunks[chunk][0].row[row])

    def origins(self) -> tuple[Int64, Int64]:
        """Which of the manifest's inputs each document comes from, and the row in that file; digests are not checked.

        Returns:
            inputs and rows, int64[N] each; an input is -1 where a shard was made without a source

        """
        sources = [-1 if shard.source is None else shard.source for shard in self.shards]
        input_of_chunk = np.array([sources[shard] for shard in self._chunks.shard_of], np.int64)
        return self.own(np.repeat(input_of_chunk, np.diff(self._chunks.bounds))), self.file_rows()

    def _in_shards(self, indices: Int64) -> Int64:
        """Numbers among all documents of the shards.

        Raises:
            IndexError: a document that is not there; negative numbers do not count from the end.

        """
        if self._chosen is None:
            return indices
        if len(indices) and int(indices.min()) < 0:
            raise IndexError(f"expected documents from 0 to {len(self) - 1}, found {indices.min()}")
        return self._chosen[indices]

    def _checked_row(self, index: int) -> tuple[int, int]:
        number = self._in_shards(np.array([index], np.int64))
        chunks, rows = self._chunks.locate(number)
        self._chunks.check(number)
        return int(chunks[0]), int(rows[0])

    @cached_property
    def _lengths(self) -> Int32:
        parts = []
        for chunk, (rows, _) in enumerate(self._chunks):
            offsets = rows.input_ids.offsets
            inside = offsets[0] >= 0 and offsets[-1] <= len(rows.input_ids.values)
            if not inside or not np.array_equal(rows.length, np.diff(offsets)) or (rows.length < 0).any():
                raise self._chunks.damaged(chunk, "length is not the number of input_ids")
            parts.append(rows.length)
        lengths: Int32 = self.own(np.concatenate(parts) if parts else np.zeros(0, np.int32))
        lengths.flags.writeable = False
        return lengths

    @cached_property
    def _doc_ids(self) -> Int64:
        parts = [rows.doc_id for rows, _ in self._chunks]
        ids: Int64 = self.own(np.concatenate(parts) if parts else np.zeros(0, np.int64))
        ids.flags.writeable = False
        return ids

    @cached_property
    def _by_id(self) -> tuple[Int64, Int64]:
        """Documents in the order of their identity, of equals the first one first, and the identities in that order."""
        order = np.argsort(self._doc_ids, kind="stable")
        return order, self._doc_ids[order]


def _weights(rows: DocumentRows) -> Float32:
    if rows.loss_weights is not None:
        weights: Float32 = rows.loss_weights.values
        return weights
    made: Float32 = (rows.labels.values != MASKED).astype(np.float32)
    return made
