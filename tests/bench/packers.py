"""Packers to compare: packer's strategies and others. Each takes lengths and a block length, and gives the blocks.

They do not all do the same: packer says where each document lies, TRL packs the ids (zeros) as well, and the one that goes
item by item only counts the blocks, which is the least that such an algorithm can do.
"""

import sys
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from packer.batches import Int32

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from whole_documents import plan_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Packer:
    name: str
    pack: Callable[[Int32, int], int] | None
    """The number of blocks; None where what it needs is not installed."""

    most_documents: int
    block_lens: Sequence[int] | None = None
    """For as many documents as it takes at most; None for all."""


def packers() -> list[Packer]:
    """The first is what the others are compared with."""
    return [
        Packer(name="packer", pack=_plan, most_documents=10**8),
        Packer(name="BFD, Python heaps", pack=best_fit_by_item, most_documents=10**6),
        # It takes gigabytes and seconds for a million, whatever the block length.
        Packer(name="TRL bfd", pack=_trl(), most_documents=10**6, block_lens=(2048,)),
    ]


def _plan(lengths: Int32, block_len: int) -> int:
    return plan_whole(lengths, block_len).num_blocks


def best_fit_by_item(lengths: Int32, block_len: int) -> int:
    """Best-fit decreasing with a heap of bins for every free space."""
    spaces: list[int] = []
    bins: dict[int, list[int]] = {}
    num_bins = 0
    for length in np.sort(lengths)[::-1].tolist():
        at = bisect_left(spaces, length)
        if at == len(spaces):
            number, space = num_bins, block_len
            num_bins += 1
        else:
            space = spaces[at]
            number = heappop(bins[space])
            if not bins[space]:
                del spaces[at]
        if space > length:
            if not bins.get(space - length):
                insort(spaces, space - length)
                bins[space - length] = []
            heappush(bins[space - length], number)
    return num_bins


def _trl() -> Callable[[Int32, int], int] | None:
    if not (find_spec("trl") and find_spec("datasets")):
        return None
    import datasets
    import pyarrow as pa
    from trl import pack_dataset

    datasets.disable_progress_bars()

    def pack(lengths: Int32, block_len: int) -> int:
        """All documents in one batch, so that it packs them together, as the others do."""
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), pa.int64())
        ids = pa.LargeListArray.from_arrays(offsets, pa.array(np.zeros(int(lengths.sum()), np.int32)))
        documents = datasets.Dataset(pa.table({"input_ids": ids}))
        return len(pack_dataset(documents, block_len, "bfd", {"batch_size": None}))

    return pack
