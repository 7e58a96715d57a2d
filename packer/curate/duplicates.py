"""Rows that lose to another row: the first of those that say the same is kept."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packer.batches import Float32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Rows that are left out for the sake of another one. D rows."""

    row: Int64  # [D]
    kept: Int64  # [D] the row each lost to, which is kept itself
    similarity: Float32  # [D]


def exact_duplicates(keys: npt.NDArray[np.bytes_], order: Int64) -> Lost:
    """Rows whose key an earlier row of the order has.

    Worked example: keys a, b, a, a in the order 3, 0, 1, 2: rows 0 and 2 lose to row 3.

    Args:
        keys: of every row.  # [N]
        order: the rows that are compared, the first to be kept first.  # int64[M]

    """
    ordered = keys[order]
    by_key = np.argsort(ordered, kind="stable")
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = ordered[by_key][1:] != ordered[by_key][:-1]
    first = by_key[is_first][np.cumsum(is_first) - 1]
    lost = np.flatnonzero(~is_first)
    return Lost(row=order[by_key[lost]], kept=order[first[lost]], similarity=np.ones(len(lost), np.float32))
