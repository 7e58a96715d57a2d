"""Rows in the forms of other servers' requests and logs are built, and read back by someone who knows only the row."""

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import twins
from followed_steps import write
from foreign_rows import CALL, CHAT_CALL, CHAT_TOOLS, PARAMETERS, TEMPLATE, read_back
from hypothesis import given, settings
from hypothesis import strategies as st
from search_effort import each_with_a_kind, one_in
from task_pages import python_of

import packer
from packer.errors import InputError, NothingKeptError
from packer.source.decode import Refused
from packer.source.forms import form_of
from packer.source.schema import read_row, schema_of

SYSTEM, ASKED, THOUGHT = "Answer briefly.", "When is the tide?", "I should look it up."
CALLED, RESULT, SAID = "Oban", "06:12", "At twelve past six."
KINDS = ["jsonl", "parquet"]

DECLARED = {"type": "OBJECT", "properties": {"harbor": {"type": "STRING"}}}
FOUND = {"high": RESULT}
GEMINI: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": SYSTEM}]},
    "tools": [{"functionDeclarations": [{"name": "tide", "description": "tells", "parameters": DECLARED}]}],
    "contents": [
        {"role": "user", "parts": [{"text": ASKED}]},
        {
            "role": "model",
            "parts": [
                {"text": THOUGHT, "thought": True},
                {"functionCall": {"name": "tide", "args": {"harbor": CALLED}}, "thoughtSignature": "c2lnbmF0dXJl"},
            ],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "tide", "response": FOUND}}]},
        {"role": "model", "parts": [{"text": SAID}]},
    ],
}
ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "input_text", "text": ASKED}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": THOUGHT}]},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "tide", "status": "completed"}
    | {"arguments": json.dumps({"harbor": CALLED})},
    {"type": "function_call_output", "call_id": "call_1", "output": json.dumps(FOUND)},
]
REASONED = {"type": "reasoning", "id": "rs_2", "summary": []}
ANSWER_ITEM = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": SAID, "annotations": []}],
}
RESPONSES = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "instructions": SYSTEM,
    "tools": [{"type": "function", "name": "tide", "description": "tells", "parameters": PARAMETERS, "strict": True}],
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": "low", "summary": None},
    "input": ITEMS,
    "output": [REASONED, ANSWER_ITEM],
}
CHAT = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": ASKED},
    {"role": "assistant", "content": None, "reasoning_content": THOUGHT, "tool_calls": [CHAT_CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": json.dumps(FOUND)},
]
REQUEST = {"model": "m", "messages": CHAT, "tools": CHAT_TOOLS}
ANSWER: dict[str, Any] = {"role": "assistant", "content": SAID}
RESPONSE = {"id": "c", "choices": [{"index": 0, "message": ANSWER}]}
ALL, LAST = ["[" + THOUGHT + "]" + CALL, SAID], [SAID]
TRAINED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "gemini": (GEMINI, ALL),
    "responses": (RESPONSES, LAST),
    "responses of which a summary is given": (
        RESPONSES | {"output": [REASONED | {"summary": [{"type": "summary_text", "text": THOUGHT}]}, ANSWER_ITEM]},
        [f"[{THOUGHT}]{SAID}"],
    ),
    "a batch of responses": (
        {
            "custom_id": "1",
            "request": {"method": "POST", "body": {key: RESPONSES[key] for key in ("instructions", "tools", "input")}},
            "response": {"status_code": 200, "body": {"id": "resp_1", "output": RESPONSES["output"]}},
        },
        LAST,
    ),
    "a log of chats": ({"request": REQUEST, "response": RESPONSE}, LAST),
    "a log of chats in a body and none": (
        {"request": {"request_id": "a", "method": "POST", "body": REQUEST}, "response": RESPONSE},
        LAST,
    ),
    "a log of chats in none and a body": ({"request": REQUEST, "response": {"status": 200, "body": RESPONSE}}, LAST),
    "a log of chats as JSON in cells": ({"request": json.dumps(REQUEST), "response": json.dumps(RESPONSE)}, LAST),
    "a request that is the row itself": (REQUEST | {"response": RESPONSE}, LAST),
    "a log of ollama": (REQUEST | {"message": ANSWER, "done_reason": "stop"}, LAST),
    "a log of ollama with JSON in a cell": (REQUEST | {"message": json.dumps(ANSWER)}, LAST),
    "the input of the next run of an agent": (
        {"instructions": SYSTEM, "tools": RESPONSES["tools"], "input": [*ITEMS, ANSWER_ITEM], "last_agent": "tides"},
        ALL,
    ),
    "a log of chats in fields of the row": (
        {"messages": CHAT, "tools": CHAT_TOOLS, "choices": RESPONSE["choices"]},
        LAST,
    ),
    "a log of gemini": (
        {
            "request": GEMINI | {"contents": GEMINI["contents"][:3]},
            "response": {"candidates": [{"content": GEMINI["contents"][3], "finishReason": "STOP"}]},
        },
        LAST,
    ),
    "a log of anthropic": (
        {
            "request": {
                "system": SYSTEM,
                "tools": [{"name": "tide", "description": "tells", "input_schema": PARAMETERS}],
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": ASKED}]},
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "thinking", "thinking": THOUGHT, "signature": "c2lnbmF0dXJl"},
                            {"type": "tool_use", "id": "toolu_1", "name": "tide", "input": {"harbor": CALLED}},
                        ],
                    },
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": json.dumps(FOUND)}],
                    },
                ],
            },
            "response": {"type": "message", "role": "assistant", "content": [{"type": "text", "text": SAID}]},
        },
        LAST,
    ),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return twins.byte_level(tmp_path_factory.mktemp("model") / "model", template=TEMPLATE)


@pytest.fixture
def built(model: Path, tmp_path: Path) -> Any:
    """A cache of a row that is there twice."""

    def build(row: dict[str, Any], kind: str = "jsonl") -> Path:
        packer.build(write(tmp_path / f"rows.{kind}", [row, row]), tmp_path / "cache", tokenizer=model, progress=False)
        return tmp_path / "cache"

    return build


@pytest.mark.parametrize(("name", "kind"), each_with_a_kind(TRAINED, KINDS))
def test_a_request_and_its_answer_are_read_as_what_they_say(name: str, kind: str, built: Any) -> None:
    row, trained = TRAINED[name]
    ((text, learned),) = read_back(built(row, kind), f"rows.{kind}")
    assert learned == [each + "<|im_end|>" for each in trained]
    context = ['"name": "tide"', '"type": "string"', SYSTEM, ASKED, THOUGHT, CALL, f'{{"high": "{RESULT}"}}', SAID]
    places = [text.index(each) for each in context]
    assert places == sorted(places) and text.count(ASKED) == text.count(RESULT) == 1


WRITTEN = [
    *(f"```json\n{CALL}\n```", f"<functioncall> {CALL}", f"<tool_call>\n{CALL}\n</tool_call>"),
    *(f"[TOOL_CALLS] [{CALL}]", 'tide(harbor="Oban")'),
]


@pytest.mark.parametrize("text", WRITTEN)
def test_a_call_that_an_answer_has_as_text_is_trained_as_the_template_writes_calls(text: str, built: Any) -> None:
    asked = {"role": "user", "content": ASKED}
    row = {"messages": [asked, {"role": "assistant", "content": text}], "tools": CHAT_TOOLS}
    (document,) = read_back(built(row), "rows.jsonl")
    assert document[1] == [f"{CALL}<|im_end|>"]


ONE, OTHER = "It leaves at six.", "Ask somebody else."
ARENA = [[{"role": "user", "content": ASKED}, {"role": "assistant", "content": answer}] for answer in (OTHER, ONE)]
COMPARED: dict[str, dict[str, Any]] = {
    "helpsteer 3": {"context": ARENA[0][:1], "response1": OTHER, "response2": ONE, "overall_preference": 2},
    "helpsteer 2": {"prompt": ASKED, "response_1": ONE, "response_2": OTHER, "preference_strength": -1},
    "no underscore": {"prompt": ASKED, "answer0": OTHER, "answer1": ONE, "preferred": "answer1"},
    "a letter": {"prompt": ASKED, "response_A": OTHER, "response_B": ONE, "label": "B"},
    "a name": {"prompt": ASKED, "response_1": ONE, "response_2": OTHER, "preference": "response_1"},
    "another field with a name": {"prompt": ASKED, "output_1": OTHER, "output_2": ONE, "better": "output_2"},
    "scores": {"prompt": ASKED, "response_a": OTHER, "response_b": ONE, "score_a": -2.0, "score_b": "0.5"},
    "ratings": {"instruction": ASKED, "output_1": ONE, "output_2": OTHER, "rating_1": 5, "rating_2": 1},
    "saferlhf": {"prompt": ASKED, "response_0": OTHER, "response_1": ONE, "better_response_id": 1},
    "an arena": {"prompt": ASKED, "response_a": ONE, "response_b": OTHER, "winner": "model_a"},
    "a number that wins": {"prompt": ASKED, "answer_1": OTHER, "answer_2": ONE, "winner": 2},
    "conversations of an arena": {"conversation_a": ARENA[0], "conversation_b": ARENA[1], "winner": "model_b"},
}


@pytest.mark.parametrize(("name", "kind"), each_with_a_kind(COMPARED, KINDS))
def test_two_answers_and_a_verdict_are_refused_by_their_names(name: str, kind: str, built: Any) -> None:
    one, other = (field for field, value in COMPARED[name].items() if value in (ONE, OTHER) or "conversation" in field)
    verdict = [field for field in COMPARED[name] if field not in (one, other)][-1]
    said = f"2 × wrong_type .of two answers, `{one}` and `{other}`, `{verdict.replace('_b', '_a').replace('_2', '_1')}`"
    with pytest.raises(NothingKeptError, match=f"{said}.*`chosen` and `rejected`"):
        built(COMPARED[name], kind)


@pytest.mark.parametrize("more", [{"text": ASKED}, {"instruction": ASKED, "output": SAID}, {"completion": SAID}])
def test_two_answers_and_a_verdict_are_no_other_example_in_a_file_of_those(more: Any, built: Any) -> None:
    """`read_row` is asked, as a file of such rows alone is one of pairs."""
    row = COMPARED["an arena"] | more
    assert schema_of(row) == "preference"
    for schema in ("text", "alpaca", "completion", "messages", "preference", "rated"):
        with pytest.raises(Refused, match="two answers"):
            read_row(row, number=0, schema=schema, columns={})


def test_rows_that_are_given_chosen_and_rejected_may_keep_the_answers_and_the_verdict(built: Any) -> None:
    """Their columns are often added to a table. Another answer than these two is asked about."""
    row = COMPARED["an arena"] | {"chosen": ONE, "rejected": OTHER}
    found = read_back(built(row), "rows.jsonl")
    assert [learned for _, learned in found] == [[f"{answer}<|im_end|>"] for answer in (ONE, OTHER)]
    with pytest.raises(InputError, match="text that nothing reads: `response_a`"):
        built(row | {"response_a": f"{SAID} {ONE}"})


def test_the_page_makes_pairs_of_an_arena(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arena = COMPARED["conversations of an arena"]
    write(tmp_path / "arena.jsonl", [arena, arena | {"winner": "tie (bothbad)"}])
    (code,) = (each for each in python_of("preference.md") if "arena" in each)
    exec(code.replace("YOUR_MODEL", str(model)), {})
    (name,) = (tmp_path / "cache.rows").iterdir()
    chosen, rejected = read_back(tmp_path / "cache", f"cache.rows/{name.name}")
    for (text, learned), answer in ((chosen, ONE), (rejected, OTHER)):
        assert ASKED in text and learned == [f"{answer}<|im_end|>"]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (COMPARED["helpsteer 3"] | {"overall_preference": 0}, "wrong_type"),
        (COMPARED["a name"] | {"preference": "tie"}, "wrong_type"),
        (RESPONSES | {"previous_response_id": "resp_0"}, "wrong_type"),
        (RESPONSES | {"prompt": {"id": "pmpt_1", "variables": {"harbor": "Oban"}}}, "wrong_type"),
        (RESPONSES | {"output": [{"type": "web_search_call", "id": "w"}, ANSWER_ITEM]}, "wrong_type"),
        (RESPONSES | {"output": [{key: ANSWER_ITEM[key] for key in ("type", "content")}]}, "unknown_role"),
        ({"messages": [{"role": "user", "content": [None]}, {"role": "assistant", "content": SAID}]}, "wrong_type"),
        (GEMINI | {"contents": [{"role": "user", "parts": [{"executableCode": {"code": "1"}}]}]}, "wrong_type"),
        (GEMINI | {"contents": [{"role": "user", "parts": [{"inlineData": {"data": "aGk="}}]}]}, "multimodal"),
        (
            {
                "request": REQUEST,
                "response": {"choices": [{"message": ANSWER | {"content": ONE}}, {"message": ANSWER}]},
            },
            "wrong_type",
        ),
    ],
)
def test_what_cannot_be_told_is_refused(row: dict[str, Any], code: str, built: Any) -> None:
    with pytest.raises(NothingKeptError, match=f"2 × {code}"):
        built(row)


def ended(value: Any, name: str, ending: str) -> Any:
    """A row in which every object that can say how an answer ended says this."""
    if isinstance(value, list):
        return [ended(each, name, ending) for each in value]
    if not isinstance(value, dict):
        return value
    changed = {key: ended(each, name, ending) for key, each in value.items()}
    places = {"output", "choices", "message", "stopReason", "finishReason"}
    is_place = value.keys() & places or value.get("type") == "message"
    return changed | ({name: ending} if is_place else {})


ENDINGS = [
    ("responses", "status", "incomplete", "completed"),
    ("a batch of responses", "status", "incomplete", "completed"),
    ("a log of chats", "finish_reason", "length", "stop"),
    ("a log of chats", "finish_reason", "content_filter", "tool_calls"),
    ("a log of chats in fields of the row", "finish_reason", "length", "stop"),
    ("a log of ollama", "done_reason", "length", "stop"),
    ("a log of gemini", "finishReason", "MAX_TOKENS", "STOP"),
    ("a log of anthropic", "stop_reason", "model_context_window_exceeded", "stop_sequence"),
]


@pytest.mark.parametrize(("ending", "kind"), each_with_a_kind(one_in(2, ENDINGS), KINDS))
def test_an_answer_that_did_not_end_is_no_answer(ending: tuple[str, str, str, str], kind: str, built: Any) -> None:
    name, field, cut, whole = ending
    row, trained = TRAINED[name]
    with pytest.raises(NothingKeptError, match="2 × cut_off"):
        built(ended(row, field, cut), kind)
    ((_, learned),) = read_back(built(ended(row, field, whole), kind), f"rows.{kind}")
    assert learned == [each + "<|im_end|>" for each in trained]


LOGS = [{"done_reason": "length"}, {"metadata": {"raw": [{"stop_reason": "max_tokens"}]}}, {"truncated": True}]


@pytest.mark.parametrize(("log", "kind"), each_with_a_kind(LOGS, KINDS))
def test_a_field_that_no_schema_reads_may_say_that_the_answer_did_not_end(
    log: dict[str, Any], kind: str, built: Any
) -> None:
    row = {"prompt": ASKED, "completion": SAID}
    with pytest.raises(NothingKeptError, match="2 × cut_off"):
        built(row | log, kind)
    assert built(row | {"metadata": {"raw": [{"stop_reason": "end_turn"}]}}, kind)


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [*CHAT[1:2], ANSWER], "request": {"messages": CHAT}, "response": {"a": 1}},
        {"messages": [*CHAT[1:2], ANSWER], "response": RESPONSE},
        REQUEST | {"message": "none"},
        {"request_id": "r", "request_body": REQUEST, "response_body": RESPONSE},
        {"inputs": REQUEST, "outputs": RESPONSE, "run_type": "llm"},
        {"instructions": SYSTEM, "items": [*ITEMS, ANSWER_ITEM]},
        {"input": {"inputBodyJson": REQUEST}, "output": {"outputBodyJson": RESPONSE}},
        {"instruction": ASKED, "output": SAID, "request": "{harbor}", "response": "{time}"},
        {"prompt": ASKED, "completion": SAID, "winner": "model_a"},
        {"prompt": ASKED, "response_a": ONE, "response_b": OTHER, "preference": 1},
        {"prompt": ASKED, "response_1": ONE, "response_2": OTHER, "label": "1"},
        {"prompt": ASKED, "response_a": ONE, "response_b": OTHER, "score_1": 1, "score_2": 2},
    ],
)
def test_rows_of_a_schema_are_of_no_form(row: dict[str, Any]) -> None:
    assert form_of(row) is None


JUNK: tuple[Any, ...] = (
    *(None, 1, True, 10**400, "", "nan", [], {}, [[]], [None]),
    *({"a": 1}, {"parts": 1}, [{"type": "message", "role": 1}]),
)


@settings(max_examples=4 * settings.default.max_examples)
@given(row=st.sampled_from([row for row, _ in TRAINED.values()] + [*COMPARED.values()]), data=st.data())
def test_a_row_with_anything_in_any_place_is_read_or_refused(row: dict[str, Any], data: st.DataObject) -> None:
    row = json.loads(json.dumps(row))
    for _ in range(data.draw(st.integers(1, 3))):
        place, keys = row, list(row)
        while True:
            key = data.draw(st.sampled_from(keys))
            inner = place[key]
            keys = [*range(len(inner))] if isinstance(inner, list) else [*inner] if isinstance(inner, dict) else []
            if not keys or data.draw(st.booleans()):
                break
            place = inner
        place[key] = copy.deepcopy(data.draw(st.sampled_from(JUNK)))
    with suppress(Refused):
        read_row(row, number=0, schema=schema_of(row) or "messages", columns={})


@pytest.mark.parametrize("place", ["row", "request"])
def test_the_effort_that_a_request_asks_for_is_the_variable_that_its_server_gives_the_template(place: str) -> None:
    asked, answer = {"input": ASKED, "reasoning": {"effort": "high"}}, {"output": [ANSWER_ITEM]}
    row = asked | answer if place == "row" else {"request": asked, "response": answer}
    form = form_of(row)
    assert form is not None and form.rewrite()["chat_template_kwargs"] == {"reasoning_effort": "high"}
    own = form_of(row | {"chat_template_kwargs": {"reasoning_effort": "low"}})
    assert own is not None and own.rewrite()["chat_template_kwargs"] == {"reasoning_effort": "low"}


def test_columns_that_hide_variables_hide_the_effort_too() -> None:
    row = {"input": ASKED, "reasoning": {"effort": "high"}, "output": [ANSWER_ITEM]}
    read = [read_row(row, number=0, schema="completion", columns=each) for each in ({}, {"chat_template_kwargs": None})]
    assert [sample.template_kwargs for sample in read] == [{"reasoning_effort": "high"}, {}]
