"""A tiny model through a PackedTrainer, alone or under torchrun: ``torchrun ... trainer_run.py SETTINGS.json``.

Settings: ``output_dir``, ``report`` (a file rank 0 writes), ``loader`` (options), ``args`` (of the TrainingArguments), and ``resume``, a
checkpoint or null.
"""

import json
import os
import sys
from pathlib import Path

import torch
from trainer_runs import arguments, loader_of, losses_of, trainer_of


class Blocks:
    """Numbers of the blocks of each step, over all ranks."""

    def __init__(self, trainer):
        self.steps = []
        inner = trainer.training_step

        def training_step(model, inputs, *rest, **options):
            self.steps.append(gathered(inputs.block_ids.tolist()))
            return inner(model, inputs, *rest, **options)

        trainer.training_step = training_step


def gathered(values):
    if not torch.distributed.is_initialized():
        return values
    parts = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(parts, values)
    return [value for part in parts for value in part]


def run(settings):
    """What a training comes to."""
    arguments(settings["output_dir"], **settings["args"])  # initialises torch.distributed, before a loader asks for it
    ranks = {"rank": None, "world_size": None}
    loader = loader_of(**ranks, **settings["loader"])
    held_out = loader_of(**ranks, **settings["loader"])
    trainer = trainer_of(settings["output_dir"], loader, eval_dataset=held_out, **settings["args"])
    blocks = Blocks(trainer)
    trainer.train(resume_from_checkpoint=settings["resume"])
    evaluated = trainer.evaluate()["eval_loss"]
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    return {"losses": losses_of(trainer), "blocks": blocks.steps, "eval_loss": evaluated, "weights": weights}


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    found = run(given)
    if torch.distributed.get_rank() == 0:
        torch.save(found, given["report"])
    torch.distributed.barrier()
    os._exit(0)  # as in tests/load/elastic_run.py
