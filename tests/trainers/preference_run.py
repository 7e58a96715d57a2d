"""A tiny model through a PackedDPOTrainer, alone or under torchrun: ``torchrun ... preference_run.py CACHE TOKENIZER OUT BATCH``.

BATCH is pairs of a step on each rank. Rank 0 writes OUT/report.pt.
"""

import os
import sys
from pathlib import Path

import torch
from preference_runs import trainer_of
from trainer_runs import losses_of

from packer.load.trainers import PackedDPOTrainer, PreferenceData


def run(cache, tokenizer, out, batch_size):
    """Losses and weights of one pass over the pairs."""
    options = {"per_device_train_batch_size": batch_size, "num_train_epochs": 1, "learning_rate": 0.1}
    trainer = trainer_of(PackedDPOTrainer, out, PreferenceData(cache), tokenizer, **options)
    trainer.train()
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    return {"losses": losses_of(trainer), "weights": weights}


if __name__ == "__main__":
    out = Path(sys.argv[3])
    found = run(sys.argv[1], sys.argv[2], out, int(sys.argv[4]))
    if torch.distributed.get_rank() == 0:
        torch.save(found, out / "report.pt")
    torch.distributed.barrier()
    os._exit(0)  # as in tests/load/elastic_run.py
