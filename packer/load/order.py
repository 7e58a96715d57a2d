"""Which blocks a step holds: the order of an epoch, a cursor on it, and the deal to ranks. Pure arithmetic.

The order Ω of an epoch is a keyed permutation of the block numbers, fixed by (content fingerprint, seed, epoch). A step
of G blocks takes Ω[c : c + G] and moves the cursor c by G. World size, micro-batch size, accumulation, workers and
prefetch never enter: they only decide who reads which part of a step.

Worked example, seven blocks, Ω = [4, 1, 6, 0, 5, 2, 3], G = 4, two ranks, one block a micro-batch:

    step 0    Ω[0:4] = 4 1 6 0     rank 0: [4] [1]     rank 1: [6] [0]     cursor 4
    step 1    three blocks are left: ``drop`` ends the epoch; ``pad`` gives 5 2 3 and a masked row;
              ``wrap`` gives 5 2 3 and the first block of the next epoch's order, cursor 1 of that epoch
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from packer.batches import Int64
from packer.errors import UsageError
from packer.permute import permutation_key, permute

OrderKind = Literal["random", "sequential"]
End = Literal["drop", "pad", "wrap"]

PADDING_ROW = -1
"""Stands in a step's block numbers for a fully masked row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOrder:
    """The order of the blocks in every epoch; any stretch of it costs only that stretch."""

    fingerprint: str
    """Content fingerprint of the cache."""

    seed: int
    num_blocks: int
    kind: OrderKind

    def blocks(self, *, epoch: int, start: int, stop: int) -> Int64:
        """Ω[start:stop] of an epoch, with 0 <= start <= stop <= num_blocks.  # int64[stop - start]"""
        index = np.arange(start, stop, dtype=np.int64)
        if self.kind == "sequential":
            return index
        key = permutation_key("packer.load.order", self.fingerprint, self.seed, epoch)
        return permute(index, self.num_blocks, key)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """The blocks of one step over all ranks, and where the reader stands after it."""

    epoch: int
    """Epoch the step begins in."""

    block_ids: Int64  # [G]; PADDING_ROW where a row is padding, always at the end
    coverage: float
    """Share of `epoch` that has been taken after this step, 0 to 1."""

    next_epoch: int
    next_cursor: int

    @property
    def num_blocks(self) -> int:
        """Blocks of the step, padding rows not counted."""
        return int(np.count_nonzero(self.block_ids != PADDING_ROW))


def plan_step(order: EpochOrder, *, epoch: int, cursor: int, size: int, end: End) -> StepPlan | None:
    """The step of `size` blocks that begins at `cursor`, or None where the epoch has none left.

    Raises:
        UsageError: `end` is ``drop`` and not even a fresh epoch holds one step.

    """
    left = order.num_blocks - cursor
    if end == "drop" and left < size:
        if cursor == 0:
            check_fits(size=size, num_blocks=order.num_blocks)
        return None
    if left == 0:
        return None
    if end == "wrap":
        return _wrapped(order, epoch, cursor, size)
    stop = cursor + min(size, left)
    block_ids = np.full(size, PADDING_ROW, np.int64)
    block_ids[: stop - cursor] = order.blocks(epoch=epoch, start=cursor, stop=stop)
    return StepPlan(
        epoch=epoch, block_ids=block_ids, coverage=stop / order.num_blocks, next_epoch=epoch, next_cursor=stop
    )


def _wrapped(order: EpochOrder, epoch: int, cursor: int, size: int) -> StepPlan:
    """A step that goes on in the next epoch's order, and in the one after where it is larger than an epoch."""
    first_epoch = epoch
    stop = min(cursor + size, order.num_blocks)
    coverage = stop / order.num_blocks
    parts = [order.blocks(epoch=epoch, start=cursor, stop=stop)]
    missing = size - (stop - cursor)
    while missing:
        epoch += 1
        stop = min(missing, order.num_blocks)
        parts.append(order.blocks(epoch=epoch, start=0, stop=stop))
        missing -= stop
    return StepPlan(
        epoch=first_epoch, block_ids=np.concatenate(parts), coverage=coverage, next_epoch=epoch, next_cursor=stop
    )


def steps_left(*, num_blocks: int, cursor: int, size: int, end: End) -> int:
    """Number of steps of `size` blocks that begin in what is left of an epoch."""
    left = num_blocks - cursor
    return left // size if end == "drop" else -(-left // size)


def rank_share(block_ids: Int64, *, rank: int, world_size: int) -> Int64:
    """The contiguous part of a step that one rank reads.  # int64[G / world_size]"""
    share = len(block_ids) // world_size
    return block_ids[rank * share : (rank + 1) * share]


def check_batch_size(global_batch_size: int, *, micro_batch_size: int, world_size: int) -> None:
    """Refuse a global batch that cannot be dealt into whole micro-batches.

    Raises:
        UsageError: names the nearest sizes that can.

    """
    unit = micro_batch_size * world_size
    if global_batch_size > 0 and global_batch_size % unit == 0:
        return
    below = global_batch_size // unit * unit
    nearest = f"{below} or {below + unit}" if below > 0 else str(unit)
    raise UsageError(
        f"global_batch_size {global_batch_size} is not a positive multiple of micro_batch_size {micro_batch_size} "
        f"x world_size {world_size} = {unit}",
        hint=f"nearest: {nearest}",
    )


def check_fits(*, size: int, num_blocks: int) -> None:
    """Refuse a step that is larger than an epoch, for ``end="drop"``.

    Raises:
        UsageError: every block would be dropped.

    """
    if size > num_blocks:
        raise UsageError(
            f"global_batch_size {size} exceeds the {num_blocks} blocks of an epoch; end='drop' would drop them all",
            hint="use a smaller global_batch_size, end='pad' or end='wrap'",
        )
