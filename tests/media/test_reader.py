"""What a model gets of a cache with images is what the processor's own batch gives it."""

import copy
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from image_models import answer, logps_alone, model_folder, picture, tiny_qwen, user, write_rows

import packer
from packer.audit.verify import verify
from packer.errors import CheckError, RecipeError, UsageError
from packer.export.run import export
from packer.load import Mixture, PackedDataset, PackedLoader, poison_test, trainers, view_batch
from packer.load.adapters import (
    huggingface,
    model_arguments,
    rope_index_of,
)
from packer.media.images import decode
from packer.media.processor import processor_of
from packer.store.manifest import read_manifest
from packer.store.media_shards import MediaShards

SHOWN = [
    [user("@0.png", "What is this?"), answer("A ramp.")],
    [user("Compare ", "@1.png", " with ", "@0.png"), answer("Two ramps, one wider.")],
    [user("@1.png", "One?"), answer("One."), user("@2.png", "Two?"), answer("Two ramps.")],
]
WRITTEN = [[user("Hello"), answer("Hi, how are you?")], [user("2+2?"), answer("Four.")]]


PACK = {"block_len": 48, "max_pixels": 60_000, "seed": 7}
"""The last block has no image."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("vl")
    model_folder(folder / "model")
    for number, size in enumerate([(60, 90), (120, 40), (64, 64)]):
        (folder / f"{number}.png").write_bytes(picture(*size, seed=number))
    file = write_rows(folder / "rows.jsonl", [{"messages": chat} for chat in (*SHOWN, *WRITTEN)])
    rules = {"media": {"images": "read"}, "pack": PACK}
    packer.build(str(file), folder / "cache", tokenizer=str(folder / "model"), progress=None, **rules)
    return folder / "cache"


@pytest.fixture(scope="module")
def processor(cache):
    folder = cache.parent / "model"
    return processor_of({file.name: file.read_bytes() for file in folder.iterdir()}).own


@pytest.fixture(scope="module")
def model(processor):
    return tiny_qwen(processor)


def micro_batches(cache, **options):
    with PackedLoader(cache, order="sequential", prefetch=0, **options) as loader:
        return [micro_batch for step in loader for micro_batch in step]


@pytest.mark.parametrize("batching", ["padded", "padding_free", "packed"])
def test_losses_and_gradients_are_those_of_the_processors_own_batches(cache, processor, model, batching):
    model.zero_grad()
    expected = -sum(logps_alone(model, processor, cache.parent, chat) for chat in (*SHOWN, *WRITTEN))
    expected.backward()
    gradients = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    model.zero_grad()
    made = micro_batches(cache, batching=batching, micro_batch_size=2, end="short")
    losses = [model(**huggingface(each, num_items_in_batch=1, **model_arguments(model))).loss for each in made]
    loss = sum(losses)
    loss.backward()
    assert len(losses) == (2 if batching == "packed" else 3)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    norm = sum(each.norm() ** 2 for each in gradients.values()) ** 0.5
    assert len(gradients) > 20
    for name, each in model.named_parameters():
        if name in gradients:
            assert (each.grad - gradients[name]).norm() < 1e-4 * norm, name


@pytest.mark.parametrize("batching", ["padded", "padding_free", "packed"])
def test_micro_batches_without_images_get_one_that_changes_no_loss(cache, model, batching):
    number = 1 if batching == "packed" else 2
    without = micro_batches(cache, batching=batching, images=False)[-number:]
    for micro_batch, plain in zip(micro_batches(cache, batching=batching)[-number:], without, strict=True):
        arguments = huggingface(micro_batch, model.config, num_items_in_batch=1, rope_index=rope_index_of(model))
        model.zero_grad()
        loss = model(**arguments).loss
        loss.backward()
        assert loss.item() == pytest.approx(
            model(**huggingface(plain, model.config, num_items_in_batch=1)).loss.item(), rel=1e-5
        )
        assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)


def test_pixels_are_those_of_the_processor_bit_for_bit(cache, processor):
    first = micro_batches(cache, batching="padded")[0]
    image = decode((cache.parent / "0.png").read_bytes())
    assert torch.equal(first["pixel_values"], processor.image_processor([image], return_tensors="pt")["pixel_values"])


def test_packed_rows_do_not_leak_and_need_the_models_positions(cache, model):
    (micro_batch,) = micro_batches(cache, batching="padding_free", micro_batch_size=5)
    with pytest.raises(UsageError, match="get_rope_index"):
        huggingface(micro_batch, model.config)
    (text,) = micro_batches(cache, batching="padding_free", micro_batch_size=5, images=False)
    assert poison_test(model, text)


def test_models_that_transformers_packs_wrongly_are_refused(cache):
    (micro_batch,) = micro_batches(cache, batching="padding_free", micro_batch_size=5)
    gemma = transformers.Gemma3Config()
    types = micro_batch.pop("mm_token_type_ids")
    with pytest.raises(UsageError, match="attends to both sides within an image"):
        huggingface(micro_batch | {"token_type_ids": types}, gemma)


def test_blocks_with_images_have_a_shape_of_their_own_and_are_not_cut(cache):
    for options in ({"static_shapes": True}, {"flatten": False}):
        with pytest.raises(UsageError, match="other shapes"):
            PackedLoader(cache, batching="packed", **options)
    with packer.Cache.open(cache) as opened:
        documents, blocks = opened.documents("train"), opened.blocks("train")
        read = blocks.read(np.arange(len(blocks)))
        pixels = documents.pixels()
        whole = [documents.find(doc_id) for doc_id in read.doc_ids.tolist()]
        assert (read.doc_lengths == documents.lengths()[whole]).all() and len(whole) == len(documents)
        assert 1 < len(blocks) < len(whole)
        assert (np.add.reduceat(pixels[whole], read.doc_offsets[:-1]) <= PACK["max_pixels"]).all()
    assert verify(cache, level="full").ok
    rules = {"tokenizer": str(cache.parent / "model"), "media": {"images": "read"}, "pack": PACK | {"mode": "stream"}}
    with pytest.raises(RecipeError, match="is not for documents with images"):
        packer.build(str(cache.parent / "rows.jsonl"), cache.parent / "other", progress=None, **rules)


def test_images_are_decoded_for_the_step_that_is_next_and_each_once(cache, monkeypatch):
    decoded = []
    monkeypatch.setattr("packer.load.pixels.decode", lambda data: decoded.append(data) or decode(data))
    with PackedLoader(cache, batching="padded", order="sequential", prefetch=0) as loader:
        counts = [len(decoded) for step in loader if len(step)]
    assert counts == [1, 3, 5, 5, 5]
    decoded.clear()
    micro_batches(cache, batching="padded", micro_batch_size=3, end="short")
    assert len(decoded) == 3


@pytest.mark.parametrize("batching", ["padded", "packed"])
def test_a_mixture_of_images_and_text_has_pixels_on_every_rank(cache, tmp_path, batching):
    rows = write_rows(tmp_path / "rows.jsonl", [{"messages": chat} for chat in WRITTEN * 4])
    pack = {"block_len": PACK["block_len"]}
    packer.build(str(rows), tmp_path / "text", tokenizer=str(cache.parent / "model"), pack=pack, progress=None)
    mixed = Mixture({str(cache): 1, str(tmp_path / "text"): 1})
    for rank in range(2):
        with PackedLoader(mixed, batching=batching, global_batch_size=2, rank=rank, world_size=2, prefetch=0) as loader:
            steps = [["pixel_values" in micro_batch for micro_batch in step] for step in loader]
        assert len(steps) > 2 and all(map(all, steps))


def test_a_view_of_a_batch_needs_no_processor(cache):
    view = view_batch(cache, batching="padded", micro_batch_size=2)
    assert view.check and "pixel_values" not in view.micro_batch


def test_a_damaged_image_is_an_error_and_never_trained(cache, tmp_path):
    damaged = shutil.copytree(cache, tmp_path / "cache")
    (table,) = read_manifest(damaged).media
    content = (damaged / table.path).read_bytes()
    image = MediaShards(cache, [table])
    data = image.read(next(iter(image.digests())))
    place = content.index(data) + len(data) // 2
    (damaged / table.path).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(CheckError, match="another sha256"):
        micro_batches(damaged, batching="padded")


def test_a_trainer_trains_on_images_and_resumes(cache, model, tmp_path):
    def trainer(start):
        args = transformers.TrainingArguments(
            str(tmp_path / "out"), max_steps=3, save_steps=2, logging_steps=1, report_to=[], use_cpu=True, learning_rate=1e-2,
            lr_scheduler_type="constant",
        )  # fmt: skip
        loader = PackedLoader(cache, batching="padded", micro_batch_size=2, global_batch_size=2)
        return trainers.PackedTrainer(model=start, args=args, train_dataset=loader)

    def losses(trained):
        return [entry["loss"] for entry in trained.state.log_history if "loss" in entry]

    whole = trainer(copy.deepcopy(model))
    whole.train()
    # The Trainer of transformers 5.23 itself does not find the weights of such a model by their names in a checkpoint.
    saved = str(tmp_path / "out" / "checkpoint-2")
    again = trainer(type(model).from_pretrained(saved))
    again.train(resume_from_checkpoint=saved)
    assert losses(again) == pytest.approx(losses(whole), rel=1e-4) and len(losses(whole)) == 3


@pytest.mark.slow  # for TRL; of a PackedSFTTrainer the rest is tested in tests/trainers, and images in a PackedTrainer above
@pytest.mark.filterwarnings("ignore")  # TRL uses what transformers deprecated
def test_trainers_of_transformers_and_of_trl_train_blocks_alike(cache, processor, model, tmp_path):
    trl = pytest.importorskip("trl", reason="TRL MISSING: its SFTTrainer is not tested with images")
    losses = []
    for kind, config in (
        (trainers.PackedTrainer, transformers.TrainingArguments),
        (trainers.PackedSFTTrainer, trl.SFTConfig),
    ):
        options = {
            "max_steps": 2,
            "logging_steps": 1,
            "report_to": [],
            "use_cpu": True,
            "bf16": False,
            "learning_rate": 1e-4,
        }
        args = config(str(tmp_path / "out"), save_strategy="no", **options)
        loader = PackedLoader(cache, micro_batch_size=1, global_batch_size=1, order="sequential")
        given = {"processing_class": processor.tokenizer} if kind is trainers.PackedSFTTrainer else {}
        trainer = kind(copy.deepcopy(model), args, train_dataset=loader, **given)
        trainer.train()
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert len(losses[0]) == 2 and losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_trainer_refuses_a_model_that_gets_packed_images_wrong(cache, model, tmp_path):
    def adapter(micro_batch):
        arguments = huggingface(micro_batch, **model_arguments(model))
        if "pixel_values" in micro_batch and "cu_seq_lens_q" in micro_batch:
            arguments["position_ids"] = arguments["position_ids"].clone()
            arguments["position_ids"][1:] = arguments["position_ids"][:1]  # of text, where images have others
        return arguments

    args = transformers.TrainingArguments(str(tmp_path / "out"), max_steps=1, report_to=[], use_cpu=True)
    trainer = trainers.PackedTrainer(copy.deepcopy(model), args, train_dataset=PackedLoader(cache), adapter=adapter)
    with pytest.raises(UsageError, match="gets packed documents with images wrong"):
        trainer.train()


def test_what_reads_tokens_alone_refuses_images(cache, tmp_path):
    for read in (
        lambda: PackedDataset(cache),
        lambda: export(cache, tmp_path / "out", to="datasets"),
    ):
        with pytest.raises(UsageError, match="has images, which"):
            read()
