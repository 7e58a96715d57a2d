"""Loaders of two processes that agree, or do not: ``torchrun ... agreement_run.py CACHE FOLDER``.

Each process writes what it found to a file of the folder. Barriers put the ranks in an order: rank 0 comes first.
"""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

from torch import distributed

from packer.errors import UsageError
from packer.load import PackedLoader

CACHE, FOLDER = sys.argv[1:]


def open_loader(**options):
    return PackedLoader(CACHE, global_batch_size=8, **options)


def indexes(steps):
    return [step.index for step in steps]


def in_turn(action):
    """What an action gives on each rank, or what it is refused with; rank 1 acts when rank 0 has."""
    found = None
    for turn in range(2):
        if turn == distributed.get_rank():
            try:
                found = action()
            except UsageError as error:
                found = error.message
        distributed.barrier()
    return found


def two_steps(loader):
    """What the first or the second step is refused with."""
    steps = iter(loader)
    first, second = (in_turn(lambda: next(steps, None)) for _ in range(2))
    return first if isinstance(first, str) else second


def on_rank_0(action):
    return action() if distributed.get_rank() == 0 else None


def main():
    distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = distributed.get_rank()
    found = {"alike": indexes(open_loader())}
    found["read alone"] = on_rank_0(lambda: indexes(open_loader(rank=0, world_size=1, seed=9)))
    found["seed"] = two_steps(open_loader(seed=rank))
    resumed = open_loader()
    if rank == 0:
        alone = open_loader(rank=0, world_size=1)
        steps = iter(alone)
        next(steps), next(steps)
        resumed.load_state_dict(alone.state_dict())
    found["resumed on one rank"] = two_steps(resumed)
    found["begun by one rank"] = on_rank_0(lambda: next(iter(open_loader(seed=9))).index)
    Path(FOLDER, f"{rank}.json").write_text(json.dumps(found), "utf-8")
    distributed.barrier()
    os._exit(0)  # as in elastic_run.py


if __name__ == "__main__":
    main()
