"""Documents of which only the beginning is read."""

import numpy as np

from packer.batches import Int32, Int64
from packer.layout import offsets_of
from packer.load.items import Float64, SplitItems
from packer.store.cache import DocumentShards, FoundDocuments


class CutItems(SplitItems[FoundDocuments]):
    """Documents, none longer than so many tokens: what is behind them is left out, and a cut reply has no terminator.

    Args:
        documents: of one split.
        cutoff_len: tokens that are kept of each.

    """

    def __init__(self, documents: DocumentShards, cutoff_len: int) -> None:
        super().__init__(documents)
        self.cutoff_len = cutoff_len
        self._trained = _trained_within(documents, cutoff_len)
        self.untrained = np.flatnonzero(self._trained == 0)

    def lengths(self, rows: Int64) -> Int32:
        return np.minimum(super().lengths(rows), np.int32(self.cutoff_len))

    def num_trained(self, rows: Int64) -> Int32:
        return self._trained[rows]

    def weight_sums(self, rows: Int64) -> Float64:
        return self.shards.locate(rows).weight_sums(self.cutoff_len)  # type: ignore[call-arg]


def _trained_within(documents: DocumentShards, cutoff_len: int) -> Int32:
    """Trained tokens among the first so many of each document.  # int32[N]

    Worked example: runs [2, 5) and [7, 9) within the first 8 tokens: 3 + 1.
    """
    offsets, starts, ends = documents.runs()
    inside = np.minimum(ends, cutoff_len) - np.minimum(starts, cutoff_len)
    sums = offsets_of(inside)
    trained: Int32 = (sums[offsets[1:]] - sums[offsets[:-1]]).astype(np.int32)
    return trained
