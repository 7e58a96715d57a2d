"""A cache's blocks as a map-style dataset, for trainers that bring a sampler and a loader of their own."""

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from packer.load.items import SplitItems
from packer.load.reading import check_weights
from packer.store.cache import BlockShards, Cache, FoundBlocks

Item = dict[str, Tensor]


class PackedDataset(Dataset[Item]):
    """Block `i` of a split as a dict of tensors.

    | name | type |
    | --- | --- |
    | input_ids, labels, position_ids | int64 [L] |
    | seq_lengths | int64 [S], sums to L; a padding run is its last entry |
    | num_trained | int64 [] |
    | loss_weights, with ``weights="use"`` | float32 [L] |

    It pickles as the cache's folder and fingerprint, so workers open the same bytes for themselves. Batches of it need
    :func:`collate`, as `seq_lengths` differ in length. What :class:`PackedLoader` knows of order, resume and the global
    step, a sampler does not.

    Args:
        cache: folder of a cache, or an open one.
        split: name of the split.
        weights: ``use`` adds ``loss_weights``; ``refuse`` raises where the cache holds fractional weights.

    Raises:
        UsageError: the cache holds fractional weights and `weights` is ``refuse``.

    """

    def __init__(
        self, cache: str | Path | Cache, split: str = "train", *, weights: Literal["refuse", "use"] = "refuse"
    ) -> None:
        if weights not in ("refuse", "use"):
            raise ValueError(f"weights {weights!r}: expected one of refuse, use")
        opened = Cache.open(Path(cache)) if isinstance(cache, str | Path) else cache
        self._cache = opened
        self._split = split
        self._weighted = weights == "use"
        self._blocks: BlockShards = opened.blocks(split)
        check_weights(SplitItems[FoundBlocks](self._blocks), weighted=self._weighted)

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: int) -> Item:
        """One block; a negative index counts from the end.

        Raises:
            IndexError: there is no such block.
            CheckError: the block is not what its digest says.

        """
        return self.__getitems__([operator.index(index)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Item]:
        """Several blocks in one read, in the order asked."""
        asked = np.asarray(indices, np.int64)
        size = len(self)
        if np.any((asked < -size) | (asked >= size)):
            raise IndexError(f"block index out of range for {size} blocks")
        found = self._blocks.locate(np.where(asked < 0, asked + size, asked))
        return self._items(found)

    def __getstate__(self) -> dict[str, Any]:
        return {"cache": self._cache, "split": self._split, "weights": "use" if self._weighted else "refuse"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _items(self, found: FoundBlocks) -> list[Item]:
        shape = (len(found), self._blocks.block_len)
        columns = {name: np.empty(shape, np.int64) for name in ("input_ids", "labels", "position_ids")}
        for name, column in columns.items():
            found.copy(name, column)
        listed: dict[str, Any] = {
            **columns,
            "seq_lengths": [lengths.astype(np.int64) for lengths in found.lists("seq_lengths")],
            "num_trained": [np.array(number, np.int64) for number in found.scalars("num_trained")],
        }
        if self._weighted:
            listed["loss_weights"] = weights = np.empty(shape, np.float32)
            found.copy_weights(weights)
        return [{name: torch.from_numpy(column[row]) for name, column in listed.items()} for row in range(len(found))]


def collate(items: Sequence[Item]) -> dict[str, Any]:
    """Blocks of :class:`PackedDataset` as one flattened micro-batch: ``DataLoader(dataset, collate_fn=collate)``.

    The form is that of :class:`PackedLoader` with ``flatten=True``.
    """
    flat: dict[str, Any] = {
        name: torch.cat([item[name] for item in items]).unsqueeze(0)
        for name in ("input_ids", "labels", "position_ids", "loss_weights")
        if name in items[0]
    }
    lengths = torch.cat([item["seq_lengths"] for item in items])
    bounds = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    longest = int(lengths.max())
    return {
        **flat,
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds.clone(),
        "max_length_q": longest,
        "max_length_k": longest,
    }
