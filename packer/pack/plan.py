"""The packing plan: which document lies in which block.

Documents of equal length are interchangeable to the packer, so a keyed permutation deals them out: neighbours of the
source land in blocks far apart. The blocks of a group are numbered by a second keyed permutation, so that reading them
in order gives a mixture. Within a block the documents lie in source order.

Both sorts below are of unique 64-bit numbers, the sort key in the high half and the item in the low half, so that any
sorting algorithm gives the same result.
"""

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from packer.batches import Int32, Int64, PackPlan, UInt64
from packer.pack.best_fit import best_fit_decreasing
from packer.permute import permutation_key, permute
from packer.recipe import MAX_BLOCK_LEN

UInt32: TypeAlias = npt.NDArray[np.uint32]

MAX_GROUP_DOCUMENTS = 2**32 - 1

_LOW = np.uint64(2**32 - 1)
_HALF = np.uint64(32)


def plan(
    lengths: npt.NDArray[np.integer],
    block_len: int,
    *,
    strategy: Literal["best_fit"] = "best_fit",
    seed: int = 0,
    group_documents: int | None = None,
) -> PackPlan:
    """Place documents in blocks of ``block_len`` tokens.

    Documents that are empty or longer than a block are in no block. The plan is a pure function of the arguments.

    Args:
        lengths: tokens of each document.  # integers [N]
        block_len: tokens of a block, 1 to 2^20.
        strategy: ``best_fit``, best-fit decreasing.
        seed: of the permutations.
        group_documents: pack this many consecutive documents at a time; the blocks of a group come before those
            of the next. None packs all of them together.

    Example:
        >>> packed = plan(np.array([3, 4, 1]), 4)
        >>> packed.num_blocks, int(packed.block_of[0]) == int(packed.block_of[2])
        (2, True)

    Raises:
        ValueError: lengths that are negative or no integers, a number out of range, an unknown strategy.

    """
    lengths = _checked_lengths(lengths)
    if group_documents is None:
        group_documents = max(len(lengths), 1)
    _check_numbers(block_len, strategy, group_documents)
    document = np.empty(np.count_nonzero((lengths > 0) & (lengths <= block_len)), np.int64)
    block_of = np.full(len(lengths), -1, np.int64)
    sizes: list[Int64] = []
    num_blocks = num_pieces = 0
    for number, first in enumerate(range(0, len(lengths), group_documents)):
        packed = _pack_group(lengths[first : first + group_documents], block_len, seed, number)
        mine = document[num_pieces : num_pieces + len(packed)]
        np.add(_low(packed), first, out=mine)
        packed >>= _HALF
        block = packed.view(np.int64)
        sizes.append(np.bincount(block))
        block += num_blocks
        block_of[mine] = block
        num_blocks += len(sizes[-1])
        num_pieces += len(mine)
    return PackPlan(
        document=document,
        start=np.zeros(len(document), np.int64),
        length=lengths[document].astype(np.int32, copy=False),
        block_offsets=np.concatenate([np.zeros(1, np.int64), *sizes]).cumsum(),
        block_of=block_of,
    )


def _checked_lengths(lengths: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    lengths = np.asarray(lengths)
    if lengths.ndim != 1 or (lengths.dtype.kind not in "iu" and lengths.size):
        raise ValueError(f"lengths are {lengths.dtype}{list(lengths.shape)}; expected one integer a document")
    if lengths.size and int(lengths.min()) < 0:
        raise ValueError(f"document {int(lengths.argmin())} has length {int(lengths.min())}; expected 0 or more")
    return lengths if lengths.size else np.empty(0, np.int32)


def _check_numbers(block_len: int, strategy: str, group_documents: int) -> None:
    if not 1 <= block_len <= MAX_BLOCK_LEN:
        raise ValueError(f"block_len is {block_len}; expected 1 to {MAX_BLOCK_LEN}")
    if strategy != "best_fit":
        raise ValueError(f"strategy is '{strategy}'; expected 'best_fit'")
    if not 1 <= group_documents <= MAX_GROUP_DOCUMENTS:
        raise ValueError(f"a group has {group_documents} documents; expected 1 to {MAX_GROUP_DOCUMENTS}")


def _pack_group(lengths: npt.NDArray[np.integer], block_len: int, seed: int, group: int) -> UInt64:
    """``block << 32 | document`` of each document that fits, sorted; both count from the group's first.  # uint64[m]"""
    packable = np.where((lengths > 0) & (lengths <= block_len), lengths, 0).astype(np.int32, copy=False)
    histogram = np.bincount(packable, minlength=block_len + 1)
    num_packable = len(lengths) - int(histogram[0])
    if not num_packable:
        return np.empty(0, np.uint64)
    items = _decreasing(packable, block_len, permutation_key("pack.deal", seed, group))[:num_packable]
    histogram[0] = 0
    distinct = np.flatnonzero(histogram)[::-1]
    runs = best_fit_decreasing(distinct, histogram[distinct], block_len)
    stored = permute(np.arange(runs.total_bins), runs.total_bins, permutation_key("pack.store", seed, group))
    packed: UInt64 = stored[runs.item_bins()].view(np.uint64)
    packed <<= _HALF
    packed |= items
    packed.sort()
    return packed


def _decreasing(lengths: Int32, block_len: int, key: UInt64) -> UInt32:
    """Indices of the lengths in decreasing order, equal ones in the order the key deals them.  # uint32[n]"""
    n = len(lengths)
    dealt = permute(np.arange(n), n, key).astype(np.uint32)
    order = (np.int32(block_len) - lengths)[dealt].astype(np.uint64)
    order <<= _HALF
    order |= np.arange(n, dtype=np.uint64)
    order.sort()
    return dealt[_low(order)]


def _low(numbers: UInt64) -> Int64:
    return (numbers & _LOW).view(np.int64)
