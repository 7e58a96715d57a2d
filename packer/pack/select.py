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
    pixels: Int64 | None = None  # [N] of the images of each document; None if none are counted
    dropped: Int64  # [D] numbers of the dropped ones, ascending
    dropped_length: Int64  # [D] their tokens
    reason: npt.NDArray[np.uint8]  # [D] index into REASONS


def select(lengths: npt.NDArray[np.integer], pack: Pack, pixels: Int64 | None = None) -> Selection:
    """Drop documents that are too short, and those longer than a block if the rules reject them.

    A document with images is never cut: it is dropped if its tokens or its pixels exceed those of a block.

    Args:
        lengths: tokens of each document.  # integers [N], at least 0
        pack: the rules.
        pixels: of the images of each document, if the rules limit those of a block.  # int64[N]
    """
    is_short = (lengths < pack.min_length) & (lengths > 0)
    is_dropped = is_short
    if pack.overlong == "reject" and pack.mode != "stream":
        is_dropped = is_short | (lengths > pack.block_len)
    if pixels is not None and pack.max_pixels is not None:
        is_dropped = is_dropped | (pixels > pack.max_pixels) | ((pixels > 0) & (lengths > pack.block_len))
    dropped = np.flatnonzero(is_dropped)
    return Selection(
        length=np.where(is_dropped, 0, lengths) if len(dropped) else lengths,
        pixels=pixels,
        dropped=dropped,
        dropped_length=lengths[dropped].astype(np.int64),
        reason=np.where(is_short[dropped], TOO_SHORT, OVERLONG).astype(np.uint8),
    )
