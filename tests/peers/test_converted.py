"""What axolotl and LLaMA-Factory make of rows by their configuration, and what packer makes of them by its recipe."""

import importlib.machinery
import json
import os
import sys
import types
from pathlib import Path

import pytest
import yaml
from single_documents import read_document

from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe
from packer.recipe_from import read_config, write_recipe
from packer.store.cache import Cache

pytestmark = pytest.mark.slow

PLAIN = [("count", "1 2 3"), ("again", "3 2 1")]
TAGS = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}


def chat(*pairs, roles=("user", "assistant"), names=("role", "content"), field="messages", **more):
    spoken = [(role, text) for pair in pairs for role, text in zip(roles, pair, strict=True)]
    return {field: [dict(zip(names, said, strict=True)) for said in spoken], **more}


def said(pairs, **more):
    return chat(*pairs, roles=("human", "gpt"), names=("from", "value"), field="conversations", **more)


def trained_part(input_ids, labels, eos):
    """Ids and labels up to the last trained token; what follows a stop token does not count as trained."""
    labels = [-100 if i and input_ids[i - 1] == eos else label for i, label in enumerate(labels)]
    end = max(i for i, label in enumerate(labels) if label != -100) + 1
    return list(input_ids[:end]), labels[:end]


@pytest.fixture
def tokenizer(place):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(place / "tokenizer")


def packed(config, eos):
    Path("config.yaml").write_text(yaml.safe_dump(config))
    converted = read_config(Path("config.yaml"), Path("out"))
    write_recipe(converted, Path("out"))
    build(load_recipe("out/recipe.yaml"), Path("cache"), jobs=1)
    with Cache.open("cache") as cache:
        documents = cache.documents("train")
        read = [read_document(documents, i) for i in range(len(documents))]
    return [trained_part(each.input_ids.tolist(), each.labels.tolist(), eos) for each in read]


SHAREGPT = {"field_messages": "conversations", "message_property_mappings": {"role": "from", "content": "value"}}


@pytest.mark.parametrize(
    ("starter_rows", "entry", "rows"),
    [
        ("chat", {}, None),
        ("sharegpt", SHAREGPT, None),
        ("tools", {}, None),
        ("reasoning", {}, None),
        ("", {}, [chat(*PLAIN)]),
        ("", {"message_field_training": "train"}, [{"messages": [
            {"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "train": False},
            {"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "train": True},
        ]}]),
        ("", {**SHAREGPT, "roles": {"user": ["client"], "assistant": ["agent"]}}, [
            chat(*PLAIN, roles=("client", "agent"), names=("from", "value"), field="conversations")
        ]),
    ],
)  # fmt: skip
def test_a_recipe_trains_what_axolotl_trains(place, tokenizer, starter_rows, entry, rows):
    pytest.importorskip("axolotl", reason="PEER MISSING: axolotl; make peers")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    import datasets
    from axolotl.utils.data.sft import _load_and_process_single_dataset
    from axolotl.utils.dict import DictDefault

    datasets.disable_progress_bars()
    lines = map(json.dumps, rows) if rows else Path(f"data/{starter_rows}.jsonl").read_text("utf-8").splitlines()[:20]
    Path("rows.jsonl").write_text("\n".join(lines), "utf-8")
    source = {"path": "rows.jsonl", "type": "chat_template", **entry}
    config = {"sequence_len": 4096, "sample_packing": True, "train_on_inputs": False}
    dataset, _ = _load_and_process_single_dataset(
        dataset_config=DictDefault({"ds_type": "json", **source}),
        cfg=DictDefault({**config, "chat_template": "tokenizer_default"}),
        tokenizer=tokenizer,
        split="train",
        seed=0,
    )
    theirs = [trained_part(row["input_ids"], row["labels"], tokenizer.eos_token_id) for row in dataset]
    assert packed({"base_model": "tokenizer", "datasets": [source], **config}, tokenizer.eos_token_id) == theirs


@pytest.fixture
def llamafactory(monkeypatch):
    torchaudio = types.ModuleType("torchaudio")  # for sound alone
    torchaudio.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
    monkeypatch.setitem(sys.modules, "torchaudio", torchaudio)
    monkeypatch.setenv("DISABLE_VERSION_CHECK", "1")
    return pytest.importorskip(
        "llamafactory.data", reason="PEER MISSING: LLaMA-Factory; make peers", exc_type=ImportError
    )


ALPACA = {"instruction": "count", "input": "to 3", "output": "1 2 3"}


@pytest.mark.parametrize(
    ("entry", "rows", "keys"),
    [
        ({}, [ALPACA, ALPACA], {}),
        (
            {"columns": {"prompt": "q", "response": "a", "history": "h", "system": "s"}},
            [{"q": "count", "a": "1", "h": [["a", "b"], ["c", "d"]], "s": "be brief"}],
            {},
        ),
        ({"formatting": "sharegpt"}, [said(PLAIN), said(PLAIN[:1])], {}),
        ({"formatting": "sharegpt", "columns": {"messages": "messages", "system": "system"}, "tags": TAGS}, [chat(*PLAIN, system="be brief")], {}),
    ],
)  # fmt: skip
def test_a_recipe_trains_what_llamafactory_trains_up_to_the_stop_token(
    place, tokenizer, llamafactory, entry, rows, keys
):
    from llamafactory.hparams import get_train_args

    info = {"rows": {"file_name": "rows.json", **entry}}
    Path("rows.json").write_text(json.dumps(rows))
    Path("dataset_info.json").write_text(json.dumps(info))
    config = {"stage": "sft", "model_name_or_path": "tokenizer", "dataset": "rows", "dataset_dir": ".", "template": "chatml", "cutoff_len": 4096, **keys}  # fmt: skip
    own = {"do_train": True, "output_dir": "unused", "use_cpu": True, "report_to": "none", "overwrite_cache": True}
    model, data, training, _, _ = get_train_args({**config, **own})
    template = llamafactory.get_template_and_fix_tokenizer(tokenizer, data)
    found = llamafactory.get_dataset(template, model, data, training, stage="sft", tokenizer=tokenizer)
    theirs = [trained_part(row["input_ids"], row["labels"], tokenizer.eos_token_id) for row in found["train_dataset"]]
    assert packed(config, tokenizer.eos_token_id) == theirs
