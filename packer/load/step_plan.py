"""Which rows a step takes: the next ones of the order, and the reader's position after it.

A step of G rows takes Ω[c : c + G] and advances the cursor c by G; a step of G tokens takes as many rows as fit into G
tokens. World size, micro-batch size, accumulation, workers and prefetch have no influence: they only decide who reads
which part of a step.

Worked example, seven blocks, Ω = [4, 1, 6, 0, 5, 2, 3], G = 4, two ranks, one block per micro-batch:

    step 0    Ω[0:4] = 4 1 6 0     rank 0: [4] [1]     rank 1: [6] [0]     cursor 4
    step 1    three blocks are left: ``drop`` ends the epoch; ``pad`` yields 5 2 3 and a masked row;
              ``short`` yields 5 2 3; ``wrap`` yields 5 2 3 and the first block of the next epoch's order, cursor 1 of
              that epoch

Worked example in tokens, G = 9, documents of 5 3 4 2 6 tokens in Ω: one step takes 5 3, the next 4 2, and the document
of 6 is left at the end of the epoch.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from packer.batches import Int32, Int64
from packer.errors import UsageError
from packer.load.ordering import Order

End = Literal["drop", "pad", "short", "wrap"]

PADDING_ROW = -1
"""Placeholder among a step's row numbers for a fully masked row."""

_MIN_SLICE_ROWS = 64
"""Number of rows whose lengths are looked up first for a step of tokens."""


Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """The rows of one step over all ranks, and the reader's position after it."""

    epoch: int
    """Epoch the step begins in."""

    rows: Int64  # [n]; PADDING_ROW where a row is padding, always at the end
    num_rows: int
    """Rows without padding rows."""

    coverage: float
    """Fraction of `epoch` that has been taken after this step, 0 to 1."""

    next_epoch: int
    next_cursor: int
    size: int
    """Requested size in rows or tokens."""

    taken: tuple[int, ...] | None = None
    """For a mixture, the rows of each cache up to the end of this step."""

    @property
    def real_rows(self) -> Int64:
        """Rows that are not padding.  # int64[num_rows]"""
        return self.rows[: self.num_rows]


def plan_step(
    order: Order,
    *,
    epoch: int,
    cursor: int,
    size: int,
    end: End,
    lengths: Int32 | None = None,
) -> StepPlan | None:
    """Return the step that begins at `cursor`, or None if the epoch has no step left.

    It takes rows as long as they fit. If the rest of an epoch does not fill a step, ``drop`` leaves it out, ``pad``
    adds padding rows, ``short`` returns it as a smaller step (so does ``pad`` if sizes count tokens), and ``wrap``
    continues with the next epoch's order, and with the one after that if the step is larger than an epoch.

    Sizes count rows; if `lengths` has the tokens of every row, none longer than `size`, they count tokens.

    Raises:
        UsageError: `end` is ``drop`` and not even a whole epoch fills one step.
    """
    rows = _rows_that_fit(order, lengths, epoch, cursor, size)
    if not len(rows):
        return None
    stop, remaining = cursor + len(rows), size - _total(rows, lengths)
    length = order.length(epoch)
    next_epoch, coverage, num_rows = epoch, stop / length, len(rows)
    if stop == length and remaining:
        if end == "drop":
            if cursor == 0:
                check_fits(size=size, num_items=size - remaining, unit="rows" if lengths is None else "tokens")
            return None
        if end == "pad" and lengths is None:
            rows = np.concatenate([rows, np.full(remaining, PADDING_ROW, np.int64)])
        elif end == "wrap":
            parts = [rows]
            while remaining and stop == order.length(next_epoch):
                next_epoch += 1
                parts.append(_rows_that_fit(order, lengths, next_epoch, 0, remaining))
                remaining -= _total(parts[-1], lengths)
                stop = len(parts[-1])
            rows = np.concatenate(parts)
            num_rows = len(rows)
    return StepPlan(
        epoch=epoch,
        rows=rows,
        num_rows=num_rows,
        coverage=coverage,
        next_epoch=next_epoch,
        next_cursor=stop,
        size=size,
        taken=order.taken(epoch=next_epoch, cursor=stop),
    )


def steps_left(*, num_items: int, cursor: int, size: int, end: End, num_epochs: int = 1) -> int:
    """Count the steps of `size` rows that begin in the rest of an epoch and in the epochs after it.

    Worked example: 7 rows per epoch, 2 of them taken, 2 epochs, steps of 4. ``drop``: 1 + 1. ``pad`` and ``short``:
    2 + 2. ``wrap`` continues across the boundary, so that the remaining 12 rows make 3.
    """
    if num_epochs < 1:
        return 0
    left = num_items - cursor
    if end == "wrap":
        return -(-(left + (num_epochs - 1) * num_items) // size)
    first, whole = (rows // size if end == "drop" else -(-rows // size) for rows in (left, num_items))
    return first + (num_epochs - 1) * whole


def check_batch_size(global_batch_size: int, *, micro_batch_size: int, world_size: int) -> None:
    """Refuse a global batch that is not a whole number of micro-batches on every rank.

    Raises:
        UsageError: names the nearest valid sizes.
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


def check_fits(*, size: int, num_items: int, unit: str) -> None:
    """Refuse a step that is larger than an epoch, for ``end="drop"``.

    Raises:
        UsageError: every row would be dropped.
    """
    if size > num_items:
        raise UsageError(
            f"global_batch_size {size} exceeds the {num_items} {unit} of an epoch; end='drop' would drop them all",
            hint="use a smaller global_batch_size, or end='pad', 'short' or 'wrap'",
        )


def _total(rows: Int64, lengths: Int32 | None) -> int:
    return len(rows) if lengths is None else int(lengths[rows].sum(dtype=np.int64))


def _rows_that_fit(order: Order, lengths: Int32 | None, epoch: int, start: int, remaining: int) -> Int64:
    """Return the rows from `start` on that fit into `remaining` rows or tokens, within the epoch.  # int64[n]"""
    num_requested, length = remaining if lengths is None else _MIN_SLICE_ROWS, order.length(epoch)
    while True:
        stop = min(start + num_requested, length)
        rows = order.rows(epoch, start, stop)
        if lengths is None:
            return rows
        num_fitting = int(np.searchsorted(np.cumsum(lengths[rows], dtype=np.int64), remaining, side="right"))
        if num_fitting < len(rows) or stop == length:
            return rows[:num_fitting]
        num_requested *= 2
