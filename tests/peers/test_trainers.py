"""Trainers' own reading code over what packer gives them: axolotl, LLaMA-Factory, grain, torchtitan."""

import importlib.machinery
import json
import os
import re
import sys
import types
from collections import Counter
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch", reason="TORCH MISSING: trainers are not tested")

from export import readers  # noqa: E402
from preference_rows import built, long_pair, pair  # noqa: E402
from small_blocks import small_cache  # noqa: E402
from small_documents import small_document_cache  # noqa: E402
from tiny_decoder import TinyDecoder, causal, summed_loss  # noqa: E402
from tiny_models import tiny_model  # noqa: E402

from packer.export.run import export  # noqa: E402
from packer.load import PackedLoader, poison_test  # noqa: E402
from packer.load.attention import block_diagonal_mask  # noqa: E402

os.environ.setdefault("AXOLOTL_DO_NOT_TRACK", "1")
os.environ.setdefault("DO_NOT_TRACK", "1")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # they use what their own libraries deprecated


PAGES = Path(__file__).resolve().parent.parent.parent / "docs" / "how-to" / "trainers"


def python_of(page):
    return re.findall(r"```python\n(.*?)```", (PAGES / page).read_text("utf-8"), re.DOTALL)


def loss_of_documents(model, documents):
    """Summed over trained tokens, of each document by itself, and their number."""
    total, number = 0.0, 0
    for document in documents:
        ids = torch.from_numpy(document.input_ids.astype(np.int64))[None]
        labels = torch.from_numpy(document.labels.astype(np.int64))[None]
        positions = torch.arange(ids.shape[1])[None]
        total += float(summed_loss(model(ids, positions, causal(ids.shape[1])), labels))
        number += int((labels[:, 1:] != -100).sum())
    return total, number


# axolotl


@pytest.fixture
def axolotl():
    pytest.importorskip("axolotl", reason="PEER MISSING: axolotl's reading of tokenized documents is not tested")
    from axolotl.utils.dict import DictDefault

    return DictDefault


def save_documents(documents, folder, splits=("train",)):
    """What ``packer export --to datasets`` writes of a cache's documents."""
    import datasets

    columns = {
        "input_ids": [document.input_ids.tolist() for document in documents],
        "attention_mask": [[1] * len(document.input_ids) for document in documents],
        "labels": [document.labels.tolist() for document in documents],
    }
    datasets.DatasetDict({split: datasets.Dataset.from_dict(columns) for split in splits}).save_to_disk(str(folder))


@pytest.mark.parametrize("dataset_type", [None, ""])
def test_axolotl_takes_exported_documents_as_tokenized_and_packs_them_without_a_change(dataset_type, axolotl, tmp_path):
    """From its loading to the batch of a packed row: ids and labels are packer's, the mask numbers the documents."""
    from axolotl.utils.collators.batching import V2BatchSamplerDataCollatorForSeq2Seq
    from axolotl.utils.data.sft import _load_and_process_single_dataset
    from axolotl.utils.data.utils import handle_long_seq_in_dataset
    from axolotl.utils.trainer import process_datasets_for_packing
    from transformers import PreTrainedTokenizerFast

    _, documents = small_document_cache(12)
    save_documents(documents, tmp_path / "exported")
    config = axolotl({"sample_packing": True, "sequence_len": 64, "excess_length_strategy": "raise"})
    dataset, _ = _load_and_process_single_dataset(
        dataset_config=axolotl({"path": str(tmp_path / "exported"), "type": dataset_type}),
        cfg=config,
        tokenizer=None,
        split="train",
        seed=0,
    )
    dataset = handle_long_seq_in_dataset(dataset, config.sequence_len, config)
    trained = [document for document in documents if (document.labels[1:] != -100).any()]
    dataset, _ = process_datasets_for_packing(config, dataset, None)
    assert len(dataset) == len(trained) > 8
    for row, document in zip(dataset, trained, strict=True):
        assert row["input_ids"] == document.input_ids.tolist()
        assert row["labels"] == document.labels.tolist()
        assert row["position_ids"] == list(range(len(document.input_ids)))

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=_empty_tokenizer(), pad_token="<pad>")
    collate = V2BatchSamplerDataCollatorForSeq2Seq(tokenizer, padding=True)
    batch = collate([[dataset[row] for row in range(4)]])
    model = TinyDecoder()
    mask = block_diagonal_mask(batch["attention_mask"])[:, None]
    packed = float(summed_loss(model(batch["input_ids"], batch["position_ids"], mask), batch["labels"]))
    assert packed == pytest.approx(loss_of_documents(model, trained[:4])[0], rel=1e-12)
    assert poison_test(tiny_model(), as_axolotl_calls_a_model(batch), alone=True)


def up_to_the_last_target(ids, labels):
    """A document ends with what it trains; axolotl's goes on with what the template writes behind the stop token."""
    end = max(place for place, label in enumerate(labels) if label != -100) + 1
    return tuple(ids[:end]), tuple(labels[:end])


def test_axolotl_prepares_the_documents_of_the_recipe_that_its_config_becomes(axolotl, starter, tmp_path, monkeypatch):
    """`packer init --from`, then a build: every document of axolotl's own preparation, with its labels, and no other."""
    from axolotl.utils.data.sft import _load_and_process_single_dataset
    from transformers import PreTrainedTokenizerFast

    from packer.pipeline.from_python import build
    from packer.recipe.recipe import load_recipe
    from packer.recipe_from import read_config, write_recipe

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")
    talks = [[(f"What is {n} and {k}?", f"It is {n + k}.\nNothing else.") for k in range(n % 3 + 1)] for n in range(40)]
    for name, speaks, says, asked, answered in (
        ("chats", "role", "content", "user", "assistant"),
        ("shares", "from", "value", "human", "gpt"),
    ):
        with Path(f"{name}.jsonl").open("w") as file:
            for talk in talks:
                turns = [
                    {speaks: who, says: text}
                    for pair in talk
                    for who, text in zip((asked, answered), pair, strict=True)
                ]
                file.write(json.dumps({"messages" if name == "chats" else "talk": turns}) + "\n")
    chats = {"path": "chats.jsonl", "type": "chat_template"}
    renamed = {"field_messages": "talk", "message_property_mappings": {"role": "from", "content": "value"}}
    shares = {"path": "shares.jsonl", "type": "chat_template", **renamed}
    config = {"base_model": str(starter / "tokenizer"), "datasets": [chats, shares], "sequence_len": 512}
    Path("config.yaml").write_text(yaml.safe_dump({**config, "sample_packing": True}))
    write_recipe(read_config(Path("config.yaml"), Path("out")), Path("out"))
    build(load_recipe("out/recipe.yaml"), "cache", jobs=1)

    tokenizer = PreTrainedTokenizerFast.from_pretrained(starter / "tokenizer")
    rows = []
    for entry in (chats, shares):
        dataset, _ = _load_and_process_single_dataset(
            dataset_config=axolotl({"chat_template": "tokenizer_default", **entry}),
            cfg=axolotl({**config, "sample_packing": True, "dataset_num_proc": 1}),
            tokenizer=tokenizer,
            split="train",
            seed=0,
        )
        rows += list(dataset)
    found = Counter(up_to_the_last_target(row["input_ids"], row["labels"]) for row in rows)
    expected = Counter((tuple(ids), tuple(labels)) for ids, labels in readers.cache_documents(Path("cache"), "train"))
    assert found == expected and expected.total() == 80


def as_axolotl_calls_a_model(batch):
    """With sdpa and eager its packed rows go without the mask, and borders are where positions restart."""
    starts = torch.nonzero(batch["position_ids"][0] == 0).flatten().tolist()
    bounds = torch.tensor([*starts, batch["input_ids"].shape[1]], dtype=torch.int32)
    longest = int(bounds.diff().max())
    runs = {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": longest, "max_length_k": longest}
    return {**{name: batch[name] for name in ("input_ids", "labels", "position_ids")}, **runs}


def _empty_tokenizer():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    return Tokenizer(WordLevel({"<pad>": 0}, unk_token="<pad>"))


# LLaMA-Factory


@pytest.fixture
def llamafactory(monkeypatch):
    # Its data module imports torchaudio, to load sound, which is nothing to rows of ids; installed or not, it stays out.
    torchaudio = types.ModuleType("torchaudio")
    torchaudio.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
    monkeypatch.setitem(sys.modules, "torchaudio", torchaudio)
    monkeypatch.setenv("DISABLE_VERSION_CHECK", "1")  # its own word for: newer libraries than it asks for
    return pytest.importorskip(
        "llamafactory.data",
        reason="PEER MISSING: LLaMA-Factory's reading of tokenized documents is not tested; make peers",
        exc_type=ImportError,
    )


def as_training_loads(llamafactory, folder, **settings):
    """What LLaMA-Factory's training takes from a folder with the settings of its page."""
    from llamafactory.hparams import get_train_args

    (page,) = re.findall(r"```yaml\n(.*?)```", (PAGES / "llamafactory.md").read_text("utf-8"), re.DOTALL)
    own = {"tokenized_path": str(folder), "model_name_or_path": "unread", "output_dir": str(folder / "out")}
    cpu = {"use_cpu": True, "report_to": "none"}
    model, data, training, _, _ = get_train_args({**yaml.safe_load(page), **own, **cpu, **settings})
    return llamafactory.get_dataset(None, model, data, training, stage="sft", tokenizer=None)


def test_llamafactory_loads_an_export_as_it_is_and_pads_its_documents(llamafactory, starter_cache, starter, tmp_path):
    """From its loading to the batch of its own collator: the loss is that of the documents by themselves."""
    from transformers import PreTrainedTokenizerFast

    export(starter_cache, tmp_path / "exported", to="datasets")
    found = as_training_loads(llamafactory, tmp_path / "exported", cutoff_len=16, max_samples=3, mask_history=True)
    assert set(found) == {"train_dataset"}, "a split called eval is not read"
    expected = readers.cache_documents(starter_cache, "train")
    rows = list(found["train_dataset"])
    assert [(row["input_ids"], row["labels"]) for row in rows] == expected and len(expected) > 100

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(starter / "tokenizer" / "tokenizer.json"))
    tokenizer.pad_token = "<|endoftext|>"
    collate = llamafactory.SFTDataCollatorWith4DAttentionMask(
        template=llamafactory.TEMPLATES["qwen3"], tokenizer=tokenizer, pad_to_multiple_of=8
    )
    batch = collate([dict(row) for row in rows[:4]])
    num_rows, length = batch["input_ids"].shape
    assert length % 8 == 0 and batch["attention_mask"].sum(1).tolist() == [len(ids) for ids, _ in expected[:4]]
    model = TinyDecoder(vocab_size=4096)
    mask = causal(length) & batch["attention_mask"].bool()[:, None, None, :]
    positions = torch.arange(length).expand(num_rows, length)
    padded = float(summed_loss(model(batch["input_ids"], positions, mask), batch["labels"]))
    documents = [SimpleNamespace(input_ids=np.array(ids), labels=np.array(labels)) for ids, labels in expected[:4]]
    assert padded == pytest.approx(loss_of_documents(model, documents)[0], rel=1e-12)


def test_llamafactory_collates_exported_pairs_as_they_are(llamafactory, starter, tmp_path):
    """Chosen rows, then rejected ones, each with the labels of the cache: an answer of several turns, too."""
    from transformers import PreTrainedTokenizerFast

    cache = built(tmp_path / "cache", [pair(0), long_pair(1), pair(2)], starter / "tokenizer")
    export(cache, tmp_path / "exported", to="datasets")
    rows = list(as_training_loads(llamafactory, tmp_path / "exported", stage="rm")["train_dataset"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(starter / "tokenizer" / "tokenizer.json"))
    tokenizer.pad_token = "<|endoftext|>"
    collate = llamafactory.PairwiseDataCollatorWithPadding(
        template=llamafactory.TEMPLATES["qwen3"], tokenizer=tokenizer
    )
    batch = collate([dict(row) for row in rows])
    documents = readers.cache_documents(cache, "train")
    expected = documents[0::2] + documents[1::2]
    assert len(batch["input_ids"]) == len(expected) == 6
    for row, (ids, labels) in enumerate(expected):
        real = batch["attention_mask"][row].bool()
        assert batch["input_ids"][row][real].tolist() == ids
        assert batch["labels"][row][real].tolist() == labels
        assert (batch["labels"][row][~real] == -100).all()


def test_llamafactory_evaluates_a_split_called_validation(llamafactory, tmp_path):
    _, documents = small_document_cache(12)
    save_documents(documents, tmp_path / "exported", splits=("train", "validation"))
    found = as_training_loads(llamafactory, tmp_path / "exported")
    assert found["train_dataset"]["labels"] == found["eval_dataset"]["labels"]
    assert list(found["eval_dataset"]["labels"]) == [document.labels.tolist() for document in documents]


# grain


@pytest.fixture
def grain():
    return pytest.importorskip("grain", reason="PEER MISSING: grain's datasets over blocks are not tested")


def blocks_of(cache):
    """The source that the page shows."""
    names = {}
    exec(python_of("grain.md")[0].partition("\nsource = ")[0], names)
    return names["Blocks"](cache.folder)


def test_grain_shuffles_batches_and_resumes_blocks_that_are_packers(grain):
    cache = small_cache(23, 16)
    source = blocks_of(cache)
    assert isinstance(source, grain.sources.RandomAccessDataSource)

    def batches():
        return iter(grain.MapDataset.source(source).seed(7).shuffle().repeat(2).batch(4).to_iter_dataset())

    running = batches()
    seen = [next(running) for _ in range(3)]
    state = running.get_state()
    rest = list(running)
    resumed = batches()
    resumed.set_state(state)
    for one, other in zip(resumed, rest, strict=True):
        assert np.array_equal(one["input_ids"], other["input_ids"])
    stored = {row["input_ids"].tobytes(): row for row in (source[i] for i in range(23))}
    found = [row.tobytes() for batch in [*seen, *rest] for row in batch["input_ids"]]
    assert len(found) == 46 and len(set(found)) == 23 == len(stored)
    for batch in [*seen, *rest]:
        for ids, segments, labels in zip(batch["input_ids"], batch["segment_ids"], batch["labels"], strict=True):
            assert np.array_equal(stored[ids.tobytes()]["segment_ids"], segments)
            assert np.array_equal(stored[ids.tobytes()]["labels"], labels)


def test_the_page_makes_batches_of_blocks_with_targets_beside_inputs(grain, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").symlink_to(small_cache(23, 16).folder)
    (code,) = python_of("grain.md")
    names = {}
    exec(code, names)
    batch = names["batch"]
    mask = batch["targets_loss_mask"]
    assert batch["inputs"].shape == batch["targets"].shape == (8, 16)
    assert np.array_equal(batch["targets"][:, :-1][mask[:, :-1]], batch["inputs"][:, 1:][mask[:, :-1]])
    apart = batch["inputs_segmentation"][:, :-1] != batch["inputs_segmentation"][:, 1:]
    assert mask.any() and not mask[:, :-1][apart].any() and not mask[:, -1].any()


def test_the_loss_under_segment_ids_is_that_of_single_documents(grain):
    cache = small_cache(9, 16)
    model = TinyDecoder()
    (batch,) = list(grain.MapDataset.source(blocks_of(cache)).batch(9).to_iter_dataset())
    tensors = {name: torch.from_numpy(values).long() for name, values in batch.items()}
    mask = block_diagonal_mask(tensors["segment_ids"])[:, None]
    packed = float(summed_loss(model(tensors["input_ids"], tensors["position_ids"], mask), tensors["labels"]))
    total = 0.0
    blocks = cache.blocks("train").read(np.arange(9))
    for row in range(9):
        for at in range(blocks.doc_offsets[row], blocks.doc_offsets[row + 1]):
            place, length = int(blocks.doc_places[at]), int(blocks.doc_lengths[at])
            ids, labels = (
                torch.from_numpy(column[row, place : place + length].astype(np.int64))[None]
                for column in (blocks.input_ids, blocks.labels)
            )
            total += float(summed_loss(model(ids, torch.arange(length)[None], causal(length)), labels))
    assert packed == pytest.approx(total, rel=1e-12)


# torchtitan


@pytest.fixture
def torchtitan():
    return pytest.importorskip("torchtitan", reason="PEER MISSING: torchtitan's dataloader is not tested")


def test_the_page_makes_a_dataloader_that_torchtitan_builds_and_saves(torchtitan, tmp_path, monkeypatch):
    """Built from its Config as torchtitan's Trainer does, on two ranks, read by its batch_generator, saved by DCP."""
    from torch.distributed import checkpoint
    from torchtitan.components.dataloader import BaseDataLoader

    (code,) = python_of("torchtitan.md")
    names = {"__name__": "packed_dataloader"}
    exec(code, names)
    cache = small_cache(23, 16)
    config = names["PackedDataLoader"].Config(dataset_path=str(cache.folder), global_batch_size=8)

    def built(rank):
        runtime = {"dp_world_size": 2, "dp_rank": rank, "tokenizer": None, "seq_len": 16, "local_batch_size": 2}
        return config.build(**runtime, snapshot_every_n_steps=1)

    ranks = [built(0), built(1)]
    assert all(isinstance(rank, BaseDataLoader) for rank in ranks)
    seen = [list(islice(iter(rank), 4)) for rank in ranks]
    whole = {"rank": 0, "world_size": 1, "micro_batch_size": 8, "global_batch_size": 8}
    with PackedLoader(cache, flatten=False, **whole) as loader:
        expected = [step[0]["input_ids"] for step in islice(loader.endless(), 3)]
    for step in range(2):
        parts = [seen[rank][2 * step + number][0]["input"] for rank in (0, 1) for number in (0, 1)]
        assert sorted(torch.cat(parts).tolist()) == sorted(expected[step].tolist())
    saved = {"dataloader": ranks[0]}
    checkpoint.save(saved, checkpoint_id=tmp_path / "step-2", no_dist=True)
    resumed = {"dataloader": built(0)}
    checkpoint.load(resumed, checkpoint_id=tmp_path / "step-2", no_dist=True)
    inputs, _ = next(iter(resumed["dataloader"]))
    assert all(row in expected[2].tolist() for row in inputs["input"].tolist())
    with pytest.raises(ValueError, match="seq_len"):
        names["PackedDataLoader"].Config(dataset_path=str(cache.folder), global_batch_size=8).build(
            dp_world_size=1, dp_rank=0, tokenizer=None, seq_len=32, local_batch_size=2
        )
