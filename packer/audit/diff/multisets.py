"""Rows of integers as multisets: how many two lists have in common, and which of each are the common ones."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from packer.batches import Bool, Int64

Columns = Sequence[npt.NDArray[np.integer]]
"""Rows as columns of one length."""


def match_rows(old: Columns, new: Columns) -> tuple[Bool, Bool]:
    """Which rows of each list have their like in the other; of equal rows, the first ones.

    Worked example: [7, 7, 7, 8] and [9, 7, 7] give [T, T, F, F] and [F, T, T].

    Returns:
        bool[N] and bool[M]; both have the same number of True, the size of the multisets' intersection

    """
    old_ranks, new_ranks = _ranks(old, new)
    size = 1 + max(int(old_ranks.max(initial=-1)), int(new_ranks.max(initial=-1)))
    old_counts, new_counts = (np.bincount(ranks, minlength=size) for ranks in (old_ranks, new_ranks))
    return occurrences(old_ranks) < new_counts[old_ranks], occurrences(new_ranks) < old_counts[new_ranks]


def count_common(old: Columns, new: Columns) -> tuple[int, int, int]:
    """Rows only in the old list, only in the new one, and in both.

    Worked example: [7, 7, 7, 8] and [9, 7, 7] give (2, 1, 2).
    """
    matched, _ = match_rows(old, new)
    both = int(matched.sum())
    return len(old[0]) - both, len(new[0]) - both, both


def occurrences(keys: Int64) -> Int64:
    """How many equal keys are before each one.  # int64[N]

    Worked example: [5, 3, 5, 5, 3] gives [0, 0, 1, 2, 1]. In sorted order 3 3 5 5 5 a key's place less the place where
    its group begins: 0 1 2 3 4 - 0 0 2 2 2.
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(keys) else np.zeros(0, np.int64)
    counts = np.diff(np.append(begins, len(keys)))
    found = np.empty(len(keys), np.int64)
    found[order] = np.arange(len(keys)) - np.repeat(begins, counts)
    return found


def _ranks(old: Columns, new: Columns) -> tuple[Int64, Int64]:
    """One number for each row, equal where rows are.  # int64[N], int64[M]"""
    ranks = np.zeros(len(old[0]) + len(new[0]), np.int64)
    for old_column, new_column in zip(old, new, strict=True):
        _, column = np.unique(np.concatenate([old_column, new_column]), return_inverse=True)
        # Neither factor is larger than the number of rows, so the product is exact; then it is made small again.
        combined = ranks * (int(column.max(initial=0)) + 1) + column
        _, ranks = np.unique(combined, return_inverse=True)
    return ranks[: len(old[0])], ranks[len(old[0]) :]
