"""Counts of blocks and documents without reading their tokens: what a rank must know of the rows of other ranks."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from packer.batches import Int32, Int64
from packer.errors import CheckError, StorageError
from packer.layout import offsets_of
from packer.store.cache import BlockShards, DocumentShards
from packer.store.failures import storage_errors
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
        with self._damage_named(shard), (self._folder / shard.path).open("rb", buffering=0) as file:
            read = [os.pread(file.fileno(), 4, place.columns[self._name] + 4 * row) for row in asked.tolist()]
            return self._checked(np.frombuffer(b"".join(read), "<i4"), len(asked))

    def _column(self, number: int) -> Int32:
        shard, place = self._places[number]
        with self._damage_named(shard):
            path = self._folder / shard.path
            column = np.fromfile(path, "<i4", place.num_rows, offset=place.columns[self._name])
            return self._checked(column, place.num_rows)

    def _checked(self, values: Int32, expected: int) -> Int32:
        if len(values) != expected:
            raise ValueError(f"expected {expected} values of {self._name}, found {len(values)}")
        if (values < 0).any():
            raise ValueError(f"{self._name} is below 0")
        return values

    @contextmanager
    def _damage_named(self, shard: Shard) -> Iterator[None]:
        try:
            with storage_errors("read", self._folder / shard.path):
                yield
        except (ValueError, StorageError) as error:
            check_size(self._folder, shard)  # a file that is gone or cut short is told as such
            if isinstance(error, StorageError):
                raise
            hint = repair_hint(self._folder)
            raise CheckError(f"{self._folder / shard.path} is damaged: {error}", hint=hint) from None


def _distinct(numbers: Int64) -> Int64:
    """Numbers from 0 on, ascending, each once. (`np.unique` imports what takes ten milliseconds of a first step.)"""
    ascending = np.sort(numbers)
    return ascending[np.diff(ascending, prepend=-1) > 0]
