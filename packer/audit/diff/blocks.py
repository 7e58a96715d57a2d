"""Blocks of two caches: how many, how full, and whether they hold the same pieces."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from packer.audit.diff.multisets import count_common
from packer.audit.diff.report import BlocksDiff
from packer.batches import Int32, Int64, UInt64
from packer.store.cache import Cache
from packer.store.chunks import Chunks
from packer.store.columns import BlockRows, Ragged
from packer.store.views import block_rows


def compare_blocks(old: Cache, new: Cache, split: str) -> BlocksDiff | None:
    """None where the blocks are the same in the same order.

    Raises:
        CheckError: a shard's structure is not what the manifest says.

    """
    before, after = _Blocks.of(old, split), _Blocks.of(new, split)
    if np.array_equal(before.digest, after.digest):
        return None
    only_old, only_new, both = count_common(before.pieces, after.pieces)
    return BlocksDiff(
        split=split,
        old_blocks=len(before.digest),
        new_blocks=len(after.digest),
        old_fill=before.fill,
        new_fill=after.fill,
        pieces_only_old=only_old,
        pieces_only_new=only_new,
        pieces_both=both,
        same_blocks=np.array_equal(np.sort(before.digest), np.sort(after.digest)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocks:
    """The blocks of a split. B blocks, M pieces."""

    digest: UInt64  # [B]
    pieces: tuple[Int64, Int32, Int32]  # [M] each: doc_id, start in the document, length
    fill: float

    @classmethod
    def of(cls, cache: Cache, split: str) -> Self:
        shards = [shard for shard in cache.manifest.shards if (shard.kind, shard.split) == ("blocks", split)]
        chunks = Chunks(cache.folder, shards, kind="blocks", opener=block_rows)
        doc_ids, starts, lengths = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        for number, (rows, _) in enumerate(chunks):
            for column, parts in ((rows.doc_ids, doc_ids), (rows.doc_starts, starts), (rows.doc_lengths, lengths)):
                parts.append(_values(chunks, number, column))
            if not len(doc_ids[-1]) == len(starts[-1]) == len(lengths[-1]):
                raise chunks.damaged(number, "doc_ids, doc_starts and doc_lengths differ in length")
        slots = len(chunks) * int(cache.manifest.recipe["pack"]["block_len"])
        return cls(
            digest=chunks.digests(),
            pieces=(np.concatenate(doc_ids), np.concatenate(starts), np.concatenate(lengths)),
            fill=sum(shard.num_tokens for shard in shards) / slots if slots else 0.0,
        )


def _values(chunks: Chunks[BlockRows], number: int, column: Ragged) -> npt.NDArray[Any]:
    """The values of all rows of a list column, which lie one behind the other."""
    first, last = int(column.offsets[0]), int(column.offsets[-1])
    if first < 0 or last > len(column.values) or (np.diff(column.offsets) < 0).any():
        raise chunks.damaged(number, "lists lie outside their column")
    return column.values[first:last]
