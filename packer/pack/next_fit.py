"""Next-fit: documents in source order, and a new block wherever the next one does not fit into the current one.

Which document a block ends before depends only on the one it begins with, and is looked up for all documents at once,
in their cumulative lengths. What is left to do one by one is a step from block to block.

Worked example, capacity 10: sizes 4, 5, 3, 7, 2 lie from 0, 4, 9, 12, 19. A block that begins at 0 has room to 10,
which lies in the third document: it holds two. The next begins at 9 and has room to 19: it holds two. The last holds
one.
"""

import numpy as np
import numpy.typing as npt

from packer.batches import Int64
from packer.layout import offsets_of


def next_fit(sizes: npt.NDArray[np.integer], capacity: int, *, max_items: int | None = None) -> Int64:
    """Where each block begins, and where the last one ends.  # int64[B + 1]

    Args:
        sizes: each from 1 to ``capacity``.  # integers [N]
        capacity: of a block.
        max_items: documents of a block at most.

    """
    offsets = offsets_of(sizes)
    ends = np.searchsorted(offsets, offsets[:-1] + capacity, side="right") - 1
    if max_items is not None:
        ends = np.minimum(ends, np.arange(len(sizes)) + max_items)
    bounds = [0]
    while bounds[-1] < len(sizes):
        bounds.append(int(ends[bounds[-1]]))
    return np.array(bounds, np.int64)
