"""Pairs and rated answers about images: TRL's losses over a cache are those of the processor's own batches."""

import copy

import pytest
import torch
from image_models import answer, logps_alone, model_folder, picture, tiny_qwen, user, write_rows

trl = pytest.importorskip("trl", reason="TRL MISSING: pairs with images are not trained")

from trainer_runs import arguments  # noqa: E402

import packer  # noqa: E402
from packer.errors import UsageError  # noqa: E402
from packer.load import PackedLoader, answer_logps, trainers  # noqa: E402
from packer.media.processor import processor_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL uses what transformers deprecated

PROMPTS = [[user("@0.png", "What is this?")], [user("Compare ", "@1.png", " with ", "@0.png")], [user("Hello")]]
GOOD, BAD = [answer("A ramp.")], [answer("It is a cat, I think.")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    model_folder(folder / "model")
    for number, size in enumerate([(60, 90), (120, 40)]):
        (folder / f"{number}.png").write_bytes(picture(*size, seed=number))
    pairs = write_rows(folder / "pairs.jsonl", [{"prompt": p, "chosen": GOOD, "rejected": BAD} for p in PROMPTS])
    packer.build(str(pairs), folder / "cache", tokenizer=str(folder / "model"), media={"images": "read"}, progress=None)
    return folder


@pytest.fixture(scope="module")
def processor(folder):
    return processor_of({file.name: file.read_bytes() for file in (folder / "model").iterdir()}).own


@pytest.fixture(scope="module")
def models(processor):
    policy = tiny_qwen(processor)
    reference = copy.deepcopy(policy)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return policy, reference


def trainer_of(kind, config, folder, models, processor, *, cache=None, **options):
    policy, reference = models
    given = {"max_length": None, "bf16": False, "gradient_checkpointing": False, "optim": "sgd", "beta": 0.5}
    given |= {"train_sampling_strategy": "sequential", "per_device_train_batch_size": 6}
    args = arguments(folder / "out", config, **(given | options))
    return kind(
        policy,
        ref_model=reference,
        args=args,
        train_dataset=trainers.PreferenceData(cache or folder / "cache"),
        processing_class=processor.tokenizer,
    )


def test_dpo_has_the_loss_and_the_gradients_of_the_processors_own_batches(folder, models, processor):
    trainer = trainer_of(trainers.PackedDPOTrainer, trl.DPOConfig, folder, models, processor)
    (batch,) = trainer.get_train_dataloader()
    policy = models[0]

    def gradients(loss):
        policy.zero_grad()
        loss.backward()
        return {name: each.grad.clone() for name, each in policy.named_parameters() if each.grad is not None}

    def margins(model):
        sides = [[logps_alone(model, processor, folder, [*p, *a]) for p in PROMPTS] for a in (GOOD, BAD)]
        return torch.stack(sides[0]) - torch.stack(sides[1])

    with torch.no_grad():
        before = margins(models[1])
    expected = -torch.nn.functional.logsigmoid(0.5 * (margins(policy) - before)).mean()
    own = gradients(expected)
    loss = trainer.compute_loss(policy, dict(batch))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    norm = sum(each.norm() ** 2 for each in own.values()) ** 0.5
    found = gradients(loss)
    assert len(own) > 20 and any("visual" in name and each.norm() > 0 for name, each in own.items())
    assert all((found[name] - each).norm() < 1e-3 * norm for name, each in own.items())
    trainer.train()


@pytest.mark.slow  # images reach a trainer as they do above, partners as they do in tests/trainers
def test_kto_estimates_its_kl_term_with_the_images_of_the_prompt(folder, models, processor):
    trainer = trainer_of(trainers.PackedKTOTrainer, trl.KTOConfig, folder, models, processor)
    (batch,) = trainer.get_train_dataloader()
    with torch.no_grad():
        (batch_kl,) = (trainer._compute_kl_logps(models[0], dict(batch)),)
    both = [(p, a) for p in PROMPTS for a in (GOOD, BAD)]
    partners = trainer.train_dataset["partner"]
    expected = [
        logps_alone(models[0], processor, folder, [*prompt, *both[partners[row]][1]]).item()
        for row, (prompt, _) in enumerate(both)
    ]
    assert batch_kl.tolist() == pytest.approx(expected, rel=1e-4)
    trainer.train()
    with pytest.raises(UsageError, match="leaves images out"):
        trainer_of(trainers.PackedKTOTrainer, trl.KTOConfig, folder, models, processor, precompute_ref_log_probs=True)


@pytest.mark.parametrize("name", ["DPO", pytest.param("KTO", marks=pytest.mark.slow)])
def test_images_that_a_cache_only_names_are_those_that_are_stored(folder, models, processor, tmp_path, name):
    kind, config = getattr(trainers, f"Packed{name}Trainer"), getattr(trl, f"{name}Config")
    media = {"images": "read", "keep": "reference"}
    rows, model = str(folder / "pairs.jsonl"), str(folder / "model")
    packer.build(rows, tmp_path / "named", tokenizer=model, media=media, progress=None)

    def batch(cache=None):
        trainer = trainer_of(kind, config, folder, models, processor, cache=cache, dataloader_num_workers=1)
        (made,) = trainer.get_train_dataloader()
        return {name: value.tolist() for name, value in made.items()}

    assert batch(packer.Cache.open(tmp_path / "named", sources=folder)) == batch()
    with pytest.raises(UsageError, match="has only the name of the image"):
        batch(tmp_path / "named")


def test_a_loop_of_ones_own_has_the_images_of_both_sides(folder, models, processor):
    with PackedLoader(
        folder / "cache", batching="padded", order="sequential", micro_batch_size=3, prefetch=0
    ) as loader:
        (step,) = loader
    (batch,) = step
    told = {"labels", "position_ids", "completion_mask", "sides", "pair_ids"}
    with torch.no_grad():
        logits = models[0](**{name: value for name, value in batch.items() if name not in told}).logits
        sides = answer_logps(logits, batch)
        for answers, found in zip((GOOD, BAD), sides, strict=True):
            expected = [logps_alone(models[0], processor, folder, [*p, *answers]).item() for p in PROMPTS]
            assert found.tolist() == pytest.approx(expected, rel=1e-4)
