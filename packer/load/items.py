"""What an order puts in order: the blocks or the documents of a split, of one cache or of several."""

from collections.abc import Sequence
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from packer.batches import Int32, Int64
from packer.load.scalars import ScalarColumn
from packer.store.cache import BlockShards, DocumentShards, FoundBlocks, FoundDocuments

ItemKind: TypeAlias = Literal["blocks", "documents"]
Float64: TypeAlias = npt.NDArray[np.float64]
Found = TypeVar("Found", FoundBlocks, FoundDocuments)
Found_co = TypeVar("Found_co", FoundBlocks, FoundDocuments, covariant=True)


class Items(Protocol[Found_co]):
    """Rows under one numbering, from 0."""

    def __len__(self) -> int: ...

    @property
    def untrained(self) -> Int64:
        """Rows that train nothing and are part of no order, ascending.  # int64[n]"""

    @property
    def weighted(self) -> bool:
        """Whether fractional loss weights are stored."""

    def num_trained(self, rows: Int64) -> Int32:
        """Trained targets of some rows; a first label is -100, so shifting loses none.  # int32[R]"""

    def lengths(self, rows: Int64) -> Int32:
        """Tokens of some rows, padding not counted.  # int32[R]"""

    def weight_sums(self, rows: Int64) -> Float64:
        """Summed loss weights of some rows, which are read for it.  # float64[R]"""

    def locate(self, rows: Int64) -> Found_co:
        """Some rows, checked, ready to be copied."""


class SplitItems(Generic[Found]):
    """The rows of one split of one cache. Not for two threads at a time.

    Args:
        shards: its blocks or its documents.

    """

    def __init__(self, shards: BlockShards | DocumentShards) -> None:
        self.shards = shards
        self.untrained: Int64 = np.zeros(0, np.int64)
        self.weighted = shards.weighted
        self._num_trained = ScalarColumn(shards, "num_trained")
        self._lengths = ScalarColumn(shards, "length")

    def __len__(self) -> int:
        return len(self.shards)

    def num_trained(self, rows: Int64) -> Int32:
        return self._num_trained.of(rows)

    def lengths(self, rows: Int64) -> Int32:
        return self._lengths.of(rows)

    def weight_sums(self, rows: Int64) -> Float64:
        return self.shards.locate(rows).weight_sums()

    def locate(self, rows: Int64) -> Found:
        return self.shards.locate(rows)  # type: ignore[return-value]


class JoinedItems(Generic[Found]):
    """The rows of several splits, numbered through in their order.

    Args:
        parts: at least one, all of blocks or all of documents.

    """

    def __init__(self, parts: Sequence[SplitItems[Found]]) -> None:
        self._parts: tuple[SplitItems[Found], ...] = tuple(parts)
        self.bounds = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        self.untrained: Int64 = np.concatenate(
            [part.untrained + base for part, base in zip(parts, self.bounds, strict=False)]
        )
        self.weighted = any(part.weighted for part in parts)

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def num_trained(self, rows: Int64) -> Int32:
        return self._gathered("num_trained", rows).astype(np.int32)

    def lengths(self, rows: Int64) -> Int32:
        return self._gathered("lengths", rows).astype(np.int32)

    def weight_sums(self, rows: Int64) -> Float64:
        return self._gathered("weight_sums", rows)

    def locate(self, rows: Int64) -> Found:
        part_of = self._part_of(rows)
        opened: list[object] = [None] * len(rows)
        places = [0] * len(rows)
        kind: type[Found] | None = None
        for number, part in enumerate(self._parts):
            asked = np.flatnonzero(part_of == number)
            if not len(asked) and kind is not None:
                continue
            found = part.locate(rows[asked] - self.bounds[number])
            kind = type(found)
            for place, batch, row in zip(asked.tolist(), found.opened, found.rows, strict=True):
                opened[place], places[place] = batch, row
        assert kind is not None
        return kind(opened, places)  # type: ignore[arg-type]

    def _gathered(self, name: str, rows: Int64) -> Float64:
        """What the parts say of some rows; a double holds every int32.  # float64[R]"""
        part_of, values = self._part_of(rows), np.empty(len(rows), np.float64)
        for number, part in enumerate(self._parts):
            asked = part_of == number
            if asked.any():
                values[asked] = getattr(part, name)(rows[asked] - self.bounds[number])
        return values

    def _part_of(self, rows: Int64) -> Int64:
        return np.searchsorted(self.bounds, rows, side="right") - 1


def rows_of(items: Items[Any]) -> Int64:
    """The rows there are to be put in order, ascending.  # int64[n]"""
    return np.delete(np.arange(len(items), dtype=np.int64), items.untrained)


class WeightSums:
    """Summed loss weights of rows; each row is read once for it, whichever rank it belongs to.

    Args:
        items: rows with fractional weights.

    """

    def __init__(self, items: Items[FoundBlocks] | Items[FoundDocuments]) -> None:
        self._items = items
        self._known: Float64 = np.full(len(items), np.nan)

    def of(self, rows: Int64) -> Float64:
        """Sums of some rows.  # float64[R]

        Raises:
            CheckError: a row is not what its digest says.

        """
        unknown = np.unique(rows[np.isnan(self._known[rows])])
        if len(unknown):
            self._known[unknown] = self._items.weight_sums(unknown)
        sums: Float64 = self._known[rows]
        return sums
