"""Copying many short ranges between flat arrays without an index for each number.

A range of n numbers is two windows of W, for any W with W ≤ n ≤ 2W: its first W numbers and its last W, which overlap
in the middle. So ranges are sorted into classes that share a W, and a class is copied by one indexed assignment between
views whose items are windows: item i of such a view is the W numbers from place i on. One index moves W numbers, and a
window is copied as one piece of memory.

Numbers in the overlap are copied twice, so W is not much more than n/2. For 2^(e-1) ≤ n < 2^e it is 2^(e-1), or three
quarters of that where these suffice, for n ≤ 3/2 2^(e-1).

Worked example: ranges of 5 and 6 numbers have W = 3. The one from place 10, [10, 15), is the windows at 10 and 12; the
one from 20, [20, 26), those at 20 and 23. One assignment reads the windows at 10, 20, 12 and 23. A range of 7 has
W = 4.
"""

from collections.abc import Iterable, Sequence
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
    for window, members in _classes(lengths):
        starts, places, sizes = source_start[members], target_start[members], lengths[members]
        if len(members) < _FEW:
            _copy_slices(columns, starts, places, sizes)
        else:
            _copy_windows(columns, starts, places, sizes, window=window)


def _classes(lengths: Int64) -> Iterable[tuple[int, Int64]]:
    """W of each class that has ranges, and which ranges they are."""
    fraction, exponent = np.frexp(lengths)  # n = fraction 2^e, 1/2 ≤ fraction < 1
    class_of = (2 * exponent + (fraction > 3 / 4)).astype(np.uint8)  # few bits: sorted in linear time
    order = np.argsort(class_of, kind="stable")
    last = 0
    for number, count in enumerate(np.bincount(class_of).tolist()):
        if count:
            first, last = last, last + count
            power = 1 << number // 2 - 1
            three_quarters = number % 2 == 0 and power >= 4
            yield power * 3 // 4 if three_quarters else power, order[first:last]


def _copy_slices(
    columns: Sequence[tuple[npt.NDArray[Any], npt.NDArray[Any]]], starts: Int64, places: Int64, sizes: Int64
) -> None:
    for s, t, n in zip(starts.tolist(), places.tolist(), sizes.tolist(), strict=True):
        for source, target in columns:
            target[t : t + n] = source[s : s + n]


def _copy_windows(
    columns: Sequence[tuple[npt.NDArray[Any], npt.NDArray[Any]]],
    starts: Int64,
    places: Int64,
    sizes: Int64,
    *,
    window: int,
) -> None:
    to_last = sizes - window
    read = np.concatenate([starts, starts + to_last])
    write = np.concatenate([places, places + to_last])
    for source, target in columns:
        _windows(target, window)[write] = _windows(source, window)[read]


def _windows(flat: npt.NDArray[Any], window: int) -> npt.NDArray[np.void]:
    """A view whose item i is the memory of ``flat[i : i + window]``."""
    item = np.dtype((np.void, window * flat.itemsize))
    return np.ndarray((len(flat) - window + 1,), item, flat, strides=(flat.itemsize,))
