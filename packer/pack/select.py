"""Which documents are packed, and why the others are not.

This is the only step between documents and blocks where whole documents are dropped. The remaining ones keep their
numbers; from here on, a dropped one counts as having no tokens.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packer.batches import Int64
from packer.recipe.pack_rules import Pack

REASONS = ("too_short", "overlong", "truncated", "untrained")
"""Why tokens are dropped: they, or their document, are fewer than ``min_length``; their document is longer than a
block and rejected; they are beyond what is kept of a truncated document; their piece would train nothing."""

TOO_SHORT, OVERLONG, TRUNCATED, UNTRAINED = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """N documents, of which D are dropped."""

    length: npt.NDArray[np.integer]  # [N] tokens of each document, 0 if it is dropped
    dropped: Int64  # [D] numbers of the dropped ones, ascending
    dropped_length: Int64  # [D] their tokens
    reason: npt.NDArray[np.uint8]  # [D] index into REASONS


def select(lengths: npt.NDArray[np.integer], pack: Pack) -> Selection:
    """Drop documents that are too short, and those longer than a block if the rules reject them.

    `lengths` are the tokens of each document.  # integers [N], at least 0
    """
    is_short = (lengths < pack.min_length) & (lengths > 0)
    is_dropped = is_short
    if pack.overlong == "reject" and pack.mode != "stream":
        is_dropped = is_short | (lengths > pack.block_len)
    dropped = np.flatnonzero(is_dropped)
    return Selection(
        length=np.where(is_dropped, 0, lengths) if len(dropped) else lengths,
        dropped=dropped,
        dropped_length=lengths[dropped].astype(np.int64),
        reason=np.where(is_short[dropped], TOO_SHORT, OVERLONG).astype(np.uint8),
    )
