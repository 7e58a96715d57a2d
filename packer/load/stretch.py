"""Steps that are planned and read in one go: what a step costs besides its bytes is then paid once for several of them.

Nothing else changes: they are the same steps, and each is handed out by itself.
"""

from collections.abc import Iterator
from typing import NamedTuple

from packer.batches import Int64
from packer.load.steps import StepPlan

_MOST_STEPS = 16
_MOST_TOKENS = 1 << 18
"""Of a rank; a column of int64 is then 2 MB."""


class Planned(NamedTuple):
    """A step that was planned and not read yet."""

    plan: StepPlan
    size: int
    left_out: Int64 | None
    """What ``drop`` left out of the epoch that ended before this step."""

    taken: tuple[int, ...] | None
    """Of a mixture: rows of each cache up to the end of this step."""


def most_rows(mean_length: float, *, world_size: int) -> int:
    """Rows over all ranks that are worth reading in one go: with more of them, bytes are all that counts."""
    return max(int(_MOST_TOKENS * world_size / max(mean_length, 1)), 1)


def stretches(planned: Iterator[Planned], *, most_rows: int) -> Iterator[list[Planned]]:
    """The same steps, several at a time: one first, so that nobody waits for more; twice as many each time after.

    A step with padding rows is the last of its stretch. What `planned` raises comes after the steps before it.

    Args:
        planned: steps in their order.
        most_rows: rows that are read in one go; a step of more is read by itself.

    """
    stretch: list[Planned] = []
    num_rows, most_steps = 0, 1
    try:
        for step in planned:
            stretch.append(step)
            num_rows += len(step.plan.rows)
            full = len(stretch) == most_steps or num_rows + len(step.plan.rows) > most_rows
            if full or step.plan.num_rows < len(step.plan.rows):
                yield stretch
                stretch, num_rows, most_steps = [], 0, min(2 * most_steps, _MOST_STEPS)
    except Exception:
        if stretch:
            yield stretch
        raise
    if stretch:
        yield stretch
