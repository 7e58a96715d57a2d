"""Blocks as grain's ``RandomAccessDataSource``: numpy arrays by index, for JAX trainers.

This module needs neither grain nor torch.
"""

import operator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.batches import BlockBatch
from packer.errors import UsageError
from packer.load.arguments import check_instance, open_cache
from packer.load.ordered_rows import content_of, refuse_preference
from packer.store.cache import Cache

Row = dict[str, npt.NDArray[np.int32]]


class BlockSource:
    """Block `i` of a split: ``grain.MapDataset.source(BlockSource("cache"))``.

    | name | type |
    | --- | --- |
    | input_ids, labels, position_ids | int32 [L]; labels are unshifted, -100 where nothing is trained |
    | segment_ids | int32 [L], from 1 on for the documents, 0 for padding |

    It pickles as the cache's folder and fingerprint, so grain's workers reopen the same bytes.

    Raises:
        UsageError: the cache has fractional weights, which these rows cannot represent.
    """

    def __init__(self, cache: str | Path | Cache, split: str = "train") -> None:
        self._cache = open_cache(cache)
        refuse_preference(content_of(self._cache), "BlockSource")
        check_instance("split", split, str, "the name of a split")
        self._split = split
        self._blocks = self._cache.blocks(split)
        if self._blocks.weighted:
            raise UsageError(f"{self._cache.folder} has fractional loss weights", hint="use a PackedLoader")

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: int) -> Row:
        """Return one block.

        Raises:
            IndexError: there is no such block.
            CheckError: the block does not match its digest.
        """
        number, size = operator.index(index), len(self)
        if not -size <= number < size:
            raise IndexError(f"block index out of range for {size} blocks")
        block = self._blocks.read(np.array([number % size], np.int64))
        columns = {name: getattr(block, name)[0] for name in ("input_ids", "labels", "position_ids")}
        return {**columns, "segment_ids": _segments(block)}

    def __repr__(self) -> str:
        """Return the text that grain compares when it restores an iterator."""
        return f"BlockSource({self._cache.manifest.content_fingerprint}, {self._split!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"cache": self._cache, "split": self._split}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _segments(block: BlockBatch) -> npt.NDArray[np.int32]:
    """Number the runs of a block from 1, with 0 for padding.

    Worked example: runs [3, 2, 1], the last document ending at 5, so that the last run is padding: 1 1 1 2 2 0.
    """
    runs = block.seq_lengths
    numbers = np.arange(1, len(runs) + 1, dtype=np.int32)
    starts = np.cumsum(runs) - runs
    numbers[starts >= block.doc_places[-1] + block.doc_lengths[-1]] = 0
    return np.repeat(numbers, runs)
