"""A cache's blocks as a map-style dataset, for trainers that bring a sampler and a loader of their own."""

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from torch.utils.data._utils.collate import default_collate_fn_map

from packer.load.arguments import instance, one_of, opened
from packer.load.rows import check_weights
from packer.store.cache import BlockShards, Cache, FoundBlocks


class Item(dict[str, Tensor]):
    """A block by names. Torch's default collation makes of several what :func:`collate` does."""


class PackedDataset(Dataset[Item]):
    """Block `i` of a split as a dict of tensors.

    | name | type |
    | --- | --- |
    | input_ids, labels, position_ids | int64 [L] |
    | seq_lengths | int64 [S], sums to L; a padding run is its last entry |
    | num_trained | int64 [] |
    | loss_weights, with ``weights="use"`` | float32 [L] |

    It pickles as the cache's folder and fingerprint, so workers open the same bytes for themselves. A DataLoader gives
    flattened micro-batches of it, see :func:`collate`. What :class:`PackedLoader` knows of order, resume and the global
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
        one_of("weights", weights, ("refuse", "use"))
        self._cache = opened(cache)
        instance("split", split, str, "the name of a split")
        self._split = split
        self._weighted = weights == "use"
        self._blocks: BlockShards = self._cache.blocks(split)
        check_weights(weighted=self._blocks.weighted, wanted=self._weighted)

    def __len__(self) -> int:
        return len(self._blocks)

    def __repr__(self) -> str:
        return f"<PackedDataset of {self._cache!r}, split '{self._split}': {len(self):,} blocks>"

    def __getitem__(self, index: int) -> Item:
        """One block; a negative index counts from the end.

        Raises:
            IndexError: there is no such block.
            CheckError: the block is not what its digest says.

        """
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Item]:
        """Several blocks in one read, in the order asked."""
        asked = np.array([operator.index(index) for index in indices], np.int64)
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
            "seq_lengths": [lengths.astype(np.int64) for lengths in found.values("seq_lengths")],
            "num_trained": [np.array(number, np.int64) for number in found.values("num_trained")],
        }
        if self._weighted:
            listed["loss_weights"] = weights = np.empty(shape, np.float32)
            found.copy("loss_weights", weights)
        return [
            Item({name: torch.from_numpy(column[row]) for name, column in listed.items()}) for row in range(len(found))
        ]


def collate(items: Sequence[Item]) -> dict[str, Any]:
    """Blocks of :class:`PackedDataset` as one flattened micro-batch, as a DataLoader makes it by itself.

    The form is that of :class:`PackedLoader` with ``flatten=True``. For a ``collate_fn`` that other trainers ask for.

    Raises:
        ValueError: no blocks.

    """
    if not items:
        raise ValueError("items is empty; expected blocks of a PackedDataset")
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


def _collated(items: Sequence[Item], *, collate_fn_map: Any = None) -> dict[str, Any]:
    del collate_fn_map  # what torch hands to every entry of its map
    return collate(items)


default_collate_fn_map[Item] = _collated
