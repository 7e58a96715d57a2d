"""Copying many short ranges between flat arrays without an index for each number.

A range of n numbers with W ≤ n < 2W, W a power of two, is two windows of W: its first W numbers and its last W, which
overlap in the middle. So ranges are sorted into classes by W, and a class is copied by two indexed assignments between
views whose items are windows: item i of such a view is the W numbers from place i on. One index moves W numbers, and a
window is copied as one piece of memory.

Worked example: ranges of 5 and 7 numbers have W = 4. The one from place 10, [10, 15), is the windows at 10 and 11; the
one from 20, [20, 27), those at 20 and 23. The two assignments read windows [10, 20], then [11, 23].
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.batches import Float32, Int32, Int64

_FEW = 12  # ranges of a class: below this, a slice for each costs less than making the two views


def copy_ranges(
    columns: Sequence[tuple[Int32 | Float32, Int32 | Float32]], source_start: Int64, target_start: Int64, lengths: Int64
) -> None:
    """Copy ``source[s : s + n]`` to ``target[t : t + n]`` for every range and every pair of source and target.

    Args:
        columns: pairs (source, target) of flat, contiguous arrays. Ranges of a target do not overlap.
        source_start: s of each range, inside the sources.  # int64[M]
        target_start: t of each range, inside the targets.  # int64[M]
        lengths: n of each range, at least 1.  # int64[M]

    """
    exponents = (np.frexp(lengths)[1] - 1).astype(np.uint8)  # 2^e ≤ n < 2^(e+1)
    order = np.argsort(exponents, kind="stable")
    first = 0
    for exponent, count in enumerate(np.bincount(exponents).tolist()):
        if not count:
            continue
        members = order[first : first + count]
        first += count
        ranges = source_start[members], target_start[members], lengths[members]
        for source, target in columns:
            if count < _FEW:
                _copy_slices(source, target, *ranges)
            else:
                _copy_windows(source, target, *ranges, window=1 << exponent)


def _copy_slices(
    source: npt.NDArray[Any], target: npt.NDArray[Any], starts: Int64, places: Int64, sizes: Int64
) -> None:
    for s, t, n in zip(starts.tolist(), places.tolist(), sizes.tolist(), strict=True):
        target[t : t + n] = source[s : s + n]


def _copy_windows(
    source: npt.NDArray[Any], target: npt.NDArray[Any], starts: Int64, places: Int64, sizes: Int64, *, window: int
) -> None:
    read, write = _windows(source, window), _windows(target, window)
    write[places] = read[starts]
    last = sizes - window
    write[places + last] = read[starts + last]


def _windows(flat: npt.NDArray[Any], window: int) -> npt.NDArray[np.void]:
    """A view whose item i is the memory of ``flat[i : i + window]``."""
    item = np.dtype((np.void, window * flat.itemsize))
    return np.ndarray((len(flat) - window + 1,), item, flat, strides=(flat.itemsize,))
