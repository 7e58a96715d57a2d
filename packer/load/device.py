"""Where a micro-batch is placed: in memory as int64 tensors, or on a CUDA device through pinned staging."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from packer.load.labels import MicroBatch
from packer.load.rows import WIDENED, HostBatch


class Placement(Protocol):
    """How host arrays become tensors. `place` and `mark` run in the reader's thread, `receive` in the consumer's."""

    def scope(self) -> AbstractContextManager[Any]:
        """Work on placed tensors before they are handed over belongs inside."""

    def place(self, host: HostBatch) -> MicroBatch:
        """Arrays to tensors; ids, labels and positions to int64, everything else in its own type."""

    def mark(self) -> Any:
        """A point after everything placed so far."""

    def receive(self, micro_batches: tuple[MicroBatch, ...], mark: Any) -> None:
        """Make what was placed before `mark` safe to use for the consumer."""


class HostPlacement:
    """Tensors in ordinary memory."""

    def scope(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def place(self, host: HostBatch) -> MicroBatch:
        return {name: _tensor(name, value) if isinstance(value, np.ndarray) else value for name, value in host.items()}

    def mark(self) -> None:
        return None

    def receive(self, micro_batches: tuple[MicroBatch, ...], mark: Any) -> None:
        del micro_batches, mark  # nothing is under way


class CudaPlacement:
    """Tensors on a CUDA device: copied from pinned memory on a side stream, widened there.

    Two pinned buffers take turns, so one is filled while the other is copied. The consumer's stream waits for the
    copies, the host does not.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._buffers = (_PinnedBuffer(), _PinnedBuffer())
        self._turn = 0

    def scope(self) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self._stream)

    def place(self, host: HostBatch) -> MicroBatch:
        buffer = self._buffers[self._turn]
        self._turn = 1 - self._turn
        with self.scope():
            return buffer.upload(host, self._device)

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


class _PinnedBuffer:
    """Page-locked memory by column, reused once its last copies are done."""

    def __init__(self) -> None:
        self._pinned: dict[str, Tensor] = {}
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def upload(self, host: HostBatch, device: torch.device) -> MicroBatch:
        self._copied.synchronize()
        placed = {
            name: self._copy(name, value, device) if isinstance(value, np.ndarray) else value
            for name, value in host.items()
        }
        self._copied.record()
        return placed

    def _copy(self, name: str, array: Any, device: torch.device) -> Tensor:
        staged = self._room(name, array)
        np.copyto(staged.numpy(), array)
        copied = staged.to(device, non_blocking=True)
        return copied.to(torch.int64) if name in WIDENED else copied

    def _room(self, name: str, array: Any) -> Tensor:
        pinned = self._pinned.get(name)
        if pinned is None or pinned.numel() < array.size:
            dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
            pinned = self._pinned[name] = torch.empty(array.size, dtype=dtype, pin_memory=True)
        return pinned[: array.size].view(array.shape)


def placement_for(device: torch.device | str | None) -> Placement:
    """The placement for a device; None is ordinary memory.

    Raises:
        ValueError: a kind of device other than ``cpu`` and ``cuda``.

    """
    kind = torch.device(device or "cpu")
    if kind.type == "cpu":
        return HostPlacement()
    if kind.type == "cuda":
        return CudaPlacement(torch.device("cuda", torch.cuda.current_device()) if kind.index is None else kind)
    raise ValueError(f"device {kind}: expected cpu or cuda; move the micro-batches of a cpu loader yourself")


def _tensor(name: str, array: Any) -> Tensor:
    """A tensor of its own memory; what the cache maps is read-only."""
    return torch.from_numpy(array.astype(np.int64 if name in WIDENED else array.dtype))
