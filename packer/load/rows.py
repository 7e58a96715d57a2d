"""What an order puts in order: the blocks or the documents of a split, of one cache or of several, numbered through."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from packer.batches import Int32, Int64
from packer.layout import offsets_of
from packer.load.row_counts import RowCounts
from packer.store.cache import BlockShards, DocumentShards, FoundBlocks, FoundDocuments

RowKind: TypeAlias = Literal["blocks", "documents"]
Float64: TypeAlias = npt.NDArray[np.float64]


class SplitRows:
    """The rows of one split of one cache. Not for two threads at a time.

    Args:
        shards: its blocks or its documents.
        cutoff_len: tokens that are kept of each document, without a terminator where it is cut; None keeps all.

    """

    def __init__(self, shards: BlockShards | DocumentShards, cutoff_len: int | None = None) -> None:
        self.shards = shards
        self.untrained: Int64 = np.zeros(0, np.int64)
        """Rows that train nothing and are part of no order, ascending.  # int64[n]"""

        self._num_trained = RowCounts(shards, "num_trained")
        self._lengths = RowCounts(shards, "length")
        self._cutoff_len = cutoff_len
        self._trained_within: Int32 | None = None
        if cutoff_len is not None:
            assert isinstance(shards, DocumentShards)
            self._trained_within = _trained_within(shards, cutoff_len)
            self.untrained = np.flatnonzero(self._trained_within == 0)

    def __len__(self) -> int:
        return len(self.shards)

    def num_trained(self, rows: Int64) -> Int32:
        return self._num_trained.of(rows) if self._trained_within is None else self._trained_within[rows]

    def lengths(self, rows: Int64) -> Int32:
        lengths = self._lengths.of(rows)
        return lengths if self._cutoff_len is None else np.minimum(lengths, np.int32(self._cutoff_len))

    def weight_sums(self, rows: Int64) -> Float64:
        found = self.shards.locate(rows)
        return found.weight_sums(self._cutoff_len) if isinstance(found, FoundDocuments) else found.weight_sums()


class Rows:
    """The rows of several splits, numbered through in their order.

    Args:
        parts: at least one, all of blocks or all of documents.

    """

    def __init__(self, parts: Sequence[SplitRows]) -> None:
        self._parts = tuple(parts)
        self.bounds = offsets_of([len(part) for part in parts])
        self.untrained: Int64 = np.concatenate(
            [part.untrained + base for part, base in zip(parts, self.bounds, strict=False)]
        )
        """Rows that train nothing and are part of no order, ascending.  # int64[n]"""

        self.weighted = any(part.shards.weighted for part in parts)
        """Whether fractional loss weights are stored."""

        self._weight_sums: Float64 | None = None  # not a number where it is not known

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def ordered(self) -> Int64:
        """The rows there are to be put in order, ascending.  # int64[n]"""
        return np.delete(np.arange(len(self), dtype=np.int64), self.untrained)

    def num_trained(self, rows: Int64) -> Int32:
        """Trained targets of some rows; a first label is -100, so shifting loses none.  # int32[R]"""
        return self._gathered("num_trained", rows, np.int32)

    def lengths(self, rows: Int64) -> Int32:
        """Tokens of some rows, padding not counted.  # int32[R]"""
        return self._gathered("lengths", rows, np.int32)

    def weight_sums(self, rows: Int64) -> Float64:
        """Summed loss weights of some rows; each is read once for it, whichever rank it belongs to.  # float64[R]

        Raises:
            CheckError: a row is not what its digest says.

        """
        if self._weight_sums is None:
            self._weight_sums = np.full(len(self), np.nan)
        unknown = np.unique(rows[np.isnan(self._weight_sums[rows])])
        if len(unknown):
            self._weight_sums[unknown] = self._gathered("weight_sums", unknown, np.float64)
        sums: Float64 = self._weight_sums[rows]
        return sums

    def locate(self, rows: Int64) -> FoundBlocks | FoundDocuments:
        """Some rows, checked, ready to be copied."""
        if len(self._parts) == 1:
            return self._parts[0].shards.locate(rows)
        part_of = self._part_of(rows)
        opened: list[Any] = [None] * len(rows)
        places = [0] * len(rows)
        kind: type[FoundBlocks | FoundDocuments] | None = None
        for number, part in enumerate(self._parts):
            asked = np.flatnonzero(part_of == number)
            if not len(asked) and kind is not None:
                continue
            found = part.shards.locate(rows[asked] - self.bounds[number])
            kind = type(found)
            for place, batch, row in zip(asked.tolist(), found.opened, found.rows, strict=True):
                opened[place], places[place] = batch, row
        assert kind is not None
        return kind(opened, places)

    def _gathered(self, name: str, rows: Int64, dtype: type[np.generic]) -> npt.NDArray[Any]:
        """What the parts say of some rows."""
        if len(self._parts) == 1:
            values: npt.NDArray[Any] = getattr(self._parts[0], name)(rows)
            return values
        part_of, values = self._part_of(rows), np.empty(len(rows), dtype)
        for number, part in enumerate(self._parts):
            asked = part_of == number
            if asked.any():
                values[asked] = getattr(part, name)(rows[asked] - self.bounds[number])
        return values

    def _part_of(self, rows: Int64) -> Int64:
        return np.searchsorted(self.bounds, rows, side="right") - 1


def _trained_within(documents: DocumentShards, cutoff_len: int) -> Int32:
    """Trained tokens among the first so many of each document.  # int32[N]

    Worked example: trained spans [2, 5) and [7, 9) within the first 8 tokens: 3 + 1.
    """
    offsets, starts, ends = documents.runs()
    inside = np.minimum(ends, cutoff_len) - np.minimum(starts, cutoff_len)
    sums = offsets_of(inside)
    trained: Int32 = (sums[offsets[1:]] - sums[offsets[:-1]]).astype(np.int32)
    return trained
