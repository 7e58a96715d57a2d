"""Every real corpus is detected, cut and read.

The table holds, for every file, its format, its schema, its rows, and those that are rejected.
"""

from collections import Counter
from pathlib import Path

import pytest
from read_files import read_file
from search_effort import IS_DEEP

from packer.questions.unread_text import find_unread
from packer.rejections import CODES
from packer.source.detect import first_rows

OF_PAIRS = {"pair_empty_side": 4, "wrong_type": 4}
CORPORA = {
    "alpaca_en_52k.jsonl": ("jsonl", "alpaca", 52002, {"multimodal": 5}),
    "formats/axolotl_conversation.missingturns.json": ("json", "sharegpt", 1, {}),
    "formats/fastchat_dummy_conversation.json": ("json", "sharegpt", 500, {}),
    "formats/openai_toy_chat_fine_tuning.jsonl": ("jsonl", "messages", 10, {}),
    "formats/swift_alpaca.csv": ("csv", "alpaca", 3, {}),
    "formats/swift_alpaca.jsonl": ("jsonl", "alpaca", 3, {}),
    "formats/swift_chatml.jsonl": ("jsonl", "messages", 3, {}),
    "formats/swift_conversations.jsonl": ("jsonl", "sharegpt", 3, {}),
    "formats/swift_multi.jsonl": ("jsonl", "alpaca", 3, {}),
    "formats/swift_multi_modal_1.jsonl": ("jsonl", "alpaca", 3, {"multimodal": 2}),
    "formats/swift_sharegpt.jsonl": ("jsonl", "sharegpt", 3, {}),
    "formats/swift_single.jsonl": ("jsonl", "alpaca", 3, {}),
    "formats/tinker_conversations.jsonl": ("jsonl", "messages", 128, {}),
    "gsm8k_1319.jsonl": ("jsonl", "alpaca", 1319, {}),
    "hh_harmless_test_messages.jsonl": ("jsonl", "messages", 2312, {"wrong_type": 8}),
    "kdconv_zh_devtest.jsonl": ("jsonl", "messages", 900, {}),
    "llamafactory/alpaca_en_demo.json": ("json", "alpaca", 999, {}),
    "llamafactory/alpaca_zh_demo.json": ("json", "alpaca", 1000, {}),
    "llamafactory/dpo_en_demo.json": ("json", "preference", 300, {}),
    "llamafactory/glaive_toolcall_en_demo.json": ("json", "sharegpt", 300, {}),
    "llamafactory/glaive_toolcall_zh_demo.json": ("json", "sharegpt", 300, {}),
    "llamafactory/identity.json": ("json", "alpaca", 91, {}),
    "llamafactory/kto_en_demo.json": ("json", "rated", 300, {}),
    "llamafactory/mllm_demo.json": ("json", "messages", 6, {}),
    "llamafactory/reason_tool_use_demo_50.jsonl": ("jsonl", "messages", 50, {}),
    "llamafactory/v1_dpo_demo.jsonl": ("jsonl", "preference", 10, {}),
    "llamafactory/v1_multimodal_demo.jsonl": ("jsonl", "messages", 24, {}),
    "llamafactory/v1_sft_demo.jsonl": ("jsonl", "messages", 500, {}),
    "multilingual_chat_a.jsonl": ("jsonl", "messages", 3055, {}),
    "preference/hh_harmless_pairs_messages_1500.jsonl": ("jsonl", "preference", 1500, OF_PAIRS),
    "preference/hh_harmless_pairs_raw_1500.jsonl": ("jsonl", "preference", 1500, OF_PAIRS),
    "reason_tool_use_openai_50.jsonl": ("jsonl", "messages", 50, {}),
    "sgd_train_chat_1800.jsonl": ("jsonl", "messages", 1800, {}),
    "sgd_train_tools_600.jsonl": ("jsonl", "messages", 600, {}),
    "taubench_airline_gpt4o.jsonl": ("jsonl", "messages", 200, {}),
}
LARGE = {
    *("alpaca_en_52k.jsonl", "multilingual_chat_a.jsonl", "preference/hh_harmless_pairs_raw_1500.jsonl"),
    "preference/hh_harmless_pairs_messages_1500.jsonl",
    *("sgd_train_chat_1800.jsonl", "sgd_train_tools_600.jsonl", "hh_harmless_test_messages.jsonl"),
}
COLUMNS: dict[str, dict[str, str | None]] = {"gsm8k_1319.jsonl": {"instruction": "question", "output": "answer"}}
"""Of the corpora whose fields no schema has: what is called otherwise in them."""


@pytest.mark.real
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in CORPORA])
def test_every_row_of_a_real_corpus_becomes_a_sample_or_a_documented_rejection(real, name):
    found = read_file(real / "corpora" / name, columns=COLUMNS.get(name), partition_bytes=10**6)
    samples, rejected = found.samples, Counter(found.codes)
    print(f"{name}: {found.format}, {found.schema}, {len(samples)} samples, rejected {dict(rejected)}")
    assert set(rejected) <= set(CODES)
    for message in (message for sample in samples for message in sample.messages):
        assert all(isinstance(call["function"]["arguments"], dict) for call in message.fields.get("tool_calls") or ())
    assert (found.format, found.schema, len(found.rows), dict(rejected)) == CORPORA[name]


@pytest.mark.real
def test_the_table_holds_every_corpus(real):
    found = {path.relative_to(real / "corpora").as_posix() for path in (real / "corpora").rglob("*.*")}
    assert found == set(CORPORA)


@pytest.mark.parametrize("name", CORPORA)
def test_no_real_corpus_is_asked_about_but_runs_of_which_some_failed(real: Path, name: str) -> None:
    """They are all right as they are, save that some runs earned no reward: nothing that they say is lost."""
    path = real / "corpora" / name
    kind, schema, _, _ = CORPORA[name]
    columns = COLUMNS.get(name, {})
    number = 1000 if IS_DEEP else 200 if "taubench" in name else 60  # runs that failed are told by many
    rows = list(first_rows(path, kind, columns, number))
    assert rows
    asked = [each.path for each in find_unread(rows, schema=schema, columns=columns, roles={}).fields]
    assert asked == (["reward"] if "taubench" in name else [])
