"""Read documents and blocks by their numbers; the digest of each row is checked when it is first read.

Blocks hold no values of columns that a recipe declares: each piece of a block names its document, where in it the piece
starts, and its slots. So a column is stored once, however documents are packed, and a later one leaves blocks as they
are.
"""

from collections import deque
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from packer.batches import CHOSEN, BlockBatch, DocumentColumns, Int8, Int32, Int64
from packer.errors import CheckError
from packer.layout import concatenated_ranges, first_trained, misplaced_sides, offsets_of
from packer.recipe.groups import Declared
from packer.store.arrow_columns import BlockRows, DocumentRows, Ragged
from packer.store.entries import BLOCK_PIECES, Kind, has_column
from packer.store.files import damage
from packer.store.numbered_rows import FoundRows, NumberedRows

_TOKENS = ("input_ids", "labels", "position_ids")
_SCALARS = ("length", "num_trained")


class BlockShards(NumberedRows[BlockRows]):
    """The blocks of several shards of one block length, numbered consecutively."""

    kind: ClassVar[Kind] = "blocks"

    def read(self, indices: Int64) -> BlockBatch:
        """Read blocks by index, in any order, repeats allowed; the arrays are copies and may be written to.

        Raises:
            IndexError: an index is out of range.
        """
        found = self.locate(indices)
        shape = (len(found), self.block_len)
        tokens = {name: _join(found.values(name), np.int32)[0].reshape(shape) for name in _TOKENS}
        seq_lengths, seq_offsets = _join(found.values("seq_lengths"), np.int32)
        doc_ids, doc_offsets = _join(found.values("doc_ids"), np.int64)
        pieces = {name: _join(found.values(name), np.int32)[0] for name in BLOCK_PIECES[1:]}
        return BlockBatch(
            **tokens,
            **{name: np.array(found.values(name), np.int32) for name in _SCALARS},
            seq_lengths=seq_lengths,
            seq_offsets=seq_offsets,
            doc_ids=doc_ids,
            **pieces,
            doc_offsets=doc_offsets,
        )

    def squares(self, indices: Int64) -> Int64:
        """Return the sum of the squares of each block's sequence lengths; digests are not checked here.  # int64[R]"""
        squares = np.empty(len(indices), np.int64)
        for chunk, places, rows in self._by_chunk(self.stored_numbers(indices)):
            column = self.chunk(chunk)[0].seq_lengths
            starts, ends = column.offsets[rows], column.offsets[rows + 1]
            lengths = column.values[concatenated_ranges(starts, ends - starts)].astype(np.int64)
            squares[places] = np.add.reduceat(lengths * lengths, offsets_of(ends - starts)[:-1])
        return squares


def _join(parts: list[npt.NDArray[Any]], dtype: type[np.number]) -> tuple[npt.NDArray[Any], Int64]:
    """Concatenate the rows of a list column, and return their offsets: [7, 8], [9] become [7, 8, 9] and [0, 2, 3]."""
    return np.concatenate([np.zeros(0, dtype), *parts]), offsets_of([len(part) for part in parts])


class DocumentShards(NumberedRows[DocumentRows]):
    """The documents of several shards, numbered consecutively; needs no manifest."""

    kind: ClassVar[Kind] = "documents"

    @property
    def has_sides(self) -> bool:
        """Whether each document is one side of a pair, or a rated answer."""
        return has_column(self.shards, "side")

    @property
    def is_paired(self) -> bool:
        """Whether documents 2i and 2i + 1 are the chosen and the rejected answer of pair i."""
        if not self.has_sides or not len(self):
            return False
        first = self.shard_of(0)
        return int(self.of_shards(first, first)[0].sides()[0]) == CHOSEN

    @property
    def num_tokens(self) -> int:
        """Tokens of these documents."""
        return super().num_tokens if self._chosen is None else int(self.stored("length", np.int32).sum(dtype=np.int64))

    def lengths(self) -> Int32:
        """Return the number of tokens of each document, compared with its ids; digests are not checked.  # int32[N]"""
        return self._lengths

    def num_trained(self) -> Int32:
        """Return the number of trained tokens of each document; digests are not checked here.  # int32[N]"""
        return self.stored("num_trained", np.int32)

    def doc_ids(self) -> Int64:
        """Return the id of each document; digests are not checked here.  # int64[N]"""
        return self._doc_ids

    def sides(self) -> Int8:
        """Return each document's side, an index into `SIDES`; digests are not checked here.  # int8[N]"""
        return self._sides

    def prompts(self) -> Int64:
        """Return a digest of each document's prompt: the ids before its first trained one.  # int64[N]"""
        found = self.locate(np.arange(len(self), dtype=np.int64))
        rows = zip(found.values("input_ids"), found.values("labels"), strict=True)
        digests = [xxh3_64_intdigest(ids[: first_trained(labels)].tobytes()) for ids, labels in rows]
        return np.array(digests, np.uint64).view(np.int64)

    def pixels(self) -> Int64:
        """Return what the vision tower reads for the images of each document; digests are not checked.  # int64[N]"""
        parts = [np.zeros(0, np.int64)]
        for rows, _ in self.chunks():
            sums = np.zeros(len(rows.row), np.int64)
            if rows.media is not None:
                owner = np.repeat(np.arange(len(sums)), np.diff(rows.media.offsets))
                first, last = rows.media.offsets[[0, -1]].tolist()
                np.add.at(sums, owner, rows.media.places[first:last, 4])
            parts.append(sums)
        return self.own(np.concatenate(parts))

    def file_rows(self) -> Int64:
        """Return the row, from 0, of each document in its input file; digests are not checked here.  # int64[N]"""
        first_rows = [self.shards[shard].first_row for shard in self._shard_of]
        rows: Int64 = self.stored("row", np.int32).astype(np.int64) + self._of_chunks(np.array(first_rows, np.int64))
        return rows

    def origins(self) -> tuple[Int64, Int64]:
        """Return each document's input, by index or -1, and its row there; digests are not checked.  # int64[N] each"""
        sources = [-1 if shard.source is None else shard.source for shard in self.shards]
        return self._of_chunks(np.array([sources[shard] for shard in self._shard_of], np.int64)), self.file_rows()

    def runs(self) -> tuple[Int64, Int32, Int32]:
        """Return the trained runs within the documents; digests are not checked here.

        Returns:
            offsets int64[N + 1], starts and ends int32[U]
        """
        parts = [(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))]
        for rows, _ in self.chunks():
            own = slice(*rows.span_offsets[[0, -1]].tolist())
            counts = np.diff(rows.span_offsets).astype(np.int64)
            parts.append((counts, rows.span_start[own].copy(), rows.span_end[own].copy()))
        sizes, start, end = (np.concatenate(column) for column in zip(*parts, strict=True))
        offsets = offsets_of(sizes)
        if self._chosen is None:
            return offsets, start, end
        number = np.diff(offsets)[self._chosen]
        runs = concatenated_ranges(offsets[self._chosen], number)
        return offsets_of(number), start[runs], end[runs]

    def columns(self) -> DocumentColumns:
        """Return all tokens as one flat array per record batch, backed by the files' own pages.

        No digest is checked: call :meth:`verify` with the documents that are about to be used.
        """
        opened = [rows for rows, _ in self.chunks()]
        starts = [rows.input_ids.offsets[:-1].astype(np.int64) for rows in opened]
        return DocumentColumns(
            input_ids=tuple(rows.input_ids.values for rows in opened),
            labels=tuple(rows.labels.values for rows in opened),
            chunk=self._of_chunks(np.arange(len(opened), dtype=np.int32)),
            start=self.own(np.concatenate([np.zeros(0, np.int64), *starts])),
            length=self.lengths(),
            doc_id=self.doc_ids(),
        )

    def find(self, doc_id: int) -> int | None:
        """Return the index of the first document with this id, or None."""
        (found,) = self.find_all(np.array([doc_id], np.int64)).tolist()
        return None if found < 0 else found

    def find_all(self, doc_ids: Int64) -> Int64:
        """Return the index of the first document with each id; -1 where none has it.  # int64[Q]"""
        order, ids = self._by_id
        places = np.minimum(np.searchsorted(ids, doc_ids), max(len(ids) - 1, 0))
        return np.where(ids[places] == doc_ids, order[places], -1) if len(ids) else np.full(len(doc_ids), -1)

    @cached_property
    def _by_id(self) -> tuple[Int64, Int64]:
        """Indices of the documents sorted by id (stable), and the sorted ids."""
        order = np.argsort(self._doc_ids, kind="stable")
        return order, self._doc_ids[order]

    @cached_property
    def _lengths(self) -> Int32:
        deque(self.chunks(), maxlen=0)  # opening them compares the lengths with the ids
        lengths = self.stored("length", np.int32)
        lengths.flags.writeable = False
        return lengths

    @cached_property
    def _sides(self) -> Int8:
        rows, sides = self.stored_together({"row": np.int32, "side": np.int8})
        if misplaced_sides(rows, sides).any():
            raise damage(self.folder, "", "is damaged: the two answers of a pair stand apart")
        sides.flags.writeable = False
        return sides

    @cached_property
    def _doc_ids(self) -> Int64:
        ids = self.stored("doc_id", np.int64)
        ids.flags.writeable = False
        return ids


def document_values(found: FoundRows[DocumentRows], column: Declared) -> list[Any]:
    """Return the values of documents: those of the tokens of each, or its number."""
    for rows in {id(rows): rows for rows in found.opened}.values():
        values = rows.values.get(column.name)
        flat = values.values if isinstance(values, Ragged) else values
        shape = None if flat is None else (str(flat.dtype), flat.shape[1:], isinstance(values, Ragged))
        if shape != (column.rule.kind, column.inner, column.of_tokens):
            raise CheckError(f"a shard of documents lacks the column {column.name}, which the recipe declares")
    return [rows.values[column.name][row] for rows, row in zip(found.opened, found.rows, strict=True)]


def token_values(found: FoundRows[DocumentRows], column: Declared) -> list[npt.NDArray[Any]]:
    """Return the values of the tokens of documents; of a column of documents, its number at each token."""
    values = document_values(found, column)
    if column.of_tokens:
        return values
    return [np.full(length, value) for length, value in zip(found.values("length"), values, strict=True)]


def block_values(
    blocks: FoundRows[BlockRows], block_len: int, documents: DocumentShards, columns: Sequence[Declared]
) -> dict[str, npt.NDArray[Any]]:
    """Return the slots of blocks by name of a column, from the documents of their split.  # [B, L] or [B, L, W]"""
    pieces = (blocks.doc_ids(), *(blocks.values(name) for name in ("doc_starts", "doc_lengths", "doc_places")))
    doc_id, start, length, place = (np.concatenate([np.zeros(0, np.int64), *each]) for each in pieces)
    numbers = documents.find_all(doc_id)
    found = documents.locate(numbers) if (numbers >= 0).all() else None
    if found is None or (start + length > np.array(found.values("length"), np.int64)).any():
        raise damage(documents.folder, "", "is damaged: a block has a piece that no document has")
    block = np.repeat(np.arange(len(blocks)), [len(each) for each in pieces[0]])
    slots = concatenated_ranges(block * block_len + place, length)
    bounds, made = [*zip(start.tolist(), (start + length).tolist(), strict=True)], {}
    for column in columns:
        none = np.zeros((0, *column.inner), column.rule.kind)
        flat = np.full((len(blocks) * block_len, *column.inner), column.fill, column.rule.kind)
        values = zip(token_values(found, column), bounds, strict=True)
        flat[slots] = np.concatenate([none, *(each[first:last] for each, (first, last) in values)])
        made[column.name] = flat.reshape(len(blocks), block_len, *column.inner)
    return made
