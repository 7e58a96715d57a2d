"""No word of a row is lost without a word: read as by somebody who knows no schema."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import twins
from chats import chat
from hypothesis import given
from hypothesis import strategies as st
from search_effort import percent_of_examples
from supervision_stages import Stages
from watched_builds import Notes

from packer.batches import Sample
from packer.errors import InputError
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
from packer.source.decode import Refused
from packer.source.schema import read_row
from packer.store.manifest import read_manifest
from packer.store.row_tables import read_rejected

KEYS = ("content", "value", "text", "output", "result", "body", "thinking", "name", "refusal", "train", "tool_call_id")
ROLES = ("system", "user", "assistant", "tool", "function_call")
READ = {"role", "content", "reasoning_content", "thinking", "reasoning", "tool_calls"}
CALLS: Any = st.sampled_from([None, [], [{"function": {"name": "WORD", "arguments": {"WORD": "WORD"}}}]])


@st.composite
def chats(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A chat whose values are words that stand once, under keys that may mean something; it ends with an answer."""
    schema: str = draw(st.sampled_from(["messages", "sharegpt"]))
    who, said, name = ("role", "content", "messages") if schema == "messages" else ("from", "value", "conversations")
    fields = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["WORD", "WORD", "", None]), max_size=3)
    turns = []
    for _ in range(draw(st.integers(1, 4))):
        told = {said: "WORD"} if draw(st.booleans()) else {}
        calls = {"tool_calls": found} if (found := draw(CALLS)) else {}
        turns.append({who: draw(st.sampled_from(ROLES))} | told | draw(fields) | calls)
    turns += [{who: "user", said: "WORD"}, {who: "assistant", said: "WORD"}]
    numbers = iter(range(10**6, 10**7))
    return schema, json.loads(re.sub("WORD", lambda _: f"word{next(numbers)}", json.dumps({name: turns})))


def unused_keys(samples: list[Sample]) -> set[str]:
    """The keys of messages that packer passes on without a meaning of its own."""
    return {key for sample in samples for each in sample.all_messages for key in each.fields}.difference(READ)


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    return Stages.load(twins.byte_level(tmp_path_factory.mktemp("tokenizer")))


def test_every_word_of_a_kept_chat_is_rendered_or_stands_under_a_key_that_is_reported(stages: Stages) -> None:
    seen = {"kept": 0, "told": 0, "refused": 0}

    @percent_of_examples(200)
    @given(chats())
    def is_kept_or_told(chat: tuple[str, dict[str, Any]]) -> None:
        schema, row = chat
        try:
            sample: Sample = read_row(row, number=0, schema=schema, columns={})
        except Refused:
            seen["refused"] += 1
            return
        turns = stages.render([sample])
        if turns.rejections:
            seen["refused"] += 1
            return
        told = {*unused_keys([sample]), "tool_call_id"}
        for message in next(iter(row.values())):
            for key, value in message.items():
                for word in re.findall(r"word\d+", json.dumps(value)):
                    assert word.encode() in turns.text or key in told, (key, row)
        seen["kept"] += 1
        seen["told"] += len(told) > 1

    is_kept_or_told()
    assert all(seen.values()), seen


def build_rows(rows: list[Any], folder: Path, cache: str, *overrides: str, **source: Any) -> list[str]:
    """The notes of a build of these rows."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    if not (folder / "tokenizer").exists():
        twins.byte_level(folder / "tokenizer")
    values = {"sources": [{"path": str(folder / "rows.jsonl"), **source}], "tokenizer": str(folder / "tokenizer")}
    notes = Notes()
    build(make_recipe(values, ["partition_bytes=2000", *overrides]), folder / cache, jobs=1, progress=notes)
    return notes.notes


def test_an_empty_user_message_rejects_its_row_unless_the_recipe_keeps_it(tmp_path: Path) -> None:
    rows = [chat("0?", "0!"), chat("", "1!"), chat("2?", "2!")]
    rows[2]["messages"].insert(0, {"role": "system", "content": ""})
    build_rows(rows, tmp_path, "cache")
    manifest = read_manifest(tmp_path / "cache")
    (line,) = read_rejected(tmp_path / "cache", manifest)
    assert (line.row, line.code, line.reason) == (1, "no_content", "messages[0]: the user message is empty")
    build_rows(rows, tmp_path, "kept", "rows.empty_user=keep")
    assert read_manifest(tmp_path / "kept").totals.kept == 3


def test_a_column_that_no_row_of_a_source_has_is_refused(tmp_path: Path) -> None:
    rows = [{"q": "a", "cot": "b", "a": "c"}] * 3
    columns = {"instruction": "q", "reasoning": "cto", "output": "a"}
    with pytest.raises(InputError, match="`columns` takes 'reasoning' from `cto`") as caught:
        build_rows(rows, tmp_path, "cache", columns=columns)
    assert caught.value.hint == "did you mean 'cot'?"
    with pytest.raises(InputError, match="`columns` names `banana`, which is not a field of schema alpaca"):
        build_rows(rows, tmp_path, "cache", columns={"instruction": "q", "output": "a", "banana": "cot"})
    build_rows(rows, tmp_path, "cache", "supervision.reasoning=inline", columns=columns | {"reasoning": "cot"})


def test_fields_that_only_later_rows_have_are_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer.source.detect._SAMPLED_BYTES", 2000)
    rows = [chat(f"{i}?", f"{i}!") | {"source": "x", "id": i, "t" * 50: "y"} for i in range(40)]
    rows[30] |= {"summary": "late", "system": "be kind", "score": 1}
    rows[35] |= {"summary": "later", "notes\n": None}
    rows[38] = {"no chat": "at all"}
    filters = "filters=[{name: low, field: score, max: 3}]"
    later = "rows.jsonl: fields of later rows that are not read: `no chat`, `notes\\n`, `summary`; `--columns` maps"
    (told,) = [note for note in build_rows(rows, tmp_path, "cache", filters) if "later rows" in note]
    assert later in told
    hidden = {"columns": {"summary": None, "no chat": None, "notes\n": None}}
    assert not [note for note in build_rows(rows, tmp_path, "hidden", filters, **hidden) if "later rows" in note]
    assert not [note for note in build_rows(rows, tmp_path, "cache", filters) if "later rows" in note]
