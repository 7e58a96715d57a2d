"""Lightning over a StepDataset in a data module: the plain loop's weights, the mean over tokens, and a resume that skips nothing."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: trainers are not tested")

import numpy as np
from small_blocks import small_cache
from tiny_models import documents_of, summed_loss_alone, tiny_model
from trainer_runs import adamw, loader_of, plain_loop, same_weights

# It advises, and uses what torch deprecated. What it asks of a StepDataset is asked in tests/load/test_checkpoints.py too.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "trainers" / "lightning.md"
HELD_OUT = small_cache(9, 16)


def fit(folder, *, resume=None, epochs=2):
    """The page's module and data, with a tiny model and small caches in the places of those that it names."""
    lightning = pytest.importorskip("lightning", reason="LIGHTNING MISSING: its Trainer is not tested")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    (classes, _, _) = PAGE.read_text("utf-8").partition("```python\n")[2].partition("\nmodule, data = ")
    page = {}
    exec(compile(classes, PAGE.name, "exec"), page)
    held_out = {"cache": HELD_OUT, "micro_batch_size": 1, "global_batch_size": 4}
    page["PackedLoader"] = lambda cache, split="train", **_: loader_of(**held_out if split == "eval" else {})
    page["AutoModelForCausalLM"] = SimpleNamespace(from_pretrained=lambda _: tiny_model())

    class Module(page["Module"]):
        def __init__(self):
            super().__init__()
            self.steps = []

        def configure_optimizers(self):
            return adamw(self.model)

        def training_step(self, step, index):
            self.steps.append(step.index)
            super().training_step(step, index)

    every = lightning.pytorch.callbacks.ModelCheckpoint(
        dirpath=folder, filename="{step}", every_n_train_steps=1, save_top_k=-1
    )
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
    trainer = lightning.Trainer(
        default_root_dir=folder, max_epochs=epochs, accelerator="cpu", callbacks=[every], **quiet
    )
    module = Module()
    trainer.fit(module, page["Data"](), ckpt_path=resume)
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
    module, trainer = fit(tmp_path, epochs=1)
    blocks = HELD_OUT.blocks("train").read(np.arange(9))
    total = sum(summed_loss_alone(module.model, *document).item() for document in documents_of(blocks))
    assert float(trainer.callback_metrics["val_loss"]) == pytest.approx(total / int(blocks.num_trained.sum()), rel=1e-5)
