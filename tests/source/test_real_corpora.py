"""Every real corpus is detected, cut and read.

The table holds, for every file, its format, its schema, its rows, and those that are rejected.
"""

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest
from read_files import read_file
from search_effort import IS_DEEP
from written_formats import as_arrow, as_csv, as_jsonl, as_parquet, packed

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
COLUMNS = {"gsm8k_1319.jsonl": {"instruction": "question", "output": "answer"}}
"""Of the corpora whose fields no schema has: what is called otherwise in them."""


def samples_of(path: Path, *, columns=None):
    """Samples and rejections of a whole file, read partition by partition."""
    return read_file(path, columns=columns, partition_bytes=10**6)


@pytest.mark.real
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in CORPORA])
def test_every_row_of_a_real_corpus_becomes_a_sample_or_a_documented_rejection(real, name):
    found = samples_of(real / "corpora" / name, columns=COLUMNS.get(name))
    samples, rejected = found.samples, Counter(found.codes)
    print(f"{name}: {found.format}, {found.schema}, {len(samples)} samples, rejected {dict(rejected)}")
    assert set(rejected) <= set(CODES)
    for message in (message for sample in samples for message in sample.messages):
        assert all(isinstance(call["function"]["arguments"], dict) for call in message.fields.get("tool_calls") or ())
    assert (found.format, found.schema, len(found.rows), dict(rejected)) == CORPORA[name]


def rows_in(path, number):
    """The first rows of a corpus as values, read without packer."""
    with path.open(encoding="utf-8-sig") as file:
        found = json.load(file) if path.suffix == ".json" else map(json.loads, filter(str.strip, file))
        return [*islice([found] if isinstance(found, dict) else found, number)]


IN_NO_TABLE = {"reason_tool_use_openai_50.jsonl"}
"""An argument of its calls is a number in one row and a text in another, which no table holds."""


@pytest.mark.real
@pytest.mark.parametrize("name", [name for name in CORPORA if not name.endswith(".csv")])
@pytest.mark.parametrize("number", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_a_real_corpus_is_the_same_rows_in_every_format(real, name, number, tmp_path):
    """Its first rows converted to CSV, Parquet and Arrow."""
    rows = rows_in(real / "corpora" / name, number)
    (tmp_path / "rows.jsonl").write_bytes(as_jsonl(rows))
    expected = samples_of(tmp_path / "rows.jsonl", columns=COLUMNS.get(name))
    formats = {
        "rows.csv.zst": lambda rows: packed(as_csv(rows), "zstd"),
        "rows.parquet": as_parquet,
        "rows.arrow": as_arrow,
    }
    num_compared = 0
    for file, write in formats.items():
        try:
            (tmp_path / file).write_bytes(write(rows))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            assert name in IN_NO_TABLE
            continue
        found = samples_of(tmp_path / file, columns=COLUMNS.get(name))
        assert (file.split(".")[1], found.schema, found.codes) == (found.format, expected.schema, expected.codes)
        assert [*map(said, found.samples)] == [*map(said, expected.samples)]
        num_compared += 1
    assert num_compared == (1 if name in IN_NO_TABLE else 3)


def said(sample):
    """All of a sample but its number, which is one of its partition."""
    if sample is None:
        return None
    fields = sample.kind, sample.messages, sample.tools, sample.prompt, sample.text, sample.sample_id
    preference = sample.preference
    return *fields, preference and (said(preference.rejected), preference.is_desirable)


@pytest.mark.real
def test_the_table_holds_every_corpus(real):
    found = {path.relative_to(real / "corpora").as_posix() for path in (real / "corpora").rglob("*.*")}
    assert found == set(CORPORA)


@pytest.mark.real
def test_two_spellings_of_one_corpus_become_the_same_samples(real):
    """The restated file says what LLaMA-Factory's content parts say, so the messages must agree."""
    parts = samples_of(real / "corpora" / "llamafactory" / "reason_tool_use_demo_50.jsonl").samples
    restated = samples_of(real / "corpora" / "reason_tool_use_openai_50.jsonl").samples
    assert len(parts) == 50
    for one, other in zip(parts, restated, strict=True):
        assert one.tools == other.tools
        assert [comparable(message) for message in one.messages] == [comparable(message) for message in other.messages]


@pytest.mark.real
def test_transcripts_and_messages_of_the_same_pairs_become_the_same_samples(real):
    """TRL takes the common characters of such transcripts for the prompt, which ends inside an answer in 282 of them."""
    pairs = real / "corpora" / "preference"
    found, restated = (samples_of(pairs / f"hh_harmless_pairs_{form}_1500.jsonl") for form in ("raw", "messages"))
    raw = found.samples
    assert (found.schema, [*map(said, raw)]) == ("preference", [*map(said, restated.samples)])
    assert found.codes == restated.codes and Counter(found.codes) == OF_PAIRS
    cut = 0
    for sample in raw:
        sides = [*zip(sample.messages, sample.preference.rejected.messages, strict=False)]
        parted = next(number for number, (ours, theirs) in enumerate(sides) if ours.fields != theirs.fields)
        assert all(ours is theirs and ours.trained in {None, False} for ours, theirs in sides[:parted])
        ours, theirs = (message.fields["content"] for message in sides[parted])
        cut += ours[:1] == theirs[:1]
    assert cut > 200


def comparable(message):
    """What a message says, without the call's own id, which only OpenAI's form has."""
    fields = message.fields
    calls = [call["function"] for call in fields.get("tool_calls", ())]
    return fields["role"], fields["content"] or "", fields.get("reasoning_content"), calls


@pytest.mark.parametrize("name", CORPORA)
def test_no_real_corpus_is_asked_about_but_runs_of_which_some_failed(real: Path, name: str) -> None:
    """They are all right as they are, save that some runs earned no reward: nothing that they say is lost."""
    path = real / "corpora" / name
    kind, schema, _, _ = CORPORA[name]
    columns: dict[str, str | None] = {"instruction": "question", "output": "answer"} if "gsm8k" in name else {}
    number = 1000 if IS_DEEP else 200 if "taubench" in name else 60  # runs that failed are told by many
    rows = list(first_rows(path, kind, columns, number))
    assert rows
    asked = [each.path for each in find_unread(rows, schema=schema, columns=columns, roles={}).fields]
    assert asked == (["reward"] if "taubench" in name else [])
