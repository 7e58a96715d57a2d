"""Lightning over a StepDataset in a data module: the plain loop's weights, the mean over tokens, and a resume that skips nothing."""

import logging

import pytest

pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: trainers are not tested")

import numpy as np
from small_blocks import small_cache
from tiny_models import documents_of, summed_loss_alone, tiny_model
from trainer_runs import adamw, loader_of, plain_loop, same_weights

from packer.load import EvaluationBatches, StepDataset
from packer.load.adapters import huggingface

# It advises, and uses what torch deprecated. What it asks of a StepDataset is asked in tests/load/test_checkpoints.py too.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def module_of(lightning):
    """What docs/how-to/trainers/lightning.md shows, of a model that is given."""

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.model = tiny_model()
            self.steps = []

        def configure_optimizers(self):
            return adamw(self.model)

        def training_step(self, step, index):
            self.steps.append(step.index)
            for micro_batch in step:
                self.manual_backward(
                    self.model(
                        **huggingface(micro_batch, self.model.config, num_items_in_batch=step.num_items_in_batch)
                    ).loss
                )
            self.optimizers().step()
            self.optimizers().zero_grad()

        def validation_step(self, arguments, index):
            self.log("val_loss", self.model(**arguments).loss, batch_size=1)

    return Module()


def data_of(lightning, config, validate):
    """What the page shows, of loaders that are given."""

    class Data(lightning.LightningDataModule):
        steps, held_out = None, ()

        def setup(self, stage):
            if self.steps is None:
                self.steps = StepDataset(loader_of())
                if validate is not None:
                    self.held_out = EvaluationBatches(validate(), lambda batch: huggingface(batch, config))

        def train_dataloader(self):
            return self.steps

        def val_dataloader(self):
            return self.held_out

        def state_dict(self):
            return self.steps.state_dict() if self.steps else {}

        def load_state_dict(self, state):
            self.setup("fit")
            self.steps.load_state_dict(state)

    return Data()


def fit(folder, *, resume=None, validate=None, epochs=2):
    lightning = pytest.importorskip("lightning", reason="LIGHTNING MISSING: its Trainer is not tested")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    every = lightning.pytorch.callbacks.ModelCheckpoint(
        dirpath=folder, filename="{step}", every_n_train_steps=1, save_top_k=-1
    )
    trainer = lightning.Trainer(
        default_root_dir=folder,
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[every],
        num_sanity_val_steps=0,
    )
    module = module_of(lightning)
    trainer.fit(module, data_of(lightning, module.model.config, validate), ckpt_path=resume)
    return module, trainer


def test_lightning_trains_the_plain_loop_and_goes_on_exactly(tmp_path):
    whole, _ = fit(tmp_path)
    _, model = plain_loop(loader_of(), 10)
    assert whole.steps == list(range(10))
    same_weights(whole.model, model)
    num_resumed = 0
    for step in (3, 5):  # within an epoch, and at its end
        resumed, _ = fit(tmp_path / "resumed", resume=tmp_path / f"step={step}.ckpt")
        assert resumed.steps == list(range(step, 10))
        same_weights(resumed.model, model)
        num_resumed += 1
    assert num_resumed == 2


def test_a_validation_is_the_mean_over_all_trained_tokens(tmp_path):
    cache = small_cache(9, 16)
    module, trainer = fit(
        tmp_path, epochs=1, validate=lambda: loader_of(cache, micro_batch_size=1, global_batch_size=4)
    )
    blocks = cache.blocks("train").read(np.arange(9))
    total = sum(summed_loss_alone(module.model, *document).item() for document in documents_of(blocks))
    assert float(trainer.callback_metrics["val_loss"]) == pytest.approx(total / int(blocks.num_trained.sum()), rel=1e-5)
