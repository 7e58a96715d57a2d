"""Rows in the forms of other servers' requests and logs are built, and read back by someone who knows only the row."""

import copy
import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import twins
from followed_steps import write
from foreign_rows import CALL, CHAT_CALL, CHAT_TOOLS, PARAMETERS, TEMPLATE, read_back
from hypothesis import given, settings
from hypothesis import strategies as st

import packer
from packer.source.decode import Refused
from packer.source.forms import form_of
from packer.source.schema import read_row, schema_of

ASKED, THOUGHT, CALLED, RESULT, SAID = (
    "When is the tide?",
    "I should look it up.",
    "Oban",
    "06:12",
    "At twelve past six.",
)
SYSTEM = "Answer briefly."
KINDS = ["jsonl", "parquet"]

GEMINI = {
    "systemInstruction": {"parts": [{"text": SYSTEM}]},
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "tide",
                    "description": "tells",
                    "parameters": {"type": "OBJECT", "properties": {"harbor": {"type": "STRING"}}},
                }
            ]
        }
    ],
    "contents": [
        {"role": "user", "parts": [{"text": ASKED}]},
        {
            "role": "model",
            "parts": [
                {"text": THOUGHT, "thought": True},
                {"functionCall": {"name": "tide", "args": {"harbor": CALLED}}, "thoughtSignature": "c2lnbmF0dXJl"},
            ],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "tide", "response": {"high": RESULT}}}]},
        {"role": "model", "parts": [{"text": SAID}]},
    ],
}
BEDROCK = {
    "schemaVersion": "bedrock-conversation-2024",
    "system": [{"text": SYSTEM}, {"cachePoint": {"type": "default"}}],
    "messages": [
        {"role": "user", "content": [{"text": ASKED}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": THOUGHT, "signature": "c2lnbmF0dXJl"}}},
                {"toolUse": {"toolUseId": "tooluse_1", "name": "tide", "input": {"harbor": CALLED}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "tooluse_1", "content": [{"json": {"high": RESULT}}], "status": "success"}}
            ],
        },
        {"role": "assistant", "content": [{"text": SAID}]},
    ],
    "toolConfig": {
        "tools": [{"toolSpec": {"name": "tide", "description": "tells", "inputSchema": {"json": PARAMETERS}}}]
    },
}
ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "input_text", "text": ASKED}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": THOUGHT}]},
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "tide",
        "arguments": '{"harbor": "Oban"}',
        "status": "completed",
    },
    {"type": "function_call_output", "call_id": "call_1", "output": '{"high": "06:12"}'},
]
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
    "output": [{"type": "reasoning", "id": "rs_2", "summary": []}, ANSWER_ITEM],
}
CHAT = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": ASKED},
    {"role": "assistant", "content": None, "reasoning_content": THOUGHT, "tool_calls": [CHAT_CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": '{"high": "06:12"}'},
]
REQUEST = {"model": "m", "messages": CHAT, "tools": CHAT_TOOLS}
ANSWER: dict[str, Any] = {"role": "assistant", "content": SAID}
RESPONSE = {"id": "c", "choices": [{"index": 0, "message": ANSWER}]}
ALL, LAST = ["[" + THOUGHT + "]" + CALL, SAID], [SAID]
TRAINED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "gemini": (GEMINI, ALL),
    "bedrock": (BEDROCK, ALL),
    "responses": (RESPONSES, LAST),
    "responses of which a summary is given": (
        {
            **RESPONSES,
            "output": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": THOUGHT}]}, ANSWER_ITEM],
        },
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
    "a log of chats in two bodies": ({"request_id": "r", "request_body": REQUEST, "response_body": RESPONSE}, LAST),
    "a log of chats in a body and none": (
        {"request": {"request_id": "a", "method": "POST", "body": REQUEST}, "response": RESPONSE},
        LAST,
    ),
    "a log of chats in none and a body": ({"request": REQUEST, "response": {"status": 200, "body": RESPONSE}}, LAST),
    "a log of chats as JSON in cells": (
        {"request": json.dumps(REQUEST), "response": json.dumps(RESPONSE)},
        LAST,
    ),
    "a request that is the row itself": (REQUEST | {"response": RESPONSE}, LAST),
    "a log of ollama": (REQUEST | {"message": ANSWER, "done_reason": "stop"}, LAST),
    "a log of ollama with JSON in a cell": (REQUEST | {"message": json.dumps(ANSWER)}, LAST),
    "a conversation of responses": (
        {
            "id": "conv_1",
            "instructions": SYSTEM,
            "tools": RESPONSES["tools"],
            "items": [{"type": "message"} | ITEMS[0], *ITEMS[1:], ANSWER_ITEM],
        },
        ALL,
    ),
    "the input of the next run of an agent": (
        {"instructions": SYSTEM, "tools": RESPONSES["tools"], "input": [*ITEMS, ANSWER_ITEM], "last_agent": "tides"},
        ALL,
    ),
    "a log of chats in fields of the row": (
        {"messages": CHAT, "tools": CHAT_TOOLS, "choices": RESPONSE["choices"]},
        LAST,
    ),
    "a run of langsmith": (
        {
            "inputs": {"messages": CHAT, "tools": CHAT_TOOLS},
            "outputs": {"choices": RESPONSE["choices"]},
            "run_type": "llm",
        },
        LAST,
    ),
    "a log of gemini": (
        {
            "request": GEMINI | {"contents": GEMINI["contents"][:3]},  # type: ignore[index]
            "response": {"candidates": [{"content": GEMINI["contents"][3], "finishReason": "STOP"}]},  # type: ignore[index]
        },
        LAST,
    ),
    "a log of bedrock": (
        {
            "schemaType": "ModelInvocationLog",
            "input": {"inputBodyJson": BEDROCK | {"messages": BEDROCK["messages"][:3]}},  # type: ignore[index]
            "output": {"outputBodyJson": {"output": {"message": BEDROCK["messages"][3]}, "stopReason": "end_turn"}},  # type: ignore[index]
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
                        "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": '{"high": "06:12"}'}],
                    },
                ],
            },
            "response": {"type": "message", "role": "assistant", "content": [{"type": "text", "text": SAID}]},
        },
        LAST,
    ),
}


AS_TEXT = [
    f"```json\n{CALL}\n```",
    f"<functioncall> {CALL}",
    f"<tool_call>\n{CALL}\n</tool_call>",
    f"[TOOL_CALLS] [{CALL}]",
    'tide(harbor="Oban")',
]
"""The call, as answers have it where they have none."""


ONE, OTHER = "It leaves at six.", "Ask somebody else."
COMPARED: dict[str, dict[str, Any]] = {
    "helpsteer 3": {
        "domain": "general",
        "context": [{"role": "user", "content": ASKED}],
        "response1": OTHER,
        "response2": ONE,
        "overall_preference": 2,
    },
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
    "conversations of an arena": {
        "conversation_a": [{"role": "user", "content": ASKED}, {"role": "assistant", "content": OTHER}],
        "conversation_b": [{"role": "user", "content": ASKED}, {"role": "assistant", "content": ONE}],
        "winner": "model_b",
    },
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return twins.byte_level(tmp_path_factory.mktemp("model") / "model", template=TEMPLATE)


def build(rows: Mapping[str, Any], folder: Path, model: Path, kind: str = "jsonl") -> Path:
    """A cache of rows, each of which is twice in a file of its name."""
    files = [write(folder / f"{name}.{kind}", [row, row]) for name, row in rows.items()]
    packer.build(files, folder / "cache", tokenizer=model, progress=False, fail_above=1)
    return folder / "cache"


def rejected(cache: Path) -> Counter[tuple[str, str]]:
    """The codes of rows that were rejected, with the names of their files."""
    lines = map(json.loads, (cache / "rejected.jsonl").read_text("utf-8").splitlines())
    return Counter((Path(line["source"]).stem, line["code"]) for line in lines)


@pytest.fixture(scope="module")
def built(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Caches of all rows of a kind of file: of those to imitate, and of those to compare."""

    @functools.cache
    def cache(kind: str, *, compared: bool) -> Path:
        rows = COMPARED if compared else {name: row for name, (row, _) in TRAINED.items()}
        return build(rows, tmp_path_factory.mktemp("forms"), model, kind)

    return cache


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TRAINED)
def test_a_request_and_its_answer_are_read_as_what_they_say(name: str, kind: str, built: Callable[..., Path]) -> None:
    ((text, learned),) = read_back(built(kind, compared=False), f"{name}.{kind}")
    assert learned == [each + "<|im_end|>" for each in TRAINED[name][1]]
    context = ['"name": "tide"', '"type": "string"', SYSTEM, ASKED, THOUGHT, CALL, f'{{"high": "{RESULT}"}}', SAID]
    places = [text.index(each) for each in context]
    assert places == sorted(places) and text.count(ASKED) == text.count(RESULT) == 1


def test_a_call_that_an_answer_has_as_text_is_trained_as_the_template_writes_calls(model: Path, tmp_path: Path) -> None:
    asked = {"role": "user", "content": ASKED}
    answers = {str(number): {"role": "assistant", "content": text} for number, text in enumerate(AS_TEXT)}
    rows = {name: {"messages": [asked, answer], "tools": CHAT_TOOLS} for name, answer in answers.items()}
    cache = build(rows, tmp_path, model)
    for name in rows:
        ((_, learned),) = read_back(cache, f"{name}.jsonl")
        assert learned == [f"{CALL}<|im_end|>"], answers[name]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COMPARED)
def test_of_two_answers_the_preferred_one_is_chosen(name: str, kind: str, built: Callable[..., Path]) -> None:
    chosen, rejected = read_back(built(kind, compared=True), f"{name}.{kind}")
    for (text, learned), answer, other in ((chosen, ONE, OTHER), (rejected, OTHER, ONE)):
        assert f"<|im_start|>user\n{ASKED}<|im_end|>" in text and other not in text
        assert "".join(learned).strip().startswith(answer)


REFUSED_PAIRS = [
    (COMPARED["helpsteer 3"] | {"overall_preference": 0}, "pair_identical"),
    (COMPARED["helpsteer 3"] | {"overall_preference": "nan"}, "wrong_type"),
    (COMPARED["an arena"] | {"winner": "tie"}, "pair_identical"),
    (COMPARED["scores"] | {"score_a": 0.5}, "pair_identical"),
    (COMPARED["scores"] | {"score_a": "high"}, "wrong_type"),
    (COMPARED["an arena"] | {"winner": "the first"}, "wrong_type"),
]
REFUSED_CHATS = [
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
            "response": {"choices": [{"message": ANSWER | {"content": text}} for text in (ONE, OTHER)]},
        },
        "wrong_type",
    ),
]


@pytest.mark.parametrize(
    ("right", "refused"),
    [(COMPARED["a name"], REFUSED_PAIRS), (TRAINED["a log of chats"][0], REFUSED_CHATS)],
    ids=["pairs", "chats"],
)
def test_what_cannot_be_told_is_refused(
    right: dict[str, Any], refused: list[tuple[dict[str, Any], str]], model: Path, tmp_path: Path
) -> None:
    rows = {str(number): row for number, (row, _) in enumerate(refused)}
    cache = build(rows | {"right": right}, tmp_path, model)
    assert rejected(cache) == {(str(number), code): 2 for number, (_, code) in enumerate(refused)}


def ended(value: Any, name: str, ending: str) -> Any:
    """A row in which every object that can say how an answer ended says this."""
    if isinstance(value, list):
        return [ended(each, name, ending) for each in value]
    if not isinstance(value, dict):
        return value
    changed = {key: ended(each, name, ending) for key, each in value.items()}
    is_place = (
        value.keys() & {"output", "choices", "message", "stopReason", "finishReason"} or value.get("type") == "message"
    )
    return changed | ({name: ending} if is_place else {})


ENDINGS = [
    ("responses", "status", "incomplete", "completed"),
    ("a batch of responses", "status", "incomplete", "completed"),
    ("a log of chats", "finish_reason", "length", "stop"),
    ("a log of chats", "finish_reason", "content_filter", "tool_calls"),
    ("a log of chats in fields of the row", "finish_reason", "length", "stop"),
    ("a log of chats in two bodies", "finish_reason", "length", "stop"),
    ("a log of ollama", "done_reason", "length", "stop"),
    ("a conversation of responses", "status", "incomplete", "completed"),
    ("a log of gemini", "finishReason", "MAX_TOKENS", "STOP"),
    ("a log of bedrock", "stopReason", "max_tokens", "end_turn"),
    ("a log of anthropic", "stop_reason", "model_context_window_exceeded", "stop_sequence"),
]

LOGS = [{"done_reason": "length"}, {"metadata": {"raw": [{"stop_reason": "max_tokens"}]}}, {"truncated": True}]
"""Fields that no schema reads, of which each says that an answer did not end."""


@pytest.mark.parametrize("kind", ["jsonl", pytest.param("parquet", marks=pytest.mark.slow)])
def test_an_answer_that_did_not_end_is_no_answer(kind: str, model: Path, tmp_path: Path) -> None:
    plain = {"prompt": ASKED, "completion": SAID}
    cut_off = {f"log {number}": plain | log for number, log in enumerate(LOGS)}
    rows = {"log": plain | {"metadata": {"raw": [{"stop_reason": "end_turn"}]}}}
    learned = {}
    for number, (name, field, cut, end) in enumerate(ENDINGS):
        row, trained = TRAINED[name]
        cut_off[f"cut {number}"] = ended(row, field, cut)
        rows[f"whole {number}"] = ended(row, field, end)
        learned[f"whole {number}"] = [[each + "<|im_end|>" for each in trained]]
    cache = build(rows | cut_off, tmp_path, model, kind)
    assert rejected(cache) == {(name, "cut_off"): 2 for name in cut_off}
    assert {name: [trained for _, trained in read_back(cache, f"{name}.{kind}")] for name in learned} == learned


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [*CHAT[1:2], ANSWER], "request": {"messages": CHAT}, "response": {"a": 1}},
        {"messages": [*CHAT[1:2], ANSWER], "response": RESPONSE},
        REQUEST | {"message": "none"},
        {"items": [{"role": "user", "content": ASKED}, ANSWER]},
        {"items": [{"type": "message", "role": "user", "content": ASKED}, {"name": "a lamp"}]},
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
            keys = (
                list(inner) if isinstance(inner, dict) else list(range(len(inner))) if isinstance(inner, list) else []
            )
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
