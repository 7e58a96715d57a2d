"""Rows that lose to another row: the first of those that say the same, or nearly the same, is kept."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packer.batches import Float32, Int64
from packer.curate.near import NearCopies, near_duplicates, nearest
from packer.curate.signatures import Signatures


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Rows that are left out for the sake of another one. D rows."""

    row: Int64  # [D]
    kept: Int64  # [D] the row each lost to, which is kept itself
    similarity: Float32  # [D]
    num_capped: int = 0
    """As of :class:`packer.curate.near.NearCopies`."""


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


def lost_to_near(rows: Signatures, order: Int64, jaccard: float) -> Lost:
    """Rows that are near copies of an earlier row of the order that stays."""
    return _lost(order, near_duplicates(rows, order, jaccard))


def lost_to_held_out(
    rows: Signatures, keys: npt.NDArray[np.bytes_], held: Int64, learned: Int64, jaccard: float
) -> Lost:
    """Rows to be learned that are copies or near copies of a held-out row.

    Args:
        rows: of every row.
        keys: of every row; those of copies are equal.  # [N]
        held: rows that are held out.  # int64[H]
        learned: rows to be learned.  # int64[M]
        jaccard: the least similarity of a near copy.

    """
    near = _lost(learned, nearest(rows, held, learned, jaccard))
    same = exact_duplicates(keys, np.concatenate([held, learned]))
    copied = np.isin(same.kept, held) & ~np.isin(same.row, held)
    rest = ~np.isin(near.row, same.row[copied])
    return Lost(
        row=np.concatenate([same.row[copied], near.row[rest]]),
        kept=np.concatenate([same.kept[copied], near.kept[rest]]),
        similarity=np.concatenate([same.similarity[copied], near.similarity[rest]]),
        num_capped=near.num_capped,
    )


def _lost(rows: Int64, copies: NearCopies) -> Lost:
    found = np.flatnonzero(copies.of >= 0)
    return Lost(
        row=rows[found],
        kept=copies.of[found],
        similarity=copies.jaccard[found].astype(np.float32),
        num_capped=copies.num_capped,
    )
