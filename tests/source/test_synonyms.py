"""Texts of the prompt, and reasoning, under names that a schema does not read: refused, and never lost silently."""

import json
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from packer.audit import preview, view_row
from packer.errors import NothingKeptError
from packer.pipeline.from_python import build
from packer.recipe import make_recipe
from packer.source.decode import Refused
from packer.source.file_cuts import partition_file
from packer.source.rows import read_rows
from packer.source.schema import SCHEMAS, columns_read, read_row
from packer.source.synonyms import SYNONYMS, meant_field
from packer.store.cache import Cache

CHAT = [{"role": "user", "content": "question"}, {"role": "assistant", "content": "answer"}]
ROWS = {
    "messages": {"messages": CHAT},
    "sharegpt": {"conversations": [{"from": "human", "value": "question"}, {"from": "gpt", "value": "answer"}]},
    "alpaca": {"instruction": "question", "output": "answer"},
    "preference": {"prompt": CHAT[:1], "chosen": CHAT[1:], "rejected": [CHAT[1] | {"content": "other"}]},
    "rated": {"prompt": CHAT[:1], "completion": CHAT[1:], "label": True},
}
NAMES = (
    "meta_instruction",
    "systemInstruction",
    "document",
    "thought",
    "system_prompt",
    "System Prompt",
    "systemMessage",
    "context",
    "passage",
    "cot",
    "Complex-CoT",
    "topic",
)


def test_names_stand_for_fields_of_alpaca() -> None:
    assert {meant_field(name) for name in NAMES} == {"system", "input", "reasoning", None}
    assert SYNONYMS.keys() <= SCHEMAS["alpaca"].fields


def everything_said(row, schema, columns):
    """All that a sample says, as one text."""
    return repr(read_row(row, number=0, schema=schema, columns=columns))


@given(
    schema=st.sampled_from(sorted(ROWS)),
    name=st.sampled_from(NAMES),
    text=st.sampled_from(
        [
            "kept apart",
            " kept apart\n",
            "",
            " ",
            None,
            7,
            ["kept apart"],
            [{"type": "text", "text": "kept apart"}],
            "off",
        ]
    ),
)
def test_a_text_is_read_or_refused_and_the_reason_says_how_it_is_read_or_left_out(schema, name, text) -> None:
    row = ROWS[schema] | {name: text}
    has_place = meant_field(name) in SCHEMAS[schema].fields
    is_setting = text == "off" and meant_field(name) == "reasoning"
    is_text = isinstance(text, str) and bool(text.strip())
    said_apart = text.strip() if is_text else "kept apart"
    is_list = isinstance(text, list)  # as retrieved passages are
    try:
        said = everything_said(row, schema, {})
    except Refused as refused:
        if refused.code == "unread_content":
            assert (is_text or is_list) and has_place
            *reads, hides = (yaml.safe_load(part.split("`")[0]) for part in refused.reason.split("`columns: ")[1:])
            assert hides == {name: None}
            assert said_apart not in everything_said(row, schema, hides)
            is_parts = meant_field(name) == "system" and isinstance(text[0], dict)
            assert not reads or is_parts or (is_text and not is_setting)
            # This form of pairs and rated rows may lack what another form has.
            assert reads or not (is_parts or is_text) or is_setting or schema in {"preference", "rated"}
            for columns in reads:
                assert said_apart in everything_said(row, schema, columns)
    else:
        assert not ((is_text or is_list) and has_place) or said_apart in said


@pytest.mark.parametrize("schema", ["messages", "sharegpt"])
def test_a_system_prompt_that_the_messages_have_is_not_lost(sample, schema) -> None:
    key, first = {
        "messages": ("messages", {"role": "system", "content": "be kind"}),
        "sharegpt": ("conversations", {"from": "system", "value": "be kind"}),
    }[schema]
    row = {key: [first, *ROWS[schema][key]], "system_prompt": "be kind"}
    expected = sample({key: row[key]}, schema).messages
    assert sample(row, schema).messages == expected
    assert sample(row, schema, columns={"system": "system_prompt"}).messages == expected


def test_context_is_the_input_as_dolly_calls_it(sample, refusal) -> None:
    (question, _) = sample({"instruction": "When?", "context": "In 1970.", "response": "1970"}, "alpaca").messages
    assert question.fields["content"] == "When?\nIn 1970."
    (question, _) = sample({"instruction": "When?", "context": "", "response": "1970"}, "alpaca").messages
    assert question.fields["content"] == "When?"
    assert refusal({"instruction": "a", "input": "b", "context": "c", "output": "d"}, "alpaca")[0] == "unread_content"


@pytest.mark.parametrize("context", [["passage", "another"], {"title": ["t"], "sentences": [["passage"]]}])
def test_a_context_that_is_no_text_is_not_lost(sample, refusal, context) -> None:
    """Retrieved passages are lists, and HotpotQA's are lists in an object."""
    row = {"instruction": "a", "context": context, "output": "c"}
    code, reason = refusal(row, "alpaca")
    assert code == "unread_content" and reason.endswith("`columns: {context: null}` leaves it out")
    hidden = sample(row, "alpaca", columns={"context": None})
    assert hidden.messages[0].fields["content"] == "a"
    assert sample(row | {"context": ["a", " ", 7]}, "alpaca").messages == hidden.messages  # says nothing else


def test_context_beside_a_completion_is_in_its_prompt_or_refused(sample, refusal) -> None:
    row = {"prompt": "In 1970. When?", "completion": "1970", "context": "In 1970."}
    assert sample(row, "completion").prompt == "In 1970. When?"
    code, reason = refusal(row | {"prompt": "When?"}, "completion")
    assert code == "unread_content" and "input: context" in reason


PARTS = [{"type": "text", "text": "kept apart"}]


def test_bytes_are_no_texts_and_take_no_time(sample):
    """Rows from Python may have them; they were searched value by value."""
    started = time.monotonic()
    for value in (bytes(2 * 10**7), [bytearray(2 * 10**7)]):
        assert sample(ROWS["alpaca"] | {"document": value}, "alpaca") == sample(ROWS["alpaca"], "alpaca")
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("name", ["documents", "cot"])
def test_parts_are_read_as_a_system_message_alone(refusal, sample, name):
    """The reason named columns with which the row was refused for the type."""
    code, reason = refusal(ROWS["alpaca"] | {name: PARTS}, "alpaca")
    assert code == "unread_content" and reason == f"`{name}` is not read; `columns: {{{name}: null}}` leaves it out"
    code, reason = refusal(ROWS["alpaca"] | {"system_prompt": PARTS}, "alpaca")
    assert code == "unread_content" and "`columns: {system: system_prompt}` reads it" in reason
    assert "reads" not in refusal(ROWS["alpaca"] | {"system_prompt": [{"type": "image"}, *PARTS]}, "alpaca")[1]


def test_a_setting_is_not_proposed_as_reasoning(refusal):
    code, reason = refusal(ROWS["alpaca"] | {"think": "off"}, "alpaca")
    assert code == "unread_content" and reason == "`think` is not read; `columns: {think: null}` leaves it out"


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_hints_of_a_build_are_followed_literally(starter, tmp_path, kind) -> None:
    path = tmp_path / f"rows.{kind}"
    rows = [{"q": "question", "response": "answer", "system_prompt": f"be {number}"} for number in range(3)]
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)

    def recipe(columns):
        source = {"path": str(path), "columns": columns}
        return make_recipe({"sources": [source], "tokenizer": str(starter / "tokenizer")})

    first = recipe({"instruction": "q"})
    with pytest.raises(NothingKeptError, match="unread_content") as caught:
        build(first, tmp_path / "cache")
    assert caught.value.hint == preview(first).rows[0].hint
    reads, hides = (yaml.safe_load(part.split("'")[0]) for part in caught.value.hint.split("sources.columns=")[1:])
    assert reads == {"instruction": "q", "system": "system_prompt"}
    assert hides == {"instruction": "q", "system_prompt": None}
    for columns, is_read in ((reads, True), (hides, False)):
        folder = tmp_path / f"cache{is_read}"
        assert build(recipe(columns), folder).manifest.totals.kept == 3
        with Cache.open(folder) as cache:
            shown = "".join(run.text for run in view_row(cache, path.name, 2).documents[0].runs)
        assert ("be 2" in shown) == is_read and "question" in shown


ASKED = [*CHAT, {"role": "user", "content": "and then?"}]
FROM_ASKED = [*ROWS["sharegpt"]["conversations"], {"from": "human", "value": "and then?"}]


@pytest.mark.parametrize("name", ["answer", "Response", "completion", "target"])
def test_the_answer_to_messages_in_another_field_is_not_lost(sample, refusal, name) -> None:
    """The answers before it were trained, and the last question and its answer were lost."""
    row = {"messages": ASKED, name: "kept apart"}
    code, reason = refusal(row)
    assert code == "unread_content"
    reads, hides = (yaml.safe_load(part.split("`")[0]) for part in reason.split("`columns: ")[1:])
    assert reads == {"prompt": "messages", "completion": name} and hides == {name: None}
    assert sample(row, "completion", columns=reads).messages[-1].fields["content"] == "kept apart"
    assert sample(row, columns=hides) == sample({"messages": ASKED})
    assert sample({"messages": CHAT, name: "kept apart"}) == sample({"messages": CHAT})  # a label, or another's answer
    assert sample({"messages": ASKED, name: " question "}) == sample({"messages": ASKED})


@pytest.mark.parametrize("name", ["answer", "target", "generation", "response"])
@pytest.mark.parametrize("label", ["B", "positive", "gpt-4o"])
def test_a_short_answer_is_lost_whatever_letters_the_messages_have(sample, refusal, name, label):
    """A file of questions with choices was divided by whether a message had a B in it."""
    for said in ("Which one?", f"A or B? Be positive, {label}!"):
        row = {"messages": [{"role": "user", "content": said}], name: label}
        assert refusal(row)[0] == "unread_content"
        assert sample(
            {"messages": [*row["messages"], CHAT[1]], name: label}
        ).messages  # what they end with is the answer
    assert sample({"messages": [{"role": "user", "content": f" {label}"}], name: label}).messages


@pytest.mark.parametrize(
    ("schema", "row"),
    [
        ("messages", {"messages": ASKED, "answers": ["kept apart"]}),
        ("messages", {"messages": ASKED, "response": {"choices": [{"message": {"content": "kept apart"}}]}}),
        ("sharegpt", {"conversations": FROM_ASKED, "response": "kept apart"}),
    ],
)
def test_an_answer_that_columns_cannot_read_is_not_lost_either(sample, refusal, schema, row) -> None:
    code, reason = refusal(row, schema)
    name = [*row][-1]
    assert code == "unread_content" and reason.endswith(f"`columns: {{{name}: null}}` leaves it out")
    assert sample(row, schema, columns={name: None}).messages


def test_the_answer_in_a_column_of_a_table_is_read_to_be_refused(tmp_path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([{"messages": ASKED, "answer": "kept apart"}]), path)
    assert set(columns_read(["messages", "answer", "score"], "messages", {})) == {"messages", "answer"}
    (piece,) = partition_file(path, format="parquet", partition_bytes=1000).partitions
    (batch,) = read_rows(piece, schema="messages", columns={}, max_row_bytes=1000)
    assert [each.code for each in batch.rejections] == ["unread_content"]


@pytest.mark.parametrize("schema", [*ROWS, "completion"])
@pytest.mark.parametrize("as_text", [False, True])
def test_tools_under_another_name_are_not_lost(sample, refusal, schema, as_text) -> None:
    """As Toucan's `available_tools`: the model learned to call tools that it was not shown."""
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {}}}]
    row = {"prompt": CHAT[:1], "completion": CHAT[1:]} if schema == "completion" else ROWS[schema]
    found = row | {"available_tools": json.dumps(tools) if as_text else tools}
    code, reason = refusal(found, schema)
    reads, hides = (yaml.safe_load(part.split("`")[0]) for part in reason.split("`columns: ")[1:])
    assert code == "unread_content" and reads == {"tools": "available_tools"} and hides == {"available_tools": None}
    assert sample(found, schema, columns=reads) == sample(row | {"tools": tools}, schema)
    assert sample(found, schema, columns=hides) == sample(row, schema)
    assert sample(row | {"available_tools": "[]"}, schema).tools is None


def test_tools_beside_a_prompt_of_text_are_read_as_those_of_a_chat(refusal) -> None:
    row = {"prompt": "question", "completion": "answer", "tool_definitions": '[{"name": "f"}]'}
    code, reason = refusal(row, "completion")
    assert code == "unread_content"
    assert "`columns: {instruction: prompt, output: completion, tools: tool_definitions}` reads it" in reason
