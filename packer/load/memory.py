"""Memory for tensors that is used again once no tensor holds it.

Arrays of hundreds of kilobytes come from the system as fresh pages and go back to it: touching such pages for the
first time costs more than all that is written to them. So arrays are kept, and given out again once nothing else refers
to them. Whoever keeps a tensor, or a view of one, keeps its memory.
"""

import sys
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

_SMALLEST = 1 << 14
"""Values below which the allocator does as well."""

_KEPT_BYTES = 1 << 28
"""Bytes of arrays of one size that are kept at most."""

_UNUSED = 3
"""References to an array that nobody else holds: the deque's, a variable's, and the argument of the question."""


class ReusedMemory:
    """Gives out arrays. Not for two threads at a time; those who use the arrays may be anywhere."""

    def __init__(self) -> None:
        self._kept: dict[tuple[np.dtype[Any], int], deque[npt.NDArray[Any]]] = {}

    def empty(self, shape: tuple[int, ...], dtype: type[np.generic]) -> npt.NDArray[Any]:
        """An array whose values are not set."""
        size = 1
        for length in shape:
            size *= length
        if size < _SMALLEST:
            return np.empty(shape, dtype)
        room = _rounded(size)
        kept = self._kept.setdefault((np.dtype(dtype), room), deque())
        return self._unused(kept, room, dtype)[:size].reshape(shape)

    def _unused(self, kept: deque[npt.NDArray[Any]], room: int, dtype: type[np.generic]) -> npt.NDArray[Any]:
        """The array that was given out longest ago, if it has come back; else a new one."""
        if kept:
            oldest = kept[0]
            if sys.getrefcount(oldest) == _UNUSED:
                kept.rotate(-1)
                return oldest
        made: npt.NDArray[Any] = np.empty(room, dtype)
        kept.append(made)
        if len(kept) * made.nbytes > _KEPT_BYTES:
            kept.popleft()
        return made


def _rounded(size: int) -> int:
    """Up to an eighth more, so that sizes that differ little are one size: 17,000 gives 18,432."""
    grain = 1 << (size.bit_length() - 4)
    return -(-size // grain) * grain
