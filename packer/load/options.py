"""What a loader is opened with, checked and completed, in one value."""

import os
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from packer.errors import UsageError
from packer.load.arguments import instance, one_of, whole
from packer.load.batching import Batching
from packer.load.layouts import BatchFormat
from packer.load.order import OrderKind
from packer.load.steps import End

Schedule: TypeAlias = Callable[[int, int], int]
"""From the index of a step and the size of the one before it to its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments of :class:`packer.load.PackedLoader`, which says what they mean."""

    split: str
    micro_batch_size: int
    global_batch_size: int
    schedule: Schedule | None
    batching: Batching
    cutoff_len: int | None
    rank: int
    world_size: int
    seed: int
    order: OrderKind
    end: End
    device: torch.device
    form: BatchFormat
    prefetch: int


def device_of(device: Any) -> torch.device:
    """The device micro-batches are placed on; None is ``cpu``.

    Raises:
        ValueError: what is no name of a device, or another kind of device than ``cpu`` and ``cuda``.
        UsageError: a GPU that is not there.

    """
    named = torch.device("cpu") if device is None else device
    if isinstance(named, str) and named.partition(":")[0] in ("cpu", "cuda"):
        named = torch.device(named)
    if not isinstance(named, torch.device) or named.type not in ("cpu", "cuda"):
        hint = "move the micro-batches of a cpu loader to another device yourself"
        raise ValueError(f"device is {reprlib.repr(device)}; expected cpu or cuda; {hint}")
    if named.type == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (named.index or 0) >= found:
            raise UsageError(
                f"device is {named}, and torch finds {found} GPU{'s' * (found != 1)} here",
                hint="leave device out for the CPU; nvidia-smi and CUDA_VISIBLE_DEVICES say which GPUs there are",
            )
    return named


def end_of(end: Any, drop_last: Any) -> Any:
    """What becomes of an epoch's end: `end`, or what torch's word for it says.

    Raises:
        ValueError: no such end, or the two contradict each other.
        TypeError: `drop_last` is neither None, True nor False.

    """
    one_of("end", end, ("drop", "pad", "short", "wrap"))
    if drop_last is None:
        return end
    instance("drop_last", drop_last, bool, "True or False")
    if drop_last and end != "drop":
        raise ValueError(f"drop_last=True and end='{end}' contradict each other; give one of them")
    return "short" if end == "drop" and not drop_last else end


def resolve_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and world size: as given, else those of `torch.distributed`, else 0 of 1.

    Raises:
        ValueError: only one of the two is given, or the rank is not below the world size.
        UsageError: the environment says there are several processes, and `torch.distributed` is not initialised:
            every process would read everything.

    """
    if (rank is None) != (world_size is None):
        raise ValueError("give rank and world_size together, or neither")
    if rank is not None and world_size is not None:
        rank, world_size = whole("rank", rank), whole("world_size", world_size, least=1)
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is not in 0..{world_size - 1}")
        return rank, world_size
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    announced = os.environ.get("WORLD_SIZE", "1")
    if announced != "1":
        raise UsageError(
            f"WORLD_SIZE is {announced} but torch.distributed is not initialised: all processes would read the same",
            hint="call torch.distributed.init_process_group() first, or pass rank= and world_size=",
        )
    return 0, 1
