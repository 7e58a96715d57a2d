"""Where micro-batches are placed: in memory as int64 tensors, or on a CUDA device through pinned staging.

Ordinary memory is used again once no tensor holds it. Arrays of hundreds of kilobytes come from the system as fresh
pages and go back to it: touching such pages for the first time costs several times what is written to them. So arrays
are lent: an array that is given out has a loan as its base, which numpy, torch and everybody who keeps a view keep
alive. When the last of them lets go, the loan ends, and its memory may be lent again.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from packer.errors import UsageError
from packer.load.batch_format import NO_BOUNDS, SequenceBounds
from packer.load.step import MicroBatch

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


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBatches:
    """The arrays of some micro-batches, M of them, all in memory of one piece a column."""

    columns: dict[str, npt.NDArray[Any]]
    """By name, [M, ...]: what every micro-batch has as much of."""

    bounds: SequenceBounds = NO_BOUNDS

    def split(self, tensor: Callable[[str, npt.NDArray[Any]], Tensor]) -> list[MicroBatch]:
        """The micro-batches, each column and each kind of pieces made a tensor once."""
        pieces, sizes, numbers = self.bounds
        named: dict[str, Sequence[Any]] = {name: tensor(name, array).unbind() for name, array in self.columns.items()}
        named |= {name: torch.split(tensor(name, array), sizes) for name, array in pieces.items()}
        named |= numbers
        return [dict(zip(named, values, strict=True)) for values in zip(*named.values(), strict=True)]


WIDENED = frozenset({"input_ids", "labels", "position_ids", "attention_mask"})
"""int32 in the cache, int64 for models: an embedding and a cross entropy index with int64."""


class Placement(Protocol):
    """How host arrays become tensors. `receive` runs in the consumer's thread, everything else in the reader's."""

    def begin(self) -> None:
        """Make room for the next micro-batches, which are written once and then placed."""

    def room(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """An integer array to write a column into; its values are not set. Its type is the placement's choice."""

    def place(self, host: HostBatches) -> list[MicroBatch]:
        """Arrays to tensors, `WIDENED` ones to int64, everything else in its own type."""

    def scope(self) -> AbstractContextManager[Any]:
        """Work on placed tensors before they are handed over belongs inside."""

    def mark(self) -> Any:
        """A point after everything placed so far."""

    def receive(self, micro_batches: tuple[MicroBatch, ...], mark: Any) -> None:
        """Make what was placed before `mark` safe to use for the consumer."""


class HostPlacement:
    """Tensors in ordinary memory: columns are written as int64 at once, and become tensors without a copy."""

    def __init__(self) -> None:
        self._memory = ReusedMemory()

    def begin(self) -> None:
        return None

    def room(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        return self._memory.empty(shape, np.int64 if name in WIDENED else np.int32)

    def place(self, host: HostBatches) -> list[MicroBatch]:
        return host.split(lambda _, array: torch.from_numpy(array))

    def scope(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def mark(self) -> None:
        return None

    def receive(self, micro_batches: tuple[MicroBatch, ...], mark: Any) -> None:
        del micro_batches, mark  # nothing is under way


class _PinnedBuffer:
    """Page-locked memory by column, used again once its last copies are done."""

    def __init__(self) -> None:
        self.pinned: dict[str, Tensor] = {}
        self.written: dict[str, Tensor] = {}
        self.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]


class CudaPlacement:
    """Tensors on a CUDA device: copied from pinned memory on a side stream as int32, widened there.

    Two pinned buffers take turns, so one is filled while the other is copied. The consumer's stream waits for the
    copies, the host does not.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._buffer, self._other = _PinnedBuffer(), _PinnedBuffer()

    def begin(self) -> None:
        self._buffer, self._other = self._other, self._buffer
        self._buffer.copied.synchronize()
        self._buffer.written.clear()

    def room(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        return self._room(name, shape, np.dtype(np.int32)).numpy()

    def place(self, host: HostBatches) -> list[MicroBatch]:
        with self.scope():
            placed = host.split(self._copy)
            self._buffer.copied.record()
        return placed

    def scope(self) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self._stream)

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def receive(self, micro_batches: tuple[MicroBatch, ...], mark: Any) -> None:
        current = torch.cuda.current_stream(self._device)
        current.wait_event(mark)
        for micro_batch in micro_batches:
            for value in micro_batch.values():
                if isinstance(value, Tensor):
                    value.record_stream(current)  # the allocator must not reuse it while the consumer works on it

    def _copy(self, name: str, array: npt.NDArray[Any]) -> Tensor:
        staged = self._buffer.written.get(name)
        if staged is None:
            staged = self._room(name, array.shape, array.dtype)
            np.copyto(staged.numpy(), array)
        copied = staged.view(array.shape).to(self._device, non_blocking=True)
        return copied.to(torch.int64) if name in WIDENED else copied

    def _room(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
        size = int(np.prod(shape))
        pinned = self._buffer.pinned.get(name)
        if pinned is None or pinned.numel() < size:
            kind = torch.from_numpy(np.empty(0, dtype)).dtype
            pinned = self._buffer.pinned[name] = torch.empty(size, dtype=kind, pin_memory=True)
        room = self._buffer.written[name] = pinned[:size].view(shape)
        return room


def placement_for(device: torch.device | str | None) -> Placement:
    """The placement for a device; None is ordinary memory.

    Raises:
        ValueError: a kind of device other than ``cpu`` and ``cuda``.
        UsageError: a CUDA device that is not there.

    """
    if device is not None and not isinstance(device, str | torch.device):
        raise TypeError(f"device is {device!r}; expected cpu or cuda")
    try:
        kind = torch.device("cpu" if device is None else device)
    except RuntimeError:
        raise ValueError(f"device is {device!r}; expected cpu or cuda") from None
    if kind.type == "cpu":
        return HostPlacement()
    if kind.type == "cuda":
        _check_there(kind)
        return CudaPlacement(torch.device("cuda", torch.cuda.current_device()) if kind.index is None else kind)
    raise ValueError(f"device {kind}: expected cpu or cuda; move the micro-batches of a cpu loader yourself")


def _check_there(device: torch.device) -> None:
    number = torch.cuda.device_count()
    if (device.index or 0) >= number:
        raise UsageError(
            f"device {device} is not there: torch {torch.__version__} finds {number} CUDA devices",
            hint="open the loader with device='cpu', or see why torch.cuda.device_count() is so few",
        )
