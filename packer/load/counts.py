"""How many targets each block has, without reading its tokens: what a rank must know of the other ranks' blocks."""

import numpy as np

from packer.batches import Int32, Int64
from packer.errors import CheckError, StorageError
from packer.layout import offsets_of
from packer.store.cache import BlockShards


class TrainedCounts:
    """The column ``num_trained`` of some shards, four bytes a block, each record batch read when first asked for.

    The manifest says where the column lies. Its values are not checked here: a block's digest covers its count, and the
    rank that reads the block in the same step checks it, so a damaged count does not pass unseen.
    """

    def __init__(self, blocks: BlockShards) -> None:
        self._places = [(blocks.folder / shard.path, place) for shard in blocks.shards for place in shard.places]
        self._bounds = offsets_of([place.num_rows for _, place in self._places])
        self._loaded: list[Int32 | None] = [None] * len(self._places)

    def of(self, block_ids: Int64) -> Int32:
        """Trained targets of some blocks; a block's first label is -100, so shifting loses none.  # int32[B]

        Raises:
            CheckError: the file ends before its column does.
            StorageError: the file cannot be read.

        """
        counts = np.empty(len(block_ids), np.int32)
        places = np.searchsorted(self._bounds, block_ids, side="right") - 1
        for place in np.unique(places).tolist():
            asked = places == place
            counts[asked] = self._column(place)[block_ids[asked] - self._bounds[place]]
        return counts

    def _column(self, number: int) -> Int32:
        column = self._loaded[number]
        if column is None:
            column = self._loaded[number] = self._load(number)
        return column

    def _load(self, number: int) -> Int32:
        path, place = self._places[number]
        try:
            column = np.fromfile(path, "<i4", place.num_rows, offset=place.columns["num_trained"])
        except OSError as error:
            raise StorageError(f"read {path}: {error}") from error
        if len(column) != place.num_rows:
            raise CheckError(f"{path}: expected {place.num_rows} values of num_trained, found {len(column)}")
        return column
