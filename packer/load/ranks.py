"""Rank of this process among the training processes."""

import os
from multiprocessing.context import get_spawning_popen

import torch

from packer.errors import UsageError
from packer.load.arguments import check_integer


def resolve_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return rank and world size: as given, else those of `torch.distributed`, else 0 of 1.

    Raises:
        ValueError: only one of the two is given, or the rank is not below the world size.
        UsageError: the environment announces several processes, but `torch.distributed` is not initialized:
            every process would read everything.
    """
    if (rank is None) != (world_size is None):
        raise ValueError("pass rank and world_size together, or neither")
    if rank is not None and world_size is not None:
        rank, world_size = check_integer("rank", rank), check_integer("world_size", world_size, minimum=1)
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is not in 0..{world_size - 1}")
        return rank, world_size
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    announced = os.environ.get("WORLD_SIZE", "1")
    if announced != "1":
        raise UsageError(
            f"WORLD_SIZE is {announced} but torch.distributed is not initialized: all processes would read the same",
            hint="call torch.distributed.init_process_group() first, or pass rank= and world_size=",
        )
    return 0, 1


def ranks_when_spawning(rank: int, world_size: int) -> dict[str, int]:
    """Return what a process that is being spawned must be told; nothing for any other pickle.

    A worker of a DataLoader has no `torch.distributed` unless it was forked. Left to itself, it would take itself for
    the only rank, and every rank would read everything.
    """
    return {} if get_spawning_popen() is None else {"rank": rank, "world_size": world_size}
