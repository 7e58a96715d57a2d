"""TRL's SFTTrainer over a loader, and over a dataset of a cache's blocks: what the model receives is packer's."""

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: trainers are not tested")
trl = pytest.importorskip("trl", reason="TRL MISSING: its SFTTrainer is not tested")
datasets = pytest.importorskip("datasets", reason="DATASETS MISSING: TRL's SFTTrainer is not tested")

from small_blocks import small_cache  # noqa: E402
from tiny_models import tiny_model  # noqa: E402
from trainer_runs import (  # noqa: E402
    CACHE,
    adamw,
    arguments,
    loader_of,
    losses_of,
    plain_loop,
    same_weights,
    trainer_of,
)

from packer.errors import UsageError  # noqa: E402
from packer.load import PackedDataset, collate, trainers  # noqa: E402
from packer.load.adapters import huggingface  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL uses what transformers deprecated


@pytest.fixture(scope="module")
def tokenizer(starter):
    """An SFTTrainer wants one, and names its padding in the model's configuration."""
    return transformers.PreTrainedTokenizerFast.from_pretrained(starter / "tokenizer")


class Received:
    """What the model was given in training."""

    def __init__(self, model):
        self.given = []
        model.register_forward_pre_hook(self._take, with_kwargs=True)

    def _take(self, model, args, kwargs):
        if model.training:
            self.given.append(kwargs)


def sft(folder, tokenizer, loader=None, *, more=None, **options):
    more = {"processing_class": tokenizer, **(more or {})}
    model = tiny_model()
    args = arguments(folder, trl.SFTConfig, max_length=4, gradient_checkpointing=False, bf16=False, **options)
    return trainers.PackedSFTTrainer(
        model=model, args=args, train_dataset=loader or loader_of(), optimizers=(adamw(model), None), **more
    )


def test_the_model_receives_the_loaders_tensors_and_trains_as_a_plain_loop(tokenizer, tmp_path):
    """Nothing is rendered, tokenized, cut to max_length or collated again; losses and weights are the plain loop's."""
    trainer = sft(tmp_path, tokenizer, loader_of())
    received = Received(trainer.model)
    trainer.train()
    with loader_of() as loader:
        expected = [micro_batch for epoch in range(2) for step in loader for micro_batch in step]
    assert len(received.given) == len(expected) == 20
    for given, micro_batch in zip(received.given, expected, strict=True):
        for name, value in huggingface(micro_batch, None).items():
            assert torch.equal(torch.as_tensor(given[name]), torch.as_tensor(value)), name
        assert set(given) - set(huggingface(micro_batch, None)) == {"fused_lm_head"}
    losses, model = plain_loop(loader_of(), trainer.state.global_step)
    assert losses_of(trainer) == pytest.approx(losses, rel=1e-5)
    same_weights(trainer.model, model, rtol=1e-3, atol=1e-4)  # losses are float32 in one and float64 in the other
    assert {"mean_token_accuracy", "coverage", "trained_tokens"} <= set(trainer.state.log_history[0])


def test_an_sft_evaluation_is_that_of_the_trainer(tokenizer, tmp_path):
    def held_out():
        return loader_of(small_cache(9, 16))

    expected = trainer_of(tmp_path, eval_dataset=held_out()).evaluate()["eval_loss"]
    for made in (held_out(), {"named": held_out()}):
        trainer = sft(tmp_path, tokenizer, more={"eval_dataset": made})
        metrics = trainer.evaluate()
        found = [value for name, value in metrics.items() if name.endswith("_loss")]
        assert found == [pytest.approx(expected, rel=1e-5)]
        assert trainer.evaluate(held_out())["eval_loss"] == pytest.approx(expected, rel=1e-5)
        assert trainer.evaluate({"other": held_out()})["eval_other_loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({"packing": True}, {}),
        ({"padding_free": True}, {}),
        ({"assistant_only_loss": True}, {}),
        ({"completion_only_loss": True}, {}),
        ({}, {"formatting_func": str}),
    ],
)
def test_what_asks_an_sft_trainer_to_prepare_data_is_refused(options, more, tokenizer, tmp_path):
    with pytest.raises(UsageError, match=next(iter({**options, **more}))):
        sft(tmp_path, tokenizer, more=more, **options)


# Without packer's loader: blocks as a dataset


def test_an_sft_trainer_by_itself_takes_blocks_as_a_prepared_dataset(tokenizer, tmp_path):
    """Columns input_ids, labels and seq_lengths, `padding_free`, `max_length=None` and no preparation: packer's tensors."""
    blocks = PackedDataset(CACHE)
    columns = ("input_ids", "labels", "seq_lengths")
    data = datasets.Dataset.from_list([{name: blocks[row][name].tolist() for name in columns} for row in range(8)])
    args = arguments(
        tmp_path,
        trl.SFTConfig,
        max_length=None,
        padding_free=True,
        dataset_kwargs={"skip_prepare_dataset": True},
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        gradient_checkpointing=False,
        bf16=False,
        train_sampling_strategy="sequential",
        num_train_epochs=1,
    )
    model = tiny_model()
    trainer = trl.SFTTrainer(
        model=model, args=args, train_dataset=data, processing_class=tokenizer, optimizers=(adamw(model), None)
    )
    received = Received(model)
    trainer.train()
    expected = [collate(blocks.__getitems__([row, row + 1])) for row in (0, 2, 4, 6)]
    for given, micro_batch in zip(received.given, expected, strict=True):
        for name, value in micro_batch.items():
            assert torch.equal(torch.as_tensor(given[name]), torch.as_tensor(value)), name
    losses, _ = plain_loop(
        loader_of(small_cache(35, 16), order="sequential", end="drop", micro_batch_size=2, global_batch_size=4), 2
    )
    assert losses_of(trainer) == pytest.approx(losses, rel=1e-5)
