"""transformers' Trainer over a loader: every optimizer step is the loader's step, before and after a resume."""

import inspect
import json
import warnings
from itertools import islice, pairwise
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: its Trainer is not tested")
pytest.importorskip("accelerate", reason="ACCELERATE MISSING: transformers' Trainer is not tested")

import numpy as np  # noqa: E402
from column_rows import COLUMNS, NAMES, check_micro_batch, rows_of  # noqa: E402
from small_blocks import small_cache  # noqa: E402
from small_documents import small_document_cache  # noqa: E402
from task_pages import python_of  # noqa: E402
from tiny_models import documents_of, summed_loss_alone, tiny_model  # noqa: E402
from trainer_runs import (  # noqa: E402
    CACHE,
    adamw,
    arguments,
    at_step_ends,
    checkpoints,
    loader_of,
    losses_of,
    plain_loop,
    same_weights,
    trainer_of,
)

from packer.errors import CheckError, InputError, UsageError  # noqa: E402
from packer.load import trainers  # noqa: E402
from packer.load.adapters import huggingface  # noqa: E402
from packer.load.reading import StepReader  # noqa: E402
from packer.pipeline.from_python import build  # noqa: E402

AS_LOGGED = {"abs": 5.1e-5} if transformers.__version__.startswith("4.") else {"rel": 1e-6}
"""How close a logged loss is to the loss: transformers 4 logs four digits."""

ORDERS = {
    "random": "random",
    "changing": lambda epoch: np.random.default_rng(epoch).permutation(35)[: (32, 20, 35)[epoch % 3]],
}
"""With one length of every epoch, and with 4, 3 and 5 steps of 8."""


def is_old():
    """Asked in tests alone: whoever looks at the class imports the trainer, which takes a second of every worker."""
    return not hasattr(transformers.Trainer, "_track_num_input_tokens")


class Seen:
    """What the model was given for each optimizer step, as ids [B·L] of micro-batches."""

    def __init__(self, model):
        self.steps, self._now = [], []
        self.callback = at_step_ends(self._end)
        model.register_forward_pre_hook(self._take, with_kwargs=True)

    def _take(self, model, args, kwargs):
        if model.training:
            self._now.append(kwargs)

    def _end(self, state):
        self.steps.append(self._now)
        self._now = []


# Steps


@pytest.mark.parametrize(
    ("order", "end"),
    [("changing", "short"), pytest.param("changing", "pad", marks=pytest.mark.slow), ("random", "drop")],
)
def test_training_is_the_plain_loop_over_the_loader(order, end, tmp_path):
    """Losses, weights and the micro-batches of every optimizer step, over the ends of epochs."""
    options = {"order": ORDERS[order], "end": end}
    model = tiny_model()
    seen = Seen(model)
    trainer = trainer_of(tmp_path, loader_of(**options), model=model, more={"callbacks": [seen.callback]})
    trainer.train()
    with loader_of(**options) as loader:
        steps = list(_steps(loader, epochs=2))
    assert len(seen.steps) == trainer.state.global_step == trainer.state.max_steps == len(steps)
    for given, step in zip(seen.steps, steps, strict=True):
        assert len(given) == len(step)
        for arguments_, micro_batch in zip(given, step, strict=True):
            expected = huggingface(micro_batch, None, num_items_in_batch=torch.tensor(step.num_items_in_batch))
            assert set(arguments_) == set(expected)
            for name, value in expected.items():
                assert torch.equal(torch.as_tensor(arguments_[name]), torch.as_tensor(value)), name
    losses, expected_model = plain_loop(loader_of(**options), len(steps))
    assert losses_of(trainer) == pytest.approx(losses, **AS_LOGGED)
    same_weights(trainer.model, expected_model, rtol=1e-12, atol=1e-14)


def _steps(loader, *, epochs):
    while loader.epoch < epochs:
        yield from loader


@pytest.mark.parametrize(
    "batching", ["token_budget", *(pytest.param(each, marks=pytest.mark.slow) for each in ("padded", "padding_free"))]
)
def test_documents_that_are_not_packed_train_and_are_evaluated_as_well(batching, tmp_path):
    """The number of micro-batches of a token budget is another one in every step."""
    cache, documents = small_document_cache(17)
    sizes = {"micro_batch_size": 40, "global_batch_size": 80} if batching == "token_budget" else {}
    trainer = trainer_of(
        tmp_path,
        loader_of(cache, batching=batching, **sizes),
        eval_dataset=loader_of(cache, batching=batching, **sizes),
        num_train_epochs=1,
    )
    alone = [
        (torch.from_numpy(document.input_ids.astype("int64")), torch.from_numpy(document.labels.astype("int64")))
        for document in documents
    ]
    expected = sum(summed_loss_alone(trainer.model, *document).item() for document in alone)
    num_trained = sum(int((labels[1:] != -100).sum()) for _, labels in alone)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected / num_trained, rel=1e-5)
    trainer.train()
    losses, model = plain_loop(loader_of(cache, batching=batching, **sizes), trainer.state.global_step)
    assert losses_of(trainer) == pytest.approx(losses, **AS_LOGGED)
    assert len(losses) > 1
    same_weights(trainer.model, model, rtol=1e-12, atol=1e-14)


# How many steps


@pytest.mark.parametrize(
    ("options", "num_steps"),
    [({"num_train_epochs": 1.2}, 6), ({"max_steps": 7}, 7)],
)
def test_a_training_ends_after_its_epochs_or_its_steps(options, num_steps, tmp_path):
    trainer = trainer_of(tmp_path, **options)
    trainer.train()
    assert trainer.state.global_step == trainer.state.max_steps == num_steps
    assert trainer._reader.counters.steps == num_steps


def test_the_callbacks_of_an_epoch_come_where_an_epoch_of_blocks_ends(tmp_path):
    """Epochs of 4 and 3 steps: evaluations and checkpoints stand at their ends."""
    more = {"save_strategy": "epoch", "eval_strategy": "epoch", "num_train_epochs": 2}
    trainer = trainer_of(
        tmp_path, loader_of(order=ORDERS["changing"]), eval_dataset=loader_of(small_cache(9, 16)), **more
    )
    trainer.train()
    evaluated = [(entry["step"], entry["epoch"]) for entry in trainer.state.log_history if "eval_loss" in entry]
    assert evaluated == [(4, 1.0), (7, 2.0)]
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-4", "checkpoint-7"]


# Checkpoints


@pytest.mark.parametrize(
    ("order", "saving", "step"),
    [
        pytest.param("random", {"save_strategy": "steps", "save_steps": 7}, 7, marks=pytest.mark.slow),
        ("changing", {"save_strategy": "epoch"}, 4),
    ],
)
def test_a_resumed_training_is_the_uninterrupted_one_bit_by_bit(order, saving, step, tmp_path):
    """From within an epoch and from its end, with dropout, so that random numbers go on too."""
    options = {"order": ORDERS[order]}
    dropout = {"attention_dropout": 0.2}
    whole = trainer_of(tmp_path, loader_of(**options), model=tiny_model(**dropout), **saving)
    whole.train()
    again = {"restore_callback_states_from_checkpoint": order == "random"}
    resumed = trainer_of(tmp_path / "resumed", loader_of(**options), model=tiny_model(seed=9, **dropout), **again)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert resumed.state.max_steps == resumed.state.global_step == whole.state.global_step > step
    assert losses_of(resumed) == losses_of(whole)
    same_weights(resumed.model, whole.model)


@pytest.mark.parametrize(
    ("epochs", "order"), [(0.6, "changing"), *(pytest.param(1.6, kind, marks=pytest.mark.slow) for kind in ORDERS)]
)
def test_a_training_of_part_of_an_epoch_ends_where_it_was_to_end_from_every_checkpoint(epochs, order, tmp_path):
    options = {"order": ORDERS[order], "end": "pad"}
    whole = trainer_of(tmp_path, loader_of(**options), num_train_epochs=epochs, save_strategy="steps", save_steps=1)
    whole.train()
    folders = checkpoints(tmp_path)
    assert len(folders) == whole.state.max_steps >= 2
    for folder in folders:
        resumed = trainer_of(tmp_path / "resumed", loader_of(**options), num_train_epochs=epochs)
        resumed.train(resume_from_checkpoint=str(folder))
        assert resumed.state.max_steps == resumed.state.global_step == whole.state.global_step


def test_a_training_resumes_with_another_micro_batch_and_reads_no_step_again(tmp_path, monkeypatch):
    whole = trainer_of(tmp_path, save_strategy="steps", save_steps=3, num_train_epochs=1)
    whole.train()
    steps, first_of = StepReader.steps, []

    def recorded(self, plans, state, **options):
        first_of.append(state.counters.steps)
        return steps(self, plans, state, **options)

    monkeypatch.setattr(StepReader, "steps", recorded)
    model = tiny_model(seed=9)
    seen = Seen(model)
    loader = loader_of(micro_batch_size=2)
    more = {"callbacks": [seen.callback]}
    resumed = trainer_of(tmp_path / "resumed", loader, model=model, more=more, num_train_epochs=1)
    resumed.train(resume_from_checkpoint=str(checkpoints(tmp_path)[0]))
    assert [len(step) for step in seen.steps] == [4, 4]
    assert losses_of(resumed) == pytest.approx(losses_of(whole), **AS_LOGGED)
    same_weights(resumed.model, whole.model, rtol=1e-5, atol=1e-7)
    assert min(first_of) == 3


def test_the_last_checkpoint_of_a_folder_is_found_and_a_finished_training_stays_finished(tmp_path):
    trainer_of(tmp_path, save_strategy="steps", save_steps=5, num_train_epochs=1).train()
    for epochs, num_more in ((1, 0), (2, 5)):
        trainer = trainer_of(tmp_path, num_train_epochs=epochs)
        trainer.train(resume_from_checkpoint=True)
        assert trainer.state.global_step == 5 + num_more
        assert trainer._reader.counters.rows == 35 * epochs


def test_training_again_begins_where_the_loader_stood(tmp_path):
    trainer = trainer_of(tmp_path, num_train_epochs=1)
    trainer.train()
    first = losses_of(trainer)
    trainer.train()
    assert trainer._reader.counters.rows == 35
    assert len(first) == len(losses_of(trainer)) == 5


def test_a_second_stage_goes_on_where_the_loader_of_the_first_stood_and_resumes_in_a_new_process(tmp_path):
    """One more epoch from the second on; what resumes has a loader that stands at the beginning of all."""
    loader = loader_of()
    assert len(list(loader)) == 5
    whole = trainer_of(tmp_path, loader, num_train_epochs=1, save_strategy="steps", save_steps=2)
    whole.train()
    assert [entry["epoch"] for entry in whole.state.log_history if "loss" in entry][-1] == 2.0
    resumed = trainer_of(tmp_path / "resumed", loader_of(), model=tiny_model(seed=9), num_train_epochs=1)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert whole.state.max_steps == resumed.state.max_steps == resumed.state.global_step == 5
    assert losses_of(resumed) == losses_of(whole)
    same_weights(resumed.model, whole.model)


def test_a_checkpoint_of_other_data_or_of_another_trainer_is_refused(tmp_path):
    trainer_of(tmp_path, save_strategy="steps", save_steps=2, max_steps=2).train()
    folder = tmp_path / "checkpoint-2"
    other = loader_of(small_cache(35, 16, fingerprint="beef"))
    with pytest.raises(CheckError, match="fingerprint"):
        trainer_of(tmp_path / "other", other).train(resume_from_checkpoint=str(folder))
    saved = json.loads((folder / "trainer_state.json").read_text("utf-8"))
    del saved["stateful_callbacks"]["packer"]
    (folder / "trainer_state.json").write_text(json.dumps(saved), "utf-8")
    with pytest.raises(CheckError, match="no state of a packer reader"):
        trainer_of(tmp_path / "other").train(resume_from_checkpoint=str(folder))
    with pytest.raises(InputError, match="no checkpoint"):
        trainer_of(tmp_path / "empty").train(resume_from_checkpoint=True)
    with pytest.raises(CheckError, match=r"no trainer_state\.json"):
        trainer_of(tmp_path / "other").train(resume_from_checkpoint=str(tmp_path / "nowhere"))


def test_a_checkpoint_that_was_cut_off_or_edited_is_one_error_with_a_way_out(tmp_path):
    from packer.load.trainers.huggingface import saved_reader

    reader = {"reader": {}, "beginning": {"epoch": 0, "steps": 3}, "taken": 1}
    file = tmp_path / "trainer_state.json"
    whole = json.dumps({"epoch": 1.0, "global_step": 3, "max_steps": 10, "stateful_callbacks": {"packer": reader}})
    file.write_text(whole, "utf-8")
    assert saved_reader(tmp_path) == reader
    damaged = [whole[:length].encode() for length in range(0, len(whole), 7)]
    damaged += [b"[]", b"null", b'{"x": 1}', b"\xff", b"[" * 100_000, b'{"stateful_callbacks": []}']
    for change in (
        {"beginning": 3},
        {"beginning": {"epoch": "x", "steps": 0}},
        {"taken": -1},
        {"reader": []},
        {"y": 0},
    ):
        damaged.append(json.dumps({"stateful_callbacks": {"packer": reader | change}}).encode())
    for content in damaged:
        file.write_bytes(content)
        with pytest.raises(CheckError, match=r"trainer_state\.json (cannot be read|has no state)") as caught:
            saved_reader(tmp_path)
        assert caught.value.hint


# Logs and evaluation


def test_logs_say_how_far_the_data_was_read(tmp_path):
    trainer = trainer_of(tmp_path, **{} if is_old() else {"include_num_input_tokens_seen": "non_padding"})
    trainer.train()
    entries = [entry for entry in trainer.state.log_history if "loss" in entry]
    with loader_of() as loader:
        steps = list(_steps(loader, epochs=2))
    for entry, step, blocks in zip(entries, steps, [8, 16, 24, 32, 35, 43, 51, 59, 67, 70], strict=True):
        assert entry["coverage"] == step.coverage == min((blocks - 35 * step.epoch) / 35, 1)
        assert entry["epoch"] == pytest.approx(blocks / 35)
        assert entry["blocks"] == blocks
        assert entry["global_batch_size"] == step.size == (3 if blocks % 35 == 0 else 8)
    for name, of_step in (("tokens", "num_tokens"), ("trained_tokens", "num_items_in_batch")):
        assert entries[-1][name] == sum(getattr(step, of_step) for step in steps)
    assert is_old() or entries[-1]["num_input_tokens_seen"] == entries[-1]["tokens"]
    assert len(entries) == 10 and all(one["tokens"] < other["tokens"] for one, other in pairwise(entries))


@pytest.mark.skipif("not is_old()", reason="newer ones count a step as it is")
def test_counting_input_tokens_is_refused_where_the_trainer_would_look_into_a_step(tmp_path):
    with pytest.raises(UsageError, match="include_num_input_tokens_seen under transformers"):
        trainer_of(tmp_path, include_num_input_tokens_seen="non_padding")


def test_an_evaluation_is_the_mean_over_all_trained_tokens(tmp_path):
    """With a last step of padding rows, and twice, as every evaluation begins anew."""
    cache = small_cache(9, 16)
    trainer = trainer_of(tmp_path, eval_dataset=loader_of(cache, micro_batch_size=1, global_batch_size=4))
    blocks = cache.blocks("train").read(np.arange(9))
    total = sum(summed_loss_alone(trainer.model, *document).item() for document in documents_of(blocks))
    expected = total / int(blocks.num_trained.sum())
    for _ in range(2):
        metrics = trainer.evaluate()
        assert metrics["eval_loss"] == pytest.approx(expected, rel=1e-5)


def test_an_evaluation_after_one_that_was_cut_short_is_whole(tmp_path, monkeypatch):
    trainer = trainer_of(tmp_path, eval_dataset=loader_of(small_cache(9, 16), micro_batch_size=1, global_batch_size=2))
    expected = trainer.evaluate()["eval_loss"]
    step, calls = trainer.prediction_step, []

    def cut_short(*args, **options):
        calls.append(args)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return step(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "prediction_step", cut_short)
        with pytest.raises(KeyboardInterrupt):
            trainer.evaluate()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-6)


def test_predictions_are_those_of_the_model_block_by_block(tmp_path):
    cache = small_cache(9, 16)
    trainer = trainer_of(tmp_path)
    rows = {"micro_batch_size": 3, "global_batch_size": 3, "order": "sequential"}
    found = trainer.predict(loader_of(cache, **rows))
    with loader_of(cache, **rows) as loader:
        batches = [micro_batch for step in loader for micro_batch in step]
    with torch.no_grad():
        expected = torch.cat([trainer.model(**huggingface(batch, trainer.model.config)).logits for batch in batches])
    assert len(batches) == 3
    np.testing.assert_allclose(found.predictions, expected.numpy(), rtol=1e-12)
    assert found.label_ids.tolist() == torch.cat([batch["labels"] for batch in batches]).tolist()
    assert found.metrics["test_loss"] == trainer.evaluate(loader_of(cache, **rows))["eval_loss"]


def test_evaluations_go_by_name_and_other_datasets_their_own_way(tmp_path):
    cache = small_cache(9, 16)
    named = {"one": loader_of(cache), "two": loader_of()}
    trainer = trainer_of(tmp_path, eval_dataset=named)
    metrics = trainer.evaluate()
    assert metrics["eval_one_loss"] != metrics["eval_two_loss"]
    rows = [{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor([-100, 2, 3])}] * 2
    assert trainer.evaluate(rows)["eval_loss"] > 0


def test_an_evaluation_that_would_leave_blocks_out_is_refused(tmp_path):
    with pytest.raises(UsageError, match="one pass") as caught:
        trainer_of(tmp_path, eval_dataset=loader_of(end="drop")).evaluate()
    assert "end='short'" in caught.value.hint


# Refusals


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({"gradient_accumulation_steps": 4}, None, "gradient_accumulation_steps=4"),
        ({"auto_find_batch_size": True}, None, "auto_find_batch_size"),
        ({}, lambda args, loader: setattr(args, "_n_gpu", 2), "DataParallel over 2"),
    ],
)
def test_settings_under_which_a_step_would_be_another_are_refused(options, change, message, tmp_path):
    args, loader = arguments(tmp_path, **options), loader_of()
    if change:
        change(args, loader)
    with pytest.raises(UsageError, match=message) as caught:
        trainers.PackedTrainer(model=tiny_model(), args=args, train_dataset=loader)
    assert caught.value.hint


def test_a_loader_of_other_ranks_is_refused(tmp_path):
    loader = loader_of(rank=1, world_size=2)
    with pytest.raises(UsageError, match="for 2 of 1 ranks"):
        trainer_of(tmp_path, loader)


def test_a_model_that_takes_no_number_of_items_is_refused_unless_the_loss_is_given(tmp_path):
    class Closed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = tiny_model()

        def forward(self, input_ids, position_ids, labels=None):
            return self.inner(input_ids=input_ids, position_ids=position_ids, use_cache=False)

    def adapter(micro_batch):
        return {name: micro_batch[name] for name in ("input_ids", "position_ids", "labels")}

    with pytest.raises(UsageError, match="no num_items_in_batch"):
        trainer_of(tmp_path, model=Closed())
    model = Closed()
    trainer = trainers.PackedTrainer(
        model=model,
        args=arguments(tmp_path, max_steps=4),
        train_dataset=loader_of(),
        adapter=adapter,
        compute_loss_func=summed,
        optimizers=(adamw(model), None),
    )
    trainer.train()
    losses, _ = plain_loop(loader_of(), 4)
    assert losses_of(trainer) == pytest.approx(losses, **AS_LOGGED)


def summed(outputs, labels, num_items_in_batch):
    logits, targets = outputs.logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten()
    return torch.nn.functional.cross_entropy(logits, targets, reduction="sum") / num_items_in_batch


def test_a_subclass_has_the_loaders_columns_beside_a_models_arguments(tmp_path, starter):
    rows, seen = rows_of([7, 12, 16, 5, 9, 3, 15]), []
    build(
        rows,
        tmp_path / "cache",
        jobs=1,
        progress=None,
        tokenizer=starter / "tokenizer",
        pack={"block_len": 16},
        **COLUMNS,
    )

    class Reading(trainers.PackedTrainer):
        def compute_loss(self, model, inputs, *args, **options):
            seen.extend(check_micro_batch({**inputs, "columns": inputs["columns"]}, rows))
            return super().compute_loss(model, inputs, *args, **options)

    sizes = {"micro_batch_size": 2, "global_batch_size": 4, "end": "short"}
    losses = []
    for kind, names in ((Reading, NAMES), (trainers.PackedTrainer, NAMES), (trainers.PackedTrainer, [])):
        loaders = [loader_of(tmp_path / "cache", columns=names, **sizes) for _ in range(2)]
        trainer = trainer_of(
            tmp_path,
            loaders[0],
            kind=kind,
            model=tiny_model(vocab_size=4096),
            eval_dataset=loaders[1],
            num_train_epochs=1,
        )
        trainer.train()
        losses.append((losses_of(trainer), trainer.evaluate()["eval_loss"]))
    assert losses[0] == losses[1] == losses[2]
    assert sorted(seen) == sorted(2 * list(set(seen))) and len(set(seen)) == sum(len(row["input_ids"]) for row in rows)


def test_the_trainer_of_the_page_on_columns_takes_the_loss_of_each_token_times_its_weight(tmp_path, starter):
    rows = rows_of([7, 12, 16, 5, 9, 3, 15])
    for number, row in enumerate(rows):
        row["loss_weights"] = [((3 * t + number) % 5) / 2 for t in range(len(row["input_ids"]))]
    carried = {"columns": {"loss_weights": None}, "token_columns": {"loss_weights": {"kind": "float32"}}}
    own = {"jobs": 1, "progress": None, "tokenizer": starter / "tokenizer", "pack": {"block_len": 16}}
    build(rows, tmp_path / "cache", **own, **carried)
    names: dict[str, Any] = {}
    exec(python_of("columns.md")[-1].partition("loader = ")[0], names)
    model, total, num_trained = tiny_model(vocab_size=4096), 0.0, 0
    for row in rows:
        ids, labels = (torch.tensor(row[name]) for name in ("input_ids", "labels"))
        logits = model(input_ids=ids[None], use_cache=False).logits[0]
        for t in torch.nonzero(labels != -100).flatten().tolist():
            total -= row["loss_weights"][t] * logits[t - 1].log_softmax(-1)[ids[t]].item()
            num_trained += 1

    def opened():
        sizes = {"micro_batch_size": 2, "global_batch_size": 8, "end": "short"}
        return loader_of(tmp_path / "cache", columns=["loss_weights"], **sizes)

    trainer = trainer_of(tmp_path, opened(), kind=names["WeightedTrainer"], model=model, num_train_epochs=1)
    assert trainer.evaluate(opened())["eval_loss"] == pytest.approx(total / num_trained, rel=1e-5)
    trainer.train()
    assert losses_of(trainer) == pytest.approx([total / num_trained], rel=1e-4)


def mamba():
    return transformers.MambaForCausalLM(
        transformers.MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, state_size=8)
    )


def bart():
    """It makes positions of its own, which go on from document to document."""
    if "kwargs" not in inspect.signature(transformers.BartForCausalLM.forward).parameters:
        pytest.skip("this version's Bart takes no sequence lengths")
    sizes = {"decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 16, "max_position_embeddings": 64}
    return transformers.BartForCausalLM(
        transformers.BartConfig(vocab_size=50, d_model=16, is_encoder_decoder=False, is_decoder=True, **sizes)
    )


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (mamba, r"MambaForCausalLM lets packed .* other: |seq_idx without"),
        (bart, r"BartForCausalLM gets packed documents wrong: a quarter of the tokens"),
    ],
)
def test_a_model_to_which_packed_documents_are_not_what_they_are_alone_is_refused_before_the_first_step(
    tmp_path, make, said
):
    torch.manual_seed(0)
    model = make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for options in ({}, {"bf16": True}):
        trainer = trainer_of(tmp_path, model=model, more={"compute_loss_func": summed}, **options)
        with pytest.raises(UsageError, match=said) as caught:
            trainer.train()
        assert "padded" in caught.value.hint
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    cache, _ = small_document_cache(17)
    padded = loader_of(cache, batching="padded")
    trainer_of(tmp_path, padded, model=model, more={"compute_loss_func": summed}, max_steps=1).train()


def test_a_model_that_is_not_the_caches_is_refused_or_warned_of_before_the_first_step(tmp_path):
    with pytest.raises(UsageError, match="has 20 embeddings, and the cache has token 4") as caught:
        trainer_of(tmp_path, model=tiny_model(vocab_size=20)).train()
    assert "tokenizer of this model" in caught.value.hint
    with pytest.warns(UserWarning, match="has 101 embeddings, and the tokenizer of the cache only 50 tokens"):
        trainer_of(tmp_path, model=tiny_model(vocab_size=101), max_steps=1).train()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*embeddings")
        trainer_of(tmp_path, model=tiny_model(vocab_size=64), max_steps=1).train()


def test_rounding_in_mixed_precision_is_no_reason_to_refuse(tmp_path):
    trainer = trainer_of(tmp_path, model=tiny_model(dtype=torch.float32), max_steps=1, bf16=True)
    trainer.train()
    assert len(losses_of(trainer)) == 1


def test_a_model_that_needs_masks_trains_on_packed_documents_as_on_single_ones(tmp_path):
    sizes = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
    torch.manual_seed(0)
    config = transformers.GptOssConfig(**sizes, **heads, sliding_window=3, attn_implementation="eager")
    model = transformers.GptOssForCausalLM(config)
    loader = loader_of()
    (step,) = islice(loader_of(), 1)
    documents = documents_of(CACHE.blocks("train").read(step.block_ids))
    with torch.no_grad():
        alone = sum(summed_loss_alone(model, *document).item() for document in documents)
    trainer = trainer_of(tmp_path, loader, model=model, max_steps=1)
    trainer.train()
    assert losses_of(trainer)[0] == pytest.approx(alone / step.num_items_in_batch, abs=6e-5)
