"""What an order puts in order: the blocks or the documents of a split, of one cache or of several, numbered through.

Of the rows of other ranks a rank must know how many tokens they have, and how many are trained: these counts are read
without their tokens.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from packer.batches import Int32, Int64
from packer.errors import CheckError, StorageError
from packer.layout import offsets_of
from packer.store.cache import BlockShards, DocumentShards, FoundBlocks, FoundDocuments
from packer.store.files import CacheFiles
from packer.store.manifest import Shard
from packer.store.mapping import check_size, repair_hint

_FEW = 256
"""A record batch of which more than one row in so many was asked for is read whole."""


class RowCounts:
    """A column of one int32 a row, read when its rows are asked for.

    The manifest says where the column lies. Its values are not checked here: a row's digest covers them, and the rank
    that reads the row in the same step checks it, so a damaged count does not pass unseen where ranks read the same
    files. Where each has a copy of its own, `packer verify` on each says that they are the same.

    Args:
        shards: the rows.
        name: ``num_trained`` or ``length``.

    """

    def __init__(self, shards: BlockShards | DocumentShards, name: str) -> None:
        self._name = name
        self._folder = shards.folder
        self._places = [(shard, place) for shard in shards.shards for place in shard.places]
        self._bounds = offsets_of([place.num_rows for _, place in self._places])
        # One more than the value, 0 where it is not known: zeros cost no memory until they are written.
        self._raised: Int32 = np.zeros(int(self._bounds[-1]), np.int32)
        self._num_unknown = len(self._raised)
        self._asked = [0] * len(self._places)  # rows of each record batch that were asked for

    def of(self, rows: Int64) -> Int32:
        """Values of some rows.  # int32[R]

        Raises:
            CheckError: the file is not what it was.
            StorageError: the file cannot be read.

        """
        raised = self._raised[rows]
        if self._num_unknown and not raised.all():
            self._load(rows[raised == 0])
            raised = self._raised[rows]
        values: Int32 = raised - 1
        return values

    def _load(self, rows: Int64) -> None:
        places = np.searchsorted(self._bounds, rows, side="right") - 1
        for number in _distinct(places).tolist():
            first = int(self._bounds[number])
            asked = _distinct(rows[places == number] - first)
            self._asked[number] += len(asked)
            if self._asked[number] * _FEW < self._places[number][1].num_rows:
                self._raised[first + asked] = self._values(number, asked) + 1
                self._num_unknown -= len(asked)
            else:
                whole = self._raised[first : int(self._bounds[number + 1])]
                self._num_unknown -= len(whole) - int(np.count_nonzero(whole))
                whole[:] = self._column(number) + 1

    def _values(self, number: int, asked: Int64) -> Int32:
        """A few values, one at a time: of a large record batch the first step wants a handful."""
        shard, place = self._places[number]
        with self._damage_named(shard):
            ranges = CacheFiles(self._folder).ranges(shard.path)
            read = [ranges.read(place.columns[self._name] + 4 * row, 4) for row in asked.tolist()]
            return self._checked(np.frombuffer(b"".join(read), "<i4"))

    def _column(self, number: int) -> Int32:
        shard, place = self._places[number]
        with self._damage_named(shard):
            ranges = CacheFiles(self._folder).ranges(shard.path)
            return self._checked(np.frombuffer(ranges.read(place.columns[self._name], 4 * place.num_rows), "<i4"))

    def _checked(self, values: Int32) -> Int32:
        if (values < 0).any():
            raise ValueError(f"{self._name} is below 0")
        return values

    @contextmanager
    def _damage_named(self, shard: Shard) -> Iterator[None]:
        try:
            yield
        except (ValueError, CheckError, StorageError) as error:
            check_size(self._folder, shard)  # a file that is gone or cut short is reported as such
            if not isinstance(error, ValueError):
                raise
            hint = repair_hint(self._folder)
            raise CheckError(f"{self._folder / shard.path} is damaged: {error}", hint=hint) from None


def _distinct(numbers: Int64) -> Int64:
    """Numbers from 0 on, ascending, each once. (`np.unique` imports what takes ten milliseconds of a first step.)"""
    ascending = np.sort(numbers)
    return ascending[np.diff(ascending, prepend=-1) > 0]


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
