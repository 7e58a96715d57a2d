"""What planning costs, beside packers that go item by item."""

from bisect import bisect_left, insort
from heapq import heappop, heappush
from importlib.util import find_spec

import numpy as np
from rich.table import Table
from timing import best

from packer.batches import Int32
from packer.pack import mixing, plan

BLOCK_LENS = (2048, 4096, 8192, 131072)
TRL_DOCUMENTS = 1_000_000  # it needs gigabytes for so many
HUGE_DOCUMENTS = 100_000_000


def packing(table: Table, *, huge: bool) -> None:
    """Plans of log-normal lengths (median 148 tokens)."""
    for num_documents in (60_000, 1_000_000, 10_000_000):
        for block_len in BLOCK_LENS:
            _best_fit(table, _lengths(num_documents, block_len), block_len)
    lengths = _lengths(10_000_000, 2048)
    best_fit = best(lambda: plan(lengths, 2048))
    for strategy in ("first_fit", "sequential"):
        seconds = best(lambda s=strategy: plan(lengths, 2048, strategy=s))
        _row(table, f"plan {strategy}, 10,000,000 in 2048", seconds, "best_fit", best_fit)
    if huge:
        lengths = _lengths(HUGE_DOCUMENTS, 4096)
        keys = np.random.default_rng(0).integers(0, 2**63, HUGE_DOCUMENTS)
        sort = best(keys.sort, 1)
        del keys
        seconds = best(lambda: plan(lengths, 4096), 1)
        _row(table, f"plan, {HUGE_DOCUMENTS:,} in 4096", seconds, "sorting as many 64-bit numbers", sort)
    _mixing(table)


def _lengths(num_documents: int, block_len: int) -> Int32:
    raw = np.random.default_rng(0).lognormal(5, 1, num_documents)
    return np.clip(raw, 1, block_len).astype(np.int32)


def _best_fit(table: Table, lengths: Int32, block_len: int) -> None:
    name = f"plan, {len(lengths):,} in {block_len}"
    num_blocks = plan(lengths, block_len).num_blocks
    seconds = best(lambda: plan(lengths, block_len), 5)
    counts = []
    plain = best(lambda: counts.append(plain_best_fit(lengths, block_len)), 1)
    if counts != [num_blocks]:
        raise AssertionError(f"plain best-fit decreasing makes {counts} blocks, plan {num_blocks}")
    _row(table, name, seconds, "item by item, as many blocks", plain)
    if find_spec("trl") and block_len == BLOCK_LENS[0] and len(lengths) <= TRL_DOCUMENTS:
        _row(table, name, seconds, "trl.pack_dataset, bfd", _trl(lengths, block_len))


def plain_best_fit(lengths: Int32, block_len: int) -> int:
    """Best-fit decreasing with a heap of bins for every free space; the number of bins."""
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


def _trl(lengths: Int32, block_len: int) -> float:
    """Seconds of TRL on documents of these lengths, all of them in one batch."""
    import datasets
    import pyarrow as pa
    import trl

    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), pa.int64())
    ids = pa.LargeListArray.from_arrays(offsets, pa.array(np.zeros(int(lengths.sum()), np.int32)))
    documents = datasets.Dataset(pa.table({"input_ids": ids}))
    return best(lambda: trl.pack_dataset(documents, block_len, "bfd", {"batch_size": None}), 1)


def _mixing(table: Table) -> None:
    """Mixing by the eighths of the source that documents come from; 1 is chance."""
    lengths = _lengths(1_000_000, 4096)
    eighth = np.arange(len(lengths)) * 8 // len(lengths)
    for strategy in ("best_fit", "first_fit", "sequential"):
        packed = plan(lengths, 4096, strategy=strategy)
        for blocks in (1, 64):
            index = mixing(packed, eighth, blocks=blocks).index
            table.add_row(f"mixing of {blocks} blocks, {strategy}", f"{index:.4f}", "chance", f"{index:.4f}")


def _row(table: Table, name: str, seconds: float, beside: str, other: float) -> None:
    table.add_row(name, f"{seconds:.3f} s", beside, f"{seconds / other:.3g}")
