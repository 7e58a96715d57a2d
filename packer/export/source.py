"""Documents and blocks of a split in their order, as flat arrays; every row's digest is compared on the way."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from packer.batches import BlockBatch, Bool, Float32, Int32, Int64
from packer.layout import MASKED, offsets_of
from packer.store.cache import BlockShards, DocumentShards

_TOKENS = 2**20
"""Tokens read in one go, about: some tens of megabytes with all columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatDocuments:
    """Consecutive documents one after another. D documents, K tokens."""

    input_ids: Int32  # [K]
    labels: Int32  # [K], unshifted
    loss_weights: Float32 | None  # [K], where the split has fractional weights
    offsets: Int64  # [D + 1]

    @property
    def trained(self) -> Bool:
        """True where a token has a label.  # bool[K]"""
        found: Bool = self.labels != MASKED
        return found

    @property
    def lengths(self) -> Int64:
        """Tokens of each document.  # int64[D]"""
        return np.diff(self.offsets)


def documents_of(shards: DocumentShards) -> Iterator[FlatDocuments]:
    """All documents, about a million tokens at a time.

    Raises:
        CheckError: a row is not what was written.
        StorageError: something cannot be read.

    """
    weighted = shards.weighted
    lengths = shards.lengths().astype(np.int64)
    for first, end in _windows(lengths):
        found = shards.locate(np.arange(first, end, dtype=np.int64))
        sizes = lengths[first:end]
        offsets = offsets_of(sizes)
        places, counts = offsets[:-1].tolist(), sizes.tolist()
        input_ids, labels = (np.empty(int(offsets[-1]), np.int32) for _ in range(2))
        found.copy("input_ids", input_ids, places, counts, 0)
        found.copy("labels", labels, places, counts, 0)
        weights = np.empty(int(offsets[-1]), np.float32) if weighted else None
        if weights is not None:
            found.copy("loss_weights", weights, places, counts, 0)
        yield FlatDocuments(input_ids=input_ids, labels=labels, loss_weights=weights, offsets=offsets)


def blocks_of(shards: BlockShards) -> Iterator[BlockBatch]:
    """All blocks, about a million tokens at a time.

    Raises:
        CheckError: a row is not what was written.
        StorageError: something cannot be read.

    """
    step = max(1, _TOKENS // max(1, shards.block_len))
    for first in range(0, len(shards), step):
        yield shards.read(np.arange(first, min(first + step, len(shards)), dtype=np.int64))


def _windows(lengths: Int64) -> Iterator[tuple[int, int]]:
    """Ranges of documents of about `_TOKENS` tokens, none of them empty.

    Worked example: with 10 in place of a million, lengths [6, 3, 9, 40, 1] make [0, 3), [3, 4) and [4, 5): a range ends
    with the document that reaches the next multiple of 10.
    """
    ends = np.cumsum(lengths)
    cuts = np.flatnonzero(np.diff(ends // _TOKENS, prepend=0)) + 1
    bounds = np.unique(np.concatenate([np.zeros(1, np.int64), cuts, [len(lengths)]]))
    yield from zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
