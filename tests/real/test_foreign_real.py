"""Real conversations prepared by TRL under the Qwen3 tokenizer, looked at: what it trains, told truthfully."""

import json
import types

import pytest

from packer.audit.foreign import audit_foreign

pytestmark = [pytest.mark.real, pytest.mark.slow]

FILES = {"formats/tinker_conversations.jsonl": 128, "multilingual_chat_a.jsonl": 200}
"""File → rows taken of it."""


@pytest.fixture(scope="module")
def prepare(real, tmp_path_factory):
    sft = pytest.importorskip("trl.trainer.sft_trainer")
    import datasets
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(real / "tokenizers/qwen3")
    tokenizer.chat_template = (real / "templates/trl__qwen3.jinja").read_text("utf-8")

    def prepare(rows, *, template=None):
        trainer = sft.SFTTrainer.__new__(sft.SFTTrainer)
        trainer._tokenizer, trainer.completion_only_loss = tokenizer, "prompt" in rows[0]
        trainer.chat_template = template and (real / f"templates/{template}").read_text("utf-8")
        args = types.SimpleNamespace(
            dataset_num_proc=None, dataset_text_field="text", assistant_only_loss=template is not None, max_length=None,
            truncation_mode="keep_start", shuffle_dataset=False, packing_strategy="bfd", seed=0,
        )  # fmt: skip
        dataset = trainer._prepare_dataset(datasets.Dataset.from_list(rows), tokenizer, args, False, None, "train")
        folder = tmp_path_factory.mktemp("trl") / "rows"
        dataset.save_to_disk(folder)
        return folder, dataset

    return prepare


@pytest.fixture(scope="module", params=FILES)
def conversations(real, request):
    lines = (real / "corpora" / request.param).read_text("utf-8").splitlines()
    rows = [json.loads(line)["messages"] for line in lines]
    rows = [messages for messages in rows if messages[-1]["role"] == "assistant"]
    return rows[: FILES[request.param]]


def looked(real, folder):
    report = audit_foreign(
        folder, tokenizer=real / "tokenizers/qwen3", template=real / "templates/trl__qwen3.jinja", sample=None
    )
    return {finding.code: (finding.count, finding.num_rows) for finding in report.findings}, report


def test_conversations_as_messages_train_every_prompt(real, prepare, conversations):
    folder, _ = prepare([{"messages": messages} for messages in conversations])
    counts, report = looked(real, folder)
    assert counts["prompt_trained"][1] == len(conversations) > 50
    assert "terminator_masked" not in counts and "labels_shifted" not in counts
    assert report.header == "<|im_start|>assistant"


def test_prompts_and_completions_have_no_error(real, prepare, conversations):
    folder, dataset = prepare([{"prompt": messages[:-1], "completion": messages[-1:]} for messages in conversations])
    counts, report = looked(real, folder)
    assert report.ok and report.trained == sum(label != -100 for row in dataset["labels"] for label in row)
    assert counts == {}


def test_marks_of_the_training_template_have_no_error(real, prepare, conversations):
    folder, _ = prepare([{"messages": messages} for messages in conversations], template="trl__qwen3_training.jinja")
    counts, report = looked(real, folder)
    assert report.ok and counts == {}
