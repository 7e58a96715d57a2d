"""Runs of tiny models through a Trainer, and the same by a loop written out.

Classes of trainers are looked up where they are used: importing them takes seconds, which collecting tests need not.
"""

from itertools import islice
from pathlib import Path

import torch
import transformers
from small_blocks import small_cache
from tiny_models import tiny_model

from packer.load import PackedLoader, trainers
from packer.load.adapters import huggingface

CACHE = small_cache(35, 16)


def loader_of(cache=CACHE, **options):
    sizes = {"micro_batch_size": 4, "global_batch_size": 8, "rank": 0, "world_size": 1, "seed": 3, "end": "pad"}
    return PackedLoader(cache, **{**sizes, **options})


def arguments(folder, kind=None, **options):
    quiet = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "logging_steps": 1, "save_strategy": "no"}
    plain = {"lr_scheduler_type": "constant", "max_grad_norm": 0.0, "num_train_epochs": 2}
    kind = kind or transformers.TrainingArguments
    return kind(output_dir=str(folder), **{**quiet, **plain, **options})


def at_step_ends(do):
    """A callback that gives the trainer's state to a function after each optimizer step."""

    class AtStepEnds(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **rest):
            do(state)

    return AtStepEnds()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def trainer_of(folder, loader=None, *, model=None, kind=None, eval_dataset=None, more=None, **options):
    model = model or tiny_model()
    kind = kind or trainers.PackedTrainer
    return kind(
        model=model,
        args=arguments(folder, **options),
        train_dataset=loader or loader_of(),
        eval_dataset=eval_dataset,
        **{"optimizers": (adamw(model), None), **(more or {})},
    )


def losses_of(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def plain_loop(loader, num_steps, model=None):
    """Losses of some steps and the model after them, by the loop that docs/how-to/train.md shows."""
    model = model or tiny_model()
    optimizer = adamw(model)
    losses = []
    for step in islice(loader.endless(), num_steps):
        loss = 0.0
        for micro_batch in step:
            part = model(**huggingface(micro_batch, model.config, num_items_in_batch=step.num_items_in_batch)).loss
            part.backward()
            loss += part.item()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
    loader.close()
    return losses, model


def same_weights(one, other, **tolerance):
    pairs = list(zip(one.state_dict().values(), other.state_dict().values(), strict=True))
    assert len(pairs) > 10
    for left, right in pairs:
        torch.testing.assert_close(left, right, **(tolerance or {"rtol": 0, "atol": 0}))


def checkpoints(folder):
    return sorted(Path(folder).glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
