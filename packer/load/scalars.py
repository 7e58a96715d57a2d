"""Counts of blocks and documents without reading their tokens: what a rank must know of the other ranks' share."""

import numpy as np

from packer.batches import Int32, Int64
from packer.errors import CheckError, StorageError
from packer.layout import offsets_of
from packer.store.cache import BlockShards, DocumentShards


class ScalarColumn:
    """A column of one int32 a row, read a record batch at a time when the first of its rows is asked for.

    The manifest says where the column lies. Its values are not checked here: a row's digest covers them, and the rank
    that reads the row in the same step checks it, so a damaged count does not pass unseen.

    Args:
        shards: the rows.
        name: ``num_trained`` or ``length``.

    """

    def __init__(self, shards: BlockShards | DocumentShards, name: str) -> None:
        self._name = name
        self._places = [(shards.folder / shard.path, place) for shard in shards.shards for place in shard.places]
        self._bounds = offsets_of([place.num_rows for _, place in self._places])
        # One more than the value, 0 where it is not known: zeros cost no memory until they are written.
        self._raised: Int32 = np.zeros(int(self._bounds[-1]), np.int32)

    def of(self, rows: Int64) -> Int32:
        """Values of some rows.  # int32[R]

        Raises:
            CheckError: the file ends before its column does.
            StorageError: the file cannot be read.

        """
        raised = self._raised[rows]
        if not raised.all():
            self._load(rows[raised == 0])
            raised = self._raised[rows]
        values: Int32 = raised - 1
        return values

    def _load(self, rows: Int64) -> None:
        for number in np.unique(np.searchsorted(self._bounds, rows, side="right") - 1).tolist():
            path, place = self._places[number]
            try:
                column = np.fromfile(path, "<i4", place.num_rows, offset=place.columns[self._name])
            except OSError as error:
                raise StorageError(f"read {path}: {error}") from error
            if len(column) != place.num_rows:
                raise CheckError(f"{path}: expected {place.num_rows} values of {self._name}, found {len(column)}")
            if (column < 0).any():
                raise CheckError(f"{path} is damaged: {self._name} is below 0")
            self._raised[self._bounds[number] : self._bounds[number + 1]] = column + 1
