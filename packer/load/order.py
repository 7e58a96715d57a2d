"""Which row comes when: the order of an epoch. Pure arithmetic, or nearly.

The order Ω of an epoch is a keyed permutation of the row numbers (of blocks, or of documents), fixed by (content
fingerprint, seed, epoch). World size, micro-batch size, accumulation, workers and prefetch never enter.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from packer.batches import Int64
from packer.permute import permutation_key, permute

OrderKind = Literal["random", "sequential", "length_bucketed"]

_LONGEST_STRETCH = 4096
"""Numbers of an order made in one go: a call of the permutation costs as much for one of them as for hundreds."""


class Order(Protocol):
    """The rows of every epoch in their order."""

    @property
    def num_items(self) -> int:
        """Rows of an epoch."""

    def stretch(self, *, epoch: int, start: int, stop: int) -> Int64:
        """Ω[start:stop] of an epoch, with 0 <= start <= stop <= num_items.  # int64[stop - start]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOrder:
    """Every row once an epoch; any stretch costs only that stretch, and nothing is kept in memory."""

    fingerprint: str
    """Content fingerprint of the cache."""

    seed: int
    num_items: int
    shuffled: bool
    """False: as stored, every epoch alike."""

    rows: Int64 | None = None
    """Those there are, `num_items` of them; None: 0 to num_items."""

    def stretch(self, *, epoch: int, start: int, stop: int) -> Int64:
        index = np.arange(start, stop, dtype=np.int64)
        if self.shuffled:
            key = permutation_key("packer.load.order", self.fingerprint, self.seed, epoch)
            index = permute(index, self.num_items, key)
        return index if self.rows is None else self.rows[index]


class Ahead:
    """An order whose next stretches were made before they are asked for: longer ones each time, up to a limit.

    The first stretch is no longer than what is asked, so that a loader's first step waits for nothing else.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._made: tuple[int, int, Int64] = (-1, 0, np.zeros(0, np.int64))  # epoch, start, numbers

    @property
    def num_items(self) -> int:
        return self._order.num_items

    def stretch(self, *, epoch: int, start: int, stop: int) -> Int64:
        """Ω[start:stop] of an epoch; not to be written to."""
        made_epoch, made_start, made = self._made
        offset = start - made_start
        if epoch != made_epoch or offset < 0 or stop - made_start > len(made):
            size = max(stop - start, min(2 * len(made), _LONGEST_STRETCH))
            made = self._order.stretch(epoch=epoch, start=start, stop=min(start + size, self.num_items))
            made.flags.writeable = False  # steps hand out views of it
            self._made, offset = (epoch, start, made), 0
        return made[offset : offset + stop - start]
