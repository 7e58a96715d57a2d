"""TRL's DPOTrainer, RewardTrainer and KTOTrainer over a cache: batches, losses and gradients are those of TRL's own preparation."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

transformers = pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: trainers are not tested")
trl = pytest.importorskip("trl", reason="TRL MISSING: its DPO and KTO trainers are not tested")
datasets = pytest.importorskip("datasets", reason="DATASETS MISSING: TRL's trainers are not tested")

from preference_rows import built, long_pair, pair, rated, without_newlines  # noqa: E402
from preference_runs import (  # noqa: E402
    batches_of,
    loss_and_gradients,
    per_side,
    reward_trainer_of,
    same_batches,
    same_losses,
    trainer_of,
)

from packer.errors import UsageError  # noqa: E402
from packer.load import trainers  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL uses what transformers deprecated

PAIRS = [pair(number) for number in range(8)]
RATED = [rated(number) for number in range(8)]


@pytest.fixture(scope="module")
def llama_like(starter, tmp_path_factory):
    """A tokenizer under whose template TRL prepares pairs as they will be generated."""
    return without_newlines(starter / "tokenizer", tmp_path_factory.mktemp("tokenizers") / "llama-like")


@pytest.fixture(scope="module")
def pairs(llama_like, tmp_path_factory):
    return built(tmp_path_factory.mktemp("pairs") / "cache", PAIRS, llama_like)


@pytest.fixture(scope="module")
def answers(llama_like, tmp_path_factory):
    return built(tmp_path_factory.mktemp("answers") / "cache", RATED, llama_like)


def test_batches_losses_and_gradients_are_those_of_trls_own_preparation(pairs, llama_like, tmp_path):
    ours = trainer_of(trainers.PackedDPOTrainer, tmp_path, trainers.PreferenceData(pairs), llama_like)
    own = trainer_of(trl.DPOTrainer, tmp_path, datasets.Dataset.from_list(PAIRS), llama_like)
    found, expected = batches_of(ours), batches_of(own)
    same_batches(found, expected)
    same_losses(ours, own, found[0], expected[0])


@pytest.mark.slow  # what TRL does otherwise
def test_an_answer_of_several_turns_learns_those_of_the_assistant_alone(llama_like, tmp_path):
    """TRL learns all that stands behind the prompt, the user's turn too."""
    rows = [long_pair(number) for number in range(4)]
    cache = built(tmp_path / "cache", rows, llama_like)
    (found,) = batches_of(trainer_of(trainers.PackedDPOTrainer, tmp_path, trainers.PreferenceData(cache), llama_like))
    (own,) = batches_of(trainer_of(trl.DPOTrainer, tmp_path, datasets.Dataset.from_list(rows), llama_like))
    assert torch.equal(found["input_ids"], own["input_ids"])
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(llama_like)
    only_trl = (own["completion_mask"] - found["completion_mask"]).bool()
    assert (own["completion_mask"] >= found["completion_mask"]).all()
    for row in range(4):
        beside = tokenizer.decode(own["input_ids"][row][only_trl[row]])
        assert beside == "<|im_start|>user\nSure?<|im_end|><|im_start|>assistant\n"
    assert not only_trl[4:].any()


@pytest.mark.slow  # what TRL does otherwise
def test_what_a_template_writes_behind_a_turn_is_learned_by_trl_and_not_here(starter, tmp_path):
    """The newline behind <|im_end|>, which a server never sees: generation has stopped before it."""
    tokenizer = starter / "tokenizer"
    cache = built(tmp_path / "cache", PAIRS, tokenizer)
    found = batches_of(trainer_of(trainers.PackedDPOTrainer, tmp_path, trainers.PreferenceData(cache), tokenizer))
    own = batches_of(trainer_of(trl.DPOTrainer, tmp_path, datasets.Dataset.from_list(PAIRS), tokenizer))
    newline = transformers.PreTrainedTokenizerFast.from_pretrained(tokenizer).convert_tokens_to_ids("Ċ")
    for ours, theirs in zip(found, own, strict=True):
        for row in range(len(ours["input_ids"])):
            ids, longer = (batch["input_ids"][row][batch["attention_mask"][row].bool()] for batch in (ours, theirs))
            assert longer.tolist() == [*ids.tolist(), newline]
            assert theirs["completion_mask"][row][len(ids)] == 1


@pytest.mark.parametrize("loss_type", ["kto", pytest.param("apo_zero_unpaired", marks=pytest.mark.slow)])
def test_kto_batches_losses_and_gradients_are_those_of_trls_own_preparation(answers, llama_like, tmp_path, loss_type):
    options = {"loss_type": loss_type}
    ours = trainer_of(trainers.PackedKTOTrainer, tmp_path, trainers.PreferenceData(answers), llama_like, **options)
    own = trainer_of(trl.KTOTrainer, tmp_path, datasets.Dataset.from_list(RATED), llama_like, **options)
    found, expected = batches_of(ours), batches_of(own)
    same_batches(found, expected)
    loss, gradients = loss_and_gradients(ours, found[0])
    expected_loss, expected_gradients = loss_and_gradients(own, expected[0])
    assert loss == pytest.approx(expected_loss, abs=1e-5)
    torch.testing.assert_close(gradients, expected_gradients, rtol=0, atol=2e-5)
    assert ("KL_input_ids" in found[0]) == (loss_type == "kto")


def test_kto_takes_the_answers_of_pairs_one_by_one(pairs, llama_like, tmp_path):
    """Both answers of a pair have one prompt; neither is put under it to estimate what answers to others are worth."""
    trainer = trainer_of(trainers.PackedKTOTrainer, tmp_path, trainers.PreferenceData(pairs, seed=1), llama_like)
    rows = trainer.train_dataset
    assert sorted(rows["answer"]) == list(range(16)) != list(rows["answer"])
    assert [answer % 2 == 0 for answer in rows["answer"]] == list(rows["label"])
    assert all(answer // 2 != partner // 2 for answer, partner in zip(rows["answer"], rows["partner"], strict=True))


@given(
    st.lists(st.integers(0, 3), min_size=2, max_size=20).filter(lambda found: len(set(found)) > 1), st.integers(1, 6)
)
def test_partners_have_another_prompt_and_are_the_nearest_before(prompts, batch_size):
    from packer.load.trainers.preference import partners

    def literal(row):
        start = row - row % batch_size
        size = min(batch_size, len(prompts) - start)
        inside = [start + (row - start - back) % size for back in range(1, size)]
        before = [(start - back) % len(prompts) for back in range(1, len(prompts) + 1)]
        return next(other for other in inside + before if prompts[other] != prompts[row])

    found = partners(np.array(prompts), batch_size)
    assert found.tolist() == [literal(row) for row in range(len(prompts))]


REWARDED = (("of some", "<|im_end|>"), ("of none", None))


@pytest.mark.parametrize(
    ("margins", "pad_token"),
    [("of all", None), ("of some", "!"), *(pytest.param(*each, marks=pytest.mark.slow) for each in REWARDED)],
)
def test_a_reward_model_trains_as_with_trls_own_preparation(margins, pad_token, llama_like, tmp_path):
    """Whatever the tokenizer pads with, the score is read where TRL reads it; a pair has the margin of its column."""
    rows = [{**row, "margin": row["margin"] if margins == "of all" or number % 2 else None}
            for number, row in enumerate(PAIRS)]  # fmt: skip
    own_rows = [{**row, "margin": row["margin"] or 0.0} for row in rows]
    if margins == "of none":
        rows = own_rows = [{name: row[name] for name in ("prompt", "chosen", "rejected")} for row in PAIRS]
    columns = {} if margins == "of none" else {"margin": {"kind": "float32", "missing": 0}}
    data = trainers.PreferenceData(built(tmp_path / "cache", rows, llama_like, document_columns=columns))
    ours = reward_trainer_of(
        trainers.PackedRewardTrainer, tmp_path, data, llama_like, pad_token=pad_token, eval_dataset=data
    )
    own_data = datasets.Dataset.from_list(own_rows)
    own = reward_trainer_of(trl.RewardTrainer, tmp_path, own_data, llama_like, pad_token=pad_token)
    found, expected = batches_of(ours), batches_of(own)
    same_batches(found, expected)
    assert ("margin" in found[0]) == (margins != "of none")
    loss, gradients = loss_and_gradients(ours, found[0])
    expected_loss, expected_gradients = loss_and_gradients(own, expected[0])
    assert loss == pytest.approx(expected_loss, abs=1e-6)
    torch.testing.assert_close(gradients, expected_gradients, rtol=0, atol=1e-6)
    assert gradients.abs().max() > 1e-3
    if margins == "of all":
        before = ours.evaluate()["eval_loss"]
        ours.train()
        assert ours.evaluate()["eval_loss"] < before


def test_what_trl_computes_beforehand_is_what_the_reference_model_says(pairs, llama_like, tmp_path):
    with_model = trainer_of(trainers.PackedDPOTrainer, tmp_path, trainers.PreferenceData(pairs), llama_like)
    data = trainers.PreferenceData(pairs, seed=5)
    filled = trainer_of(trainers.PackedDPOTrainer, tmp_path, data, llama_like, precompute_ref_log_probs=True)
    order = filled.train_dataset["pair"]
    assert sorted(order) == list(range(8)) != list(order)
    expected = dict(zip_of_rows(batches_of(with_model), lambda batch: per_side(with_model, batch)))
    found = dict(zip_of_rows(batches_of(filled), lambda batch: torch.cat([batch[name] for name in COLUMNS])))
    assert len(found) == 16 and found == {ids: pytest.approx(value, abs=1e-3) for ids, value in expected.items()}


def test_training_and_evaluation_run_with_what_trl_computes_beforehand(pairs, llama_like, tmp_path):
    """Rows of like length together, and a reference that TRL itself computes of the first model."""
    data, held_out = trainers.PreferenceData(pairs), trainers.PreferenceData(pairs, seed=2)
    options = {"train_sampling_strategy": "group_by_length", "precompute_ref_log_probs": True, "num_train_epochs": 1}
    trainer = trainer_of(
        trainers.PackedDPOTrainer,
        tmp_path,
        data,
        llama_like,
        eval_dataset={"named": held_out},
        reference=False,
        **options,
    )
    before = trainer.evaluate()["eval_named_loss"]
    assert before == pytest.approx(np.log(2), abs=1e-6) == trainer.evaluate(trainers.PreferenceData(pairs))["eval_loss"]
    trainer.train()
    assert trainer.state.global_step == 2
    assert trainer.evaluate()["eval_named_loss"] < before
    with pytest.raises(TypeError, match="PreferenceData"):
        trainer.evaluate(datasets.Dataset.from_list(PAIRS))


COLUMNS = ("ref_chosen_logps", "ref_rejected_logps")


def zip_of_rows(batches, values_of):
    """The ids of each row, without padding, and its value."""
    for batch in batches:
        rows = zip(batch["input_ids"], batch["attention_mask"].bool(), values_of(batch).tolist(), strict=True)
        yield from ((tuple(ids[real].tolist()), value) for ids, real, value in rows)


@pytest.mark.slow
@pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="GLOO MISSING: several processes are not tested",
)
def test_two_processes_train_the_weights_of_one(pairs, llama_like, tmp_path):
    from torchrun import torchrun
    from trainers.preference_run import run

    alone = run(pairs, llama_like, tmp_path / "alone", 4)
    (tmp_path / "two").mkdir()
    torchrun(Path(__file__).parent / "preference_run.py", pairs, llama_like, tmp_path / "two", 2, num_processes=2)
    found = torch.load(tmp_path / "two" / "report.pt", weights_only=True)
    assert found["losses"] == pytest.approx(alone["losses"], abs=1e-5) and len(alone["losses"]) == 2
    assert alone["losses"][1] != alone["losses"][0]
    for name, value in alone["weights"].items():
        torch.testing.assert_close(found["weights"][name], value, rtol=0, atol=1e-5)


REFUSED = [
    ({"max_length": 12}, "max_length=12 would cut"),
    ({"padding_free": True}, "padding_free"),
]


@pytest.mark.parametrize(("options", "reason"), REFUSED)
def test_settings_that_would_train_otherwise_are_refused(options, reason, pairs, llama_like, tmp_path):
    with pytest.raises(UsageError, match=reason):
        trainer_of(trainers.PackedDPOTrainer, tmp_path, trainers.PreferenceData(pairs), llama_like, **options)


def test_data_of_another_kind_is_refused(pairs, answers, starter_cache, llama_like, tmp_path):
    with pytest.raises(UsageError, match="examples to imitate"):
        trainers.PreferenceData(starter_cache)
    with pytest.raises(UsageError, match="rated answers, not pairs"):
        trainer_of(trainers.PackedDPOTrainer, tmp_path, trainers.PreferenceData(answers), llama_like)
    with pytest.raises(UsageError, match="rated answers, not pairs"):
        reward_trainer_of(trainers.PackedRewardTrainer, tmp_path, trainers.PreferenceData(answers), llama_like)
    with pytest.raises(TypeError, match="PreferenceData"):
        trainer_of(trainers.PackedDPOTrainer, tmp_path, datasets.Dataset.from_list(PAIRS), llama_like)
