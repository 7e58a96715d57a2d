"""Memory for tensors that is used again once no tensor holds it.

Arrays of hundreds of kilobytes come from the system as fresh pages and go back to it: touching such pages for the
first time costs several times what is written to them. So arrays are lent: an array that is given out has a loan as its
base, which numpy, torch and everybody who keeps a view keep alive. When the last of them lets go, the loan ends, and
its memory may be lent again.
"""

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

_SMALLEST = 1 << 14
"""Values below which the allocator does as well."""

_IDLE_BYTES = 1 << 27
"""Bytes that are kept at most while nobody uses them."""


class ReusedMemory:
    """Gives out arrays. Not for two threads at a time; those who use the arrays may be anywhere."""

    def __init__(self) -> None:
        self._returned: deque[_Memory] = deque()  # appended to wherever the last view dies
        self._idle: dict[tuple[type[np.generic], int], list[_Memory]] = {}
        self._idle_bytes = 0

    def empty(self, shape: tuple[int, ...], dtype: type[np.generic]) -> npt.NDArray[Any]:
        """An array whose values are not set."""
        size = 1
        for length in shape:
            size *= length
        if size < _SMALLEST:
            return np.empty(shape, dtype)
        self._take_back()
        room = _rounded(size)
        idle = self._idle.get((dtype, room))
        if idle:
            memory = idle.pop()
            self._idle_bytes -= memory.array.nbytes
        else:
            memory = _Memory(dtype, room)
        return np.asarray(_Loan(memory, self._returned))[:size].reshape(shape)

    def _take_back(self) -> None:
        while self._returned:
            memory = self._returned.popleft()
            if self._idle_bytes + memory.array.nbytes > _IDLE_BYTES:
                self._idle.clear()  # sizes that are no longer asked for must not keep out those that are
                self._idle_bytes = 0
            self._idle.setdefault(memory.kind, []).append(memory)
            self._idle_bytes += memory.array.nbytes


class _Memory:
    """An array, and what others have to know to use it."""

    __slots__ = ("array", "interface", "kind")

    def __init__(self, dtype: type[np.generic], size: int) -> None:
        self.array: npt.NDArray[Any] = np.empty(size, dtype)
        self.interface = self.array.__array_interface__
        self.kind = (dtype, size)


class _Loan:
    """What a lent array has as its base."""

    __slots__ = ("__array_interface__", "_memory", "_returned")

    def __init__(self, memory: _Memory, returned: deque[_Memory]) -> None:
        self.__array_interface__ = memory.interface
        self._memory = memory
        self._returned = returned

    def __del__(self) -> None:
        self._returned.append(self._memory)


def _rounded(size: int) -> int:
    """Up to an eighth more, so that sizes that differ little are one size: 17,000 gives 18,432."""
    grain = 1 << (size.bit_length() - 4)
    return -(-size // grain) * grain
