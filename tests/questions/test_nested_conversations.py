"""Conversations within rows that no schema reads: flat lists have a command that is followed letter by letter, and of all
others a refusal says what they need.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import twins
from followed_steps import Shape, follow_shape, refused, write
from foreign_rows import CALL, TEMPLATE, place, talk

from packer.audit.preview import preview
from packer.errors import InputError
from packer.questions.conversations import conversation_hint
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


SHAPES: dict[str, tuple[Any, str, str]] = {
    "states of langgraph": ([of_langgraph(k) for k in ROWS], "jsonl", "`values.messages` need the keys"),
    "one state of langgraph": (of_langgraph(0), "json", "`values.messages` need the keys"),
    "items of a session, one a line": (of_agents(0), "jsonl", 'as one row: {"input": [...]}'),
    "items of a session in a list": (of_agents(0), "json", 'as one row: {"input": [...]}'),
    "agents with messages": ([of_letta(k) for k in ROWS], "jsonl", "each list in `agents[].messages` needs a row"),
    "a list of conversations": ([messages(k) for k in ROWS], "json", 'as in {"messages": [...]}'),
    "lists under other keys": ([messages(k, "speaker", "text", "client") for k in ROWS], "jsonl", "rows are lists"),
    "lists of texts": ([talk(k) for k in ROWS], "jsonl", 'as in {"conversations": [...]}'),
}


@pytest.mark.parametrize("name", SHAPES)
def test_conversations_deep_within_rows_are_refused_with_what_they_need(name: str, tmp_path: Path) -> None:
    value, kind, says = SHAPES[name]
    hint = refused(write(tmp_path / f"rows.{kind}", value), tmp_path).hint or ""
    assert says in hint and "jq" not in hint


FLAT = {
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
}


@pytest.mark.parametrize("name", FLAT)
def test_the_command_for_a_flat_list_of_messages_trains_what_is_answered(name: str, tmp_path: Path) -> None:
    follow_shape(FLAT[name], tmp_path)


def run_first_step(path: Path, hint: str) -> Path:
    command = hint[hint.index(": jq ") + 2 : hint.index("_lines.jsonl") + len("_lines.jsonl")]
    subprocess.run(["bash", "-euc", command], check=True, cwd=path.parent)
    return path.with_name(f"{path.stem}_lines.jsonl")


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


def test_answers_in_a_row_with_flags_are_not_joined(tmp_path: Path) -> None:
    own = {"role": "assistant", "content": "Or so it says.", "train": False}
    path = write(tmp_path / "rows.jsonl", [{"messages": [*messages(k)[:2], own]} for k in ROWS])
    assert " jq " not in (refused(path, tmp_path).hint or "")


def test_calls_in_a_text_under_a_key_of_their_own_never_become_what_is_said(tmp_path: Path) -> None:
    """Some messages have content, and those without it have calls."""
    asked, said = talk(0)[:2]
    told = [("user", asked, None), ("assistant", None, "tide(port='Oban')"), ("environment", "06:12", None)]
    keys = [
        {"role": by, "content": text, "function_calls": call} for by, text, call in [*told, ("assistant", said, None)]
    ]
    error = refused(write(tmp_path / "rows.jsonl", [{"messages": keys}] * 2), tmp_path)
    assert "no_content" in error.message and "jq" not in (error.hint or "")
