"""What axolotl really prepares of conversations, looked at: each of its settings shows as what it does."""

import json
import os

import pytest

from packer.audit.foreign import audit_foreign

pytestmark = pytest.mark.slow

CHATS = [
    [("why is the sky blue?", "light is scattered"), ("and at night?", "it is dark")],
    [("count", "1 2 3"), ("again", "3 2 1")],
    [("say something long", "word " * 60)],
]


@pytest.fixture
def prepared(starter, tmp_path):
    """Prepares the conversations as `axolotl preprocess` does, with sample packing, and saves them."""
    pytest.importorskip("axolotl", reason="PEER MISSING: axolotl; make peers")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    import datasets
    from axolotl.utils.data.sft import _load_and_process_single_dataset
    from axolotl.utils.dict import DictDefault
    from axolotl.utils.trainer import process_datasets_for_packing
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    rows = [
        {
            "messages": [
                m for q, a in chat for m in ({"role": "user", "content": q}, {"role": "assistant", "content": a})
            ]
        }
        for chat in CHATS
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def prepare(*, train_on_inputs=False, **settings):
        template = {"chat_template": "chatml"}
        config = {
            "sample_packing": True,
            "sequence_len": 512,
            "train_on_inputs": train_on_inputs,
            "dataset_processes": 1,
        }
        fields = {"field_messages": "messages", "message_property_mappings": {"role": "role", "content": "content"}}
        source = {"path": str(tmp_path / "rows.jsonl"), "ds_type": "json", "type": "chat_template"}
        dataset, _ = _load_and_process_single_dataset(
            dataset_config=DictDefault(source | fields | template | settings),
            cfg=DictDefault(config | template),
            tokenizer=AutoTokenizer.from_pretrained(starter / "tokenizer"),
            split="train",
            seed=0,
        )
        dataset, _ = process_datasets_for_packing(DictDefault(config), dataset, None)
        dataset.save_to_disk(tmp_path / "prepared")
        report = audit_foreign(tmp_path / "prepared", tokenizer=starter / "tokenizer", sample=None)
        assert report.num_rows == len(CHATS) and "position_ids" in report.columns
        return {finding.code: finding.count for finding in report.findings}

    return prepare


def test_its_defaults_are_clean(prepared):
    assert prepared() == {}


def test_training_on_inputs_trains_the_prompts(prepared):
    assert prepared(train_on_inputs=True).keys() == {"prompt_trained"}


@pytest.mark.parametrize(("on", "masked"), [("last", 2), ("none", 5)])
def test_stop_tokens_it_does_not_train_are_not_learned(prepared, on, masked):
    assert prepared(train_on_eos=on) == {"terminator_masked": masked}


def test_stop_tokens_of_prompts_it_trains_are_prompts(prepared):
    assert prepared(train_on_eos="all") == {"prompt_trained": 5}
