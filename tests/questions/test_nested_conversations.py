"""Conversations within rows that no schema reads: flat lists have a command that is followed letter by letter, and of all
others a refusal says what they need.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
import twins
from followed_steps import Shape, follow_shape, refused, write
from foreign_rows import CALL, TEMPLATE, asks, place, says, talk

from packer.audit.preview import preview
from packer.errors import InputError
from packer.questions.conversations import conversation_hint
from packer.questions.schema_errors import columns_hint
from packer.recipe.recipe import make_recipe

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")

ROWS = range(30)
ASSISTANT = {"user": "assistant", "human": "ai", "client": "agent"}


def messages(number: int, speaker: str = "role", said: str = "content", asks: str = "user") -> list[dict[str, Any]]:
    sides = (asks, ASSISTANT[asks])
    return [{speaker: sides[turn % 2], said: text} for turn, text in enumerate(talk(number))]


def of_langchain(number: int) -> list[dict[str, Any]]:
    asked, said = talk(number, 2)
    raw = {"id": "call_1", "type": "function", "function": {"name": "tide", "arguments": '{"harbor": "Oban"}'}}
    call = {"name": "tide", "args": {"harbor": "Oban"}, "id": "call_1", "type": "tool_call"}
    thinks = {"reasoning_content": f"I look at {place(number)}.", "tool_calls": [raw], "refusal": None}
    told: list[dict[str, Any]] = [
        {"type": "human", "content": asked, "additional_kwargs": {}},
        {"type": "ai", "content": "", "additional_kwargs": thinks, "tool_calls": [call]},
        {"type": "tool", "content": "06:12", "tool_call_id": "call_1", "name": "tide", "additional_kwargs": {}},
        {
            "type": "ai",
            "content": said,
            "additional_kwargs": {"reasoning_content": "So it is there."},
            "tool_calls": [],
        },
    ]
    return [{"id": f"m{turn}", "response_metadata": {}, **each} for turn, each in enumerate(told)]


TOLD = talk(0)
BOTH = [TOLD[1], TOLD[3]]


def of_langgraph(number: int) -> dict[str, Any]:
    told = [{key: each[key] for key in each if key != "additional_kwargs"} for each in of_langchain(number)]
    return {"values": {"messages": told}, "next": [], "config": {"thread": f"t{number}"}, "metadata": {"step": 3}}


def of_agents(number: int) -> list[dict[str, Any]]:
    asked, said = talk(number, 2)
    return [
        {"role": "user", "content": asked},
        {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "call_1", "name": "tide", "arguments": '{"harbor": "Oban"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "06:12"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said, "annotations": []}]},
    ]


def of_letta(number: int) -> dict[str, Any]:
    asked, said = talk(number, 2)
    call = {"id": "call_1", "type": "function", "function": {"name": "tide", "arguments": '{"harbor": "Oban"}'}}
    told = [("user", asked, None), ("assistant", "I look.", [call]), ("tool", "06:12", None), ("assistant", said, None)]
    own = [
        {"role": role, "content": [{"type": "text", "text": text}], "tool_calls": calls}
        | ({"tool_call_id": "call_1"} if role == "tool" else {})
        for role, text, calls in told
    ]
    return {"agents": [{"name": f"agent{number}", "messages": own}], "blocks": [{"label": "human", "value": "Ann"}]}


def simulation(number: int) -> dict[str, Any]:
    call = {"id": "c1", "name": "tide", "arguments": {"harbor": "Oban"}, "requestor": "assistant"}
    said = [
        {"role": "user", "content": asks(number)},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "id": "c1", "content": "06:12", "requestor": "assistant", "error": False},
        {"role": "assistant", "content": says(number), "tool_calls": None},
    ]
    return {"id": f"s{number}", "task_id": str(number), "messages": said, "reward_info": {"reward": 1.0}}


def chat_of_webui(number: int) -> dict[str, Any]:
    thought = '<details type="reasoning" done="true" duration="5">\n<summary>Thought for 5 seconds</summary>\n'
    said = f"{thought}> I look at the table.\n> It is there.\n</details>\n{says(number)}"
    messages = {
        "a": {"id": "a", "parentId": None, "role": "user", "content": asks(number)},
        "b": {"id": "b", "parentId": "a", "role": "assistant", "content": said},
    }
    return {"id": f"c{number}", "chat": {"title": "Tide", "history": {"currentId": "b", "messages": messages}}}


SHAPES: dict[str, tuple[Any, str, str]] = {
    "states of langgraph": ([of_langgraph(k) for k in ROWS], "jsonl", "`values.messages` need the keys"),
    "one state of langgraph": (of_langgraph(0), "json", "`values.messages` need the keys"),
    "items of a session, one a line": (of_agents(0), "jsonl", 'as one row: {"input": [...]}'),
    "items of a session in a list": (of_agents(0), "json", 'as one row: {"input": [...]}'),
    "agents with messages": ([of_letta(k) for k in ROWS], "jsonl", "each list in `agents[].messages` needs a row"),
    "a list of conversations": ([messages(k) for k in ROWS], "json", 'as in {"messages": [...]}'),
    "lists under other keys": ([messages(k, "speaker", "text", "client") for k in ROWS], "jsonl", "rows are lists"),
    "lists of texts": ([talk(k) for k in ROWS], "jsonl", 'as in {"conversations": [...]}'),
    "documents beside messages": (
        [{"messages": messages(k), "documents": [{"title": f"Tides {k}", "text": says(k, 5)}]} for k in ROWS],
        "jsonl",
        "#beside-messages shows",
    ),
    "keys of messages with underscores": (
        [
            {"messages": [{"_role": each["role"], "_content": [{"text": each["content"]}]} for each in messages(k)]}
            for k in ROWS
        ],
        "jsonl",
        "#other-keys shows",
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_conversations_deep_within_rows_are_refused_with_what_they_need(name: str, tmp_path: Path) -> None:
    value, kind, says = SHAPES[name]
    hint = refused(write(tmp_path / f"rows.{kind}", value), tmp_path).hint or ""
    assert says in hint and "jq" not in hint


FOLLOWED = {
    "one file of an agent": Shape(of_letta(0), [TOLD[0], "06:12"], [f"I look.{CALL}", TOLD[1]], file="agent.json"),
    "speaker and text": Shape([{"turns": messages(k, "speaker", "text", "client")} for k in ROWS], TOLD, BOTH),
    "of an array": Shape([{"turns": messages(k, "who", "said", "human")} for k in ROWS], TOLD, BOTH, file="rows.json"),
    "of other names": Shape([{"log of it": messages(k, "by-name", "it's", "user")} for k in ROWS], TOLD, BOTH),
    "beside the same keys without anything": Shape(
        [
            {"messages": None, "turns": [{"role": "", **each} for each in messages(k, "speaker", "text", "client")]}
            for k in ROWS
        ],
        TOLD,
        BOTH,
    ),
    "in the field of messages": Shape(
        [{"messages": messages(k, "type", "content", "human")} for k in ROWS], TOLD, BOTH
    ),
    "with calls": Shape(
        [{"messages": [{k: v for k, v in each.items() if k != "additional_kwargs"} for each in of_langchain(0)]}],
        [TOLD[0], "06:12"],
        [CALL, TOLD[1]],
    ),
    "simulations in one object": Shape(
        {"timestamp": "2026", "tasks": [{"id": "0", "purpose": asks(0)}], "simulations": [simulation(k) for k in ROWS]},
        [asks(0), CALL, "06:12", says(0)],
        [CALL, says(0)],
        file="rows.json",
    ),
    "details of reasoning": Shape(
        [chat_of_webui(k) for k in ROWS],
        [asks(0)],
        [f"[I look at the table.\nIt is there.]{says(0)}"],
        file="rows.json",
    ),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_the_first_step_of_a_hint_makes_rows_that_train_what_is_answered(name: str, tmp_path: Path) -> None:
    follow_shape(FOLLOWED[name], tmp_path)


def hint_for(path: Path) -> str:
    model = twins.byte_level(path.parent / "model", template=TEMPLATE)
    with pytest.raises(InputError) as caught:
        preview(make_recipe({"sources": [{"path": str(path)}], "tokenizer": str(model)}))
    return caught.value.hint or ""


def test_of_a_reference_and_an_answer_in_a_list_both_are_named_and_neither_is_asked(tmp_path: Path) -> None:
    rows = [
        {
            "question": talk(k)[0],
            "reference_answer": talk(k)[3] if k % 3 else "",
            "responses": [{"response_model": "some-70b", "response": talk(k)[1]}],
        }
        for k in ROWS
    ]
    hint = hint_for(write(tmp_path / "rows.jsonl", rows))
    assert hint.startswith("`responses` may be the answer") and "`reference_answer`" in hint


def test_two_lists_that_look_like_conversations_are_both_named(tmp_path: Path) -> None:
    rows = [
        {"first": messages(k, "who", "said", "human"), "then": {"log": messages(k + 1, "speaker", "text", "client")}}
        for k in ROWS
    ]
    hint = conversation_hint(write(tmp_path / "rows.jsonl", rows), rows) or ""
    assert "the messages in `first`" in hint and "the messages in `then.log`" in hint


@pytest.mark.parametrize("name", ["options", "choices"])
def test_options_in_a_text_are_never_an_answer(name: str) -> None:
    rows = [{"question": asks(k), name: "(A) At six (B) At seven (C) At noon"} for k in ROWS]
    assert f"output={name}" not in columns_hint(rows, {})


def test_short_texts_in_a_list_are_no_history(tmp_path: Path) -> None:
    rows = [{"title": f"Tide {k}", "tags": ["sea", "wind", "sun"][: 1 + 2 * (k % 2)], "content": says(k)} for k in ROWS]
    assert conversation_hint(write(tmp_path / "rows.jsonl", rows), rows) is None
