"""What TRL really prepares, looked at: its own tokenization, masks, packing and truncation of small conversations."""

import types

import numpy as np
import pytest
from export import readers

from packer.audit.foreign import audit_foreign
from packer.export.run import export

pytestmark = pytest.mark.slow  # importing TRL takes longer than a room's tests; test_defects plants what it finds

CHATS = [
    [("why is the sky blue?", "light is scattered"), ("and at night?", "it is dark")],
    [("count", "1 2 3\n\n4")],
    [("say something long", "word " * 60)],
]
MESSAGES = [
    [m for q, a in chat for m in ({"role": "user", "content": q}, {"role": "assistant", "content": a})]
    for chat in CHATS
]
MARKED = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}INSIDE{% endgeneration %}OUTSIDE{{ '\\n' }}"
    "{% else %}{{ m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@pytest.fixture(scope="module")
def prepared(starter, tmp_path_factory):
    """Prepares rows as SFTTrainer does, and saves them; returns the folder."""
    sft = pytest.importorskip("trl.trainer.sft_trainer")
    import datasets
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()

    def prepare(rows, *, template=None, assistant_only=False, packing=False, max_length=None, strategy="bfd"):
        tokenizer = AutoTokenizer.from_pretrained(starter / "tokenizer")
        trainer = sft.SFTTrainer.__new__(sft.SFTTrainer)
        trainer._tokenizer, trainer.chat_template = tokenizer, template
        trainer.completion_only_loss = "prompt" in rows[0]
        args = types.SimpleNamespace(
            dataset_num_proc=None, dataset_text_field="text", assistant_only_loss=assistant_only, max_length=max_length,
            truncation_mode="keep_start", shuffle_dataset=False, packing_strategy=strategy, seed=0,
        )  # fmt: skip
        rows = rows if isinstance(rows, datasets.Dataset) else datasets.Dataset.from_list(rows)
        dataset = trainer._prepare_dataset(rows, tokenizer, args, packing, None, "train")
        folder = tmp_path_factory.mktemp("trl") / "rows"
        dataset.save_to_disk(folder)
        return folder

    return prepare


@pytest.fixture
def looked(starter):
    def look(folder, **named):
        report = audit_foreign(folder, tokenizer=starter / "tokenizer", **named)
        return {finding.code: finding.num_rows for finding in report.findings if finding.level != "note"}, report

    return look


def test_its_default_for_conversations_trains_the_prompts(prepared, looked):
    counts, report = looked(prepared([{"messages": messages} for messages in MESSAGES]))
    assert counts["prompt_trained"] == len(CHATS) and not report.ok


def test_prompt_and_completion_are_learned_as_they_should(prepared, looked):
    rows = [{"prompt": messages[:-1], "completion": messages[-1:]} for messages in MESSAGES]
    counts, report = looked(prepared(rows))
    assert counts == {} and report.ok
    counts, report = looked(prepared(rows, packing=True, max_length=256))
    assert report.ok and "seq_lengths" in report.columns


def test_marks_that_hold_the_stop_token_are_clean_and_others_leave_it_unlearned(prepared, looked):
    rows = [{"messages": messages} for messages in MESSAGES]
    inside = MARKED.replace("INSIDE", "<|im_end|>").replace("OUTSIDE", "")
    counts, _ = looked(prepared(rows, template=inside, assistant_only=True))
    assert counts == {}
    outside = MARKED.replace("INSIDE", "").replace("OUTSIDE", "<|im_end|>")
    counts, report = looked(prepared(rows, template=outside, assistant_only=True))
    assert counts == {"terminator_masked": 3}
    assert report.findings[0].count == 4


def test_truncation_leaves_answers_without_an_end(prepared, looked):
    rows = [{"prompt": messages[:-1], "completion": messages[-1:]} for messages in MESSAGES]
    counts, report = looked(prepared(rows, max_length=24))
    assert counts["no_terminator"] >= 1 and report.ok


@pytest.mark.parametrize("strategy", ["wrapped", "bfd_split"])
def test_rows_that_are_packed_by_length_alone_begin_and_end_within_messages(prepared, looked, strategy):
    rows = [{"prompt": messages[:-1], "completion": messages[-1:]} for messages in MESSAGES]
    counts, report = looked(prepared(rows, packing=True, max_length=64, strategy=strategy))
    # One of the three conversations is longer than a row: its beginning ends one, and its end is another.
    assert counts == {"no_terminator": 1, "no_header": 1}
    assert report.ok and report.num_rows == 3


def test_trl_collates_exported_blocks_with_the_borders_of_the_cache(starter_cache, tmp_path):
    datasets = pytest.importorskip("datasets")
    collators = pytest.importorskip("trl.trainer.sft_trainer")
    export(starter_cache, tmp_path / "out", to="datasets", unit="blocks", split="train")
    rows = list(datasets.load_from_disk(tmp_path / "out"))[:5]
    collate = collators.DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    batch = collate([{name: row[name] for name in ("input_ids", "labels", "seq_lengths")} for row in rows])
    assert batch["position_ids"][0].tolist() == [p for row in rows for p in row["position_ids"]]
    assert batch["labels"][0].tolist() == [label for row in rows for label in row["labels"]]
    ends = np.cumsum([length for row in rows for length in row["seq_lengths"]]).tolist()
    assert batch["cu_seq_lens_q"].tolist() == [0, *ends]


def test_trl_leaves_exported_documents_as_they_are(starter_cache, tmp_path, prepared):
    datasets = pytest.importorskip("datasets")
    export(starter_cache, tmp_path / "out", to="datasets", split="train")
    again = datasets.load_from_disk(prepared(datasets.load_from_disk(tmp_path / "out")))
    expected = readers.cache_documents(starter_cache, "train")
    assert [(row["input_ids"], row["labels"]) for row in again] == expected and expected
