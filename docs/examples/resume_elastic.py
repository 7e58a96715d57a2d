"""Save the reader's state on one process, and resume on two: together they read what one would have read.

Run it in an empty folder. It needs torch.
"""

import json
from pathlib import Path

import packer
from packer import PackedLoader
from packer.starter import write_starter

write_starter(Path("first"))  # as `packer init first`
packer.build("first/recipe.yaml", "cache")


def loader(rank: int, world_size: int) -> PackedLoader:
    """Under torchrun, rank and world size are found without being named."""
    return PackedLoader("cache", micro_batch_size=1, global_batch_size=4, rank=rank, world_size=world_size)


# One process, without a stop.
expected = [sorted(step.block_ids.tolist()) for step in loader(0, 1)]

# One process, stopped after three steps.
first = loader(0, 1)
steps = iter(first)
found = [sorted(next(steps).block_ids.tolist()) for _ in range(3)]
Path("reader.json").write_text(json.dumps(first.state_dict()), "utf-8")

# Two processes continue. The state is the same for every rank.
ranks = [loader(rank, 2) for rank in range(2)]
for reader in ranks:
    reader.load_state_dict(json.loads(Path("reader.json").read_text("utf-8")))
for shares in zip(*ranks, strict=True):
    found.append(sorted(block for share in shares for block in share.block_ids.tolist()))
    print(f"step {shares[0].index}: rank 0 reads {shares[0].block_ids}, rank 1 reads {shares[1].block_ids}")

assert found == expected
