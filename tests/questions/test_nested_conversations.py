"""Conversations deep within rows that no schema reads, thirty rows each: who follows the hints trains what was answered.

The first step of each hint is followed letter by letter, and the first row is read back: what is asked, what is trained.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import twins
from followed_steps import follow, write
from foreign_rows import CALL, TEMPLATE, read_back
from hints import settings_in

import packer
from packer.audit.preview import preview
from packer.errors import InputError
from packer.questions.answers_in_a_row import in_a_row_hint
from packer.questions.exports import export_hint
from packer.questions.schema_errors import columns_hint
from packer.recipe.recipe import make_recipe

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")

PLACES = ["Oban", "Mull", "Mallaig", "Skye", "Ullapool", "Arran", "Islay", "Jura", "Iona", "Tiree"]
ROWS = range(30)
ASSISTANT = {"user": "assistant", "human": "ai", "client": "agent"}


def place(number: int) -> str:
    return PLACES[number % len(PLACES)]


def talk(number: int, count: int = 4) -> list[str]:
    """Questions and answers in turn."""
    told = "It turns at {} past {}, as the table of {} has it."
    return [
        told.format(turn + 3, number % 12 + 1, place(number + turn))
        if turn % 2
        else f"When does tide number {3 * number + turn} turn at {place(number + turn)}?"
        for turn in range(count)
    ]


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


def of_editor(number: int, *more: dict[str, Any]) -> dict[str, Any]:
    """A chat of an editor, and further parts of its answers."""
    told = talk(number)
    requests = [
        {
            "requestId": f"request_{number}_{turn}",
            "message": {"text": told[turn], "parts": [{"kind": "text", "text": told[turn]}]},
            "response": [{"value": told[turn + 1], "baseUri": {"path": "/"}, "isTrusted": False}, *more],
            "agent": {"id": "github.copilot", "description": "Edit files in your workspace"},
        }
        for turn in (0, 2)
    ]
    return {
        "requesterUsername": "ann",
        "responderUsername": "Copilot",
        "initialLocation": "panel",
        "requests": requests,
    }


def of_studio(number: int) -> dict[str, Any]:
    told = [{"role": ("user", "model")[turn % 2], "text": text} for turn, text in enumerate(talk(number))]
    thought = {"role": "model", "text": f"I look at {place(number)}.", "isThought": True, "thinkingBudget": -1}
    told = [each | ({"finishReason": "STOP"} if each["role"] == "model" else {"tokenCount": 9}) for each in told]
    prompt = {"chunks": [told[0], thought, *told[1:]], "pendingInputs": [{"text": "", "role": "user"}]}
    return {"runSettings": {"model": "models/some", "topP": 0.95}, "systemInstruction": {}, "chunkedPrompt": prompt}


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


def of_support(number: int, *, notes: bool = True) -> dict[str, Any]:
    """A conversation of people, with a note of one of them and an event."""
    people = [{"id": number, "name": "Ann", "type": "contact"}, {"id": 3, "name": "Bob", "type": "user"}]
    said = [(turn % 2, text, False) for turn, text in enumerate(talk(number))]
    if notes:
        said[2:2] = [(1, "She is in a hurry, be quick.", True), (2, "Conversation was resolved by Bob", False)]
    own = [
        {
            "id": 100 * number + at,
            "content": text,
            "message_type": kind,
            "private": private,
            "created_at": 1700000000 + at,
            "sender": people[kind] if kind < 2 else None,
        }
        for at, (kind, text, private) in enumerate(said)
    ]
    return {"id": number, "status": "resolved", "messages": own, "meta": {"sender": people[0]}}


def of_summaries(number: int) -> dict[str, Any]:
    post = f"I went to {place(number)} last summer with {number + 2} of my friends, and it rained."
    texts = [f"I was at {place(number)} with friends.", f"It rained for {number} days, they say."]
    return {
        "info": {"id": f"t{number}", "post": post, "title": f"A trip to {place(number)}"},
        "summaries": [{"text": text, "policy": f"sup{side}"} for side, text in enumerate(texts)],
        "choice": (1, 0, 0)[number % 3],
    }


THINKS = "[I look at Oban.]"
TOLD = talk(0)
BOTH = [TOLD[1], TOLD[3]]


class Shape(NamedTuple):
    value: Any
    told: Sequence[str]
    """What the first document has, in this order."""

    trained: Sequence[str]
    most_steps: int = 1
    file: str = "rows.jsonl"


SHAPES: dict[str, Shape] = {
    "states of langgraph": Shape([of_langgraph(k) for k in ROWS], [TOLD[0], "06:12"], [CALL, TOLD[1]]),
    "one state of langgraph": Shape(of_langgraph(0), [TOLD[0], "06:12"], [CALL, TOLD[1]], file="state.json"),
    "reasoning in an object beside calls": Shape(
        [{"messages": of_langchain(k)} for k in ROWS],
        [TOLD[0], "06:12"],
        [THINKS + CALL, f"[So it is there.]{TOLD[1]}"],
        most_steps=2,
    ),
    "items of a session, one a line": Shape(of_agents(0), [TOLD[0], "06:12"], [f"[I look.]{CALL}", TOLD[1]]),
    "items of a session in a list": Shape(
        of_agents(0), [TOLD[0], "06:12"], [f"[I look.]{CALL}", TOLD[1]], file="session.json"
    ),
    "requests with answers in parts": Shape([of_editor(k) for k in ROWS], TOLD, BOTH, most_steps=2),
    "one chat of requests": Shape(of_editor(0), TOLD, BOTH, most_steps=3, file="chat.json"),
    "chunks of which some are thoughts": Shape([of_studio(k) for k in ROWS], TOLD, [THINKS + TOLD[1], TOLD[3]]),
    "one prompt with thoughts": Shape(of_studio(0), TOLD, [THINKS + TOLD[1], TOLD[3]], file="prompt.json"),
    "agents with messages": Shape([of_letta(k) for k in ROWS], [TOLD[0], "06:12"], [f"I look.{CALL}", TOLD[1]]),
    "one file of an agent": Shape(of_letta(0), [TOLD[0], "06:12"], [f"I look.{CALL}", TOLD[1]], file="agent.json"),
    "numbers that speak": Shape([of_support(k, notes=False) for k in ROWS], TOLD, BOTH, file="rows.json"),
    "numbers that speak, with notes and events": Shape([of_support(k) for k in ROWS], TOLD, BOTH, file="rows.json"),
    "a page of messages": Shape([{"meta": {}, "payload": of_support(k)["messages"]} for k in ROWS], TOLD, BOTH),
    "a list of conversations": Shape([messages(k) for k in ROWS], TOLD, BOTH, file="rows.json"),
    "a list of conversations with senders": Shape(
        [
            [{"from": "gpt" if each["from"] == "assistant" else "human", "value": each["value"]} for each in own]
            for own in (messages(k, "from", "value") for k in ROWS)
        ],
        TOLD,
        BOTH,
        file="rows.json",
    ),
    "lists under other keys, one a line": Shape(
        [messages(k, "speaker", "text", "client") for k in ROWS], TOLD, BOTH, most_steps=2
    ),
    "lists of texts": Shape([talk(k) for k in ROWS], TOLD, BOTH, most_steps=2),
    "chats in a list in an object": Shape(
        [{"export": {"chats": [{"title": "x", "turns": messages(k, "who", "text", "human")}]}} for k in ROWS],
        TOLD,
        BOTH,
    ),
    "messages in objects of a list": Shape(
        [{"data": {"result": [{"history": {"messages": messages(k)}, "score": 1}]}} for k in ROWS], TOLD, BOTH
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_whoever_follows_the_first_step_trains_what_is_answered(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]
    tokenizer = twins.byte_level(tmp_path / "model", template=TEMPLATE)
    path, followed = follow(write(tmp_path / shape.file, shape.value), tokenizer, tmp_path / "cache")
    assert 0 < len(followed) <= shape.most_steps
    ((text, learned),) = read_back(tmp_path / "cache", path.name)
    assert learned == [f"{said}<|im_end|>" for said in shape.trained]
    places = [text.index(each) for each in shape.told]
    assert places == sorted(places)
    assert "in a hurry" not in text and "resolved" not in text


def run_first_step(path: Path, hint: str) -> Path:
    command = hint[hint.index(": jq ") + 2 : hint.index("_lines.jsonl") + len("_lines.jsonl")]
    subprocess.run(["bash", "-euc", command], check=True, cwd=path.parent)
    return path.with_name(f"{path.stem}_lines.jsonl")


def hint_for(path: Path) -> str:
    model = twins.byte_level(path.parent / "model", template=TEMPLATE)
    with pytest.raises(InputError) as caught:
        preview(make_recipe({"sources": [{"path": str(path)}], "tokenizer": str(model)}))
    return caught.value.hint or ""


def test_of_two_texts_in_a_list_the_number_beside_it_says_which_is_better(tmp_path: Path) -> None:
    rows = [of_summaries(k) for k in ROWS]
    tokenizer = twins.byte_level(tmp_path / "model", template=TEMPLATE)
    path, (first, second) = follow(write(tmp_path / "rows.jsonl", rows), tokenizer, tmp_path / "cache")
    assert first.startswith("if `choice` names the better one of `summaries_0` and `summaries_1`")
    assert "if `info.post` is the question" in second and "if `info.title` is the question" in second
    sides = [each["text"] for each in rows[0]["summaries"]]
    read = read_back(tmp_path / "cache", path.name)
    assert [learned for _, learned in read] == [[f"{text}<|im_end|>"] for text in reversed(sides)]
    assert all(rows[0]["info"]["post"] in text for text, _ in read)


def test_of_a_reference_and_an_answer_in_a_list_both_are_named_and_neither_is_asked(tmp_path: Path) -> None:
    rows = [
        {
            "question": talk(k)[0],
            "reference_answer": talk(k)[3] if k % 3 else "",
            "responses": [{"response_model": "some-70b", "response": talk(k)[1]}],
        }
        for k in ROWS
    ]
    path = write(tmp_path / "rows.jsonl", rows)
    hint = hint_for(path)
    assert "if each object in `responses` is an answer to `question`, a row for each: jq" in hint
    made = run_first_step(path, hint)
    hint = hint_for(made)
    assert (
        "belongs to the question" not in hint and "of two fields that may be the same thing, only one is read" in hint
    )
    ways = hint.partition(": ")[2].split(" or ")
    for way, said in zip(ways, (talk(1)[1], talk(1)[3]), strict=True):
        values = {"sources": [{"path": str(made)}], "tokenizer": str(twins.byte_level(tmp_path / "model"))}
        ignored = [way.split("--ignore ")[1].split(";")[0]]
        values["sources"][0]["ignore"] = ignored  # type: ignore[index]
        shown = preview(make_recipe(values, settings_in(way)[:1]), rows=2).rows[1]
        learned = [run.text for each in shown.view.documents for run in each.runs if run.message is not None]
        assert len(learned) == 1 and learned[0].startswith(said)


def test_two_lists_that_look_like_conversations_are_both_named(tmp_path: Path) -> None:
    rows = [
        {"first": messages(k, "who", "said", "human"), "then": {"log": messages(k + 1, "speaker", "text", "client")}}
        for k in ROWS
    ]
    hint = export_hint(write(tmp_path / "rows.jsonl", rows), rows) or ""
    assert "the messages in `first`" in hint and "the messages in `then.log`" in hint


def test_what_stands_beside_a_list_of_conversations_is_said_to_go(tmp_path: Path) -> None:
    rows = [{"tools": "none", "agents": [{"messages": messages(k, "who", "said", "human")}]} for k in ROWS]
    hint = export_hint(write(tmp_path / "rows.jsonl", rows), rows) or ""
    assert "and the fields beside `agents` are left out" in hint


def test_answers_of_which_parts_are_no_texts_alone_get_no_command(tmp_path: Path) -> None:
    """Thoughts and results of tools would be trained as what was answered."""
    for part in ({"kind": "thinking", "value": "I look at it."}, {"kind": "reference", "path": "/a/b"}):
        rows = [of_editor(k, part) for k in ROWS]
        assert " jq " not in hint_for(write(tmp_path / "rows.jsonl", rows))


def test_a_part_that_later_rows_have_is_left_for_the_build_to_refuse(tmp_path: Path) -> None:
    thinks = of_editor(30, {"kind": "thinking", "value": "I look at it."})
    path = write(tmp_path / "rows.jsonl", [*(of_editor(k) for k in ROWS), thinks])
    tokenizer = twins.byte_level(tmp_path / "model", template=TEMPLATE)
    path, _ = follow(path, tokenizer, tmp_path / "cache")
    rejected = [json.loads(line) for line in (tmp_path / "cache/rejected.jsonl").read_text("utf-8").splitlines()]
    assert [each["row"] for each in rejected] == [30]


@pytest.mark.parametrize("key", ["turn_id", "correct", "label"])
def test_numbers_that_count_or_judge_are_no_speakers(key: str, tmp_path: Path) -> None:
    own = [
        [{key: turn if key == "turn_id" else turn % 2, "text": text} for turn, text in enumerate(talk(k))] for k in ROWS
    ]
    rows = [
        {"question": "Which of these is so?", "turns": each} if key == "correct" else {"turns": each} for each in own
    ]
    assert export_hint(write(tmp_path / "rows.jsonl", rows), rows) is None


def test_a_name_and_a_finish_reason_are_never_an_answer(tmp_path: Path) -> None:
    turns = [{"text": text, "finishReason": "STOP"} for text in talk(0)]
    for row in (of_editor(0, {"kind": "reference", "path": "/a/b"}), {"turns": turns}):
        path = write(tmp_path / "rows.jsonl", [row])
        assert "` answers `" not in columns_hint([row], {}, path)
    assert "` answers `" in columns_hint([of_editor(0)], {}, path)


def test_several_answers_in_a_row_may_be_joined_to_one_turn(tmp_path: Path) -> None:
    told = [{"messages": [*messages(k)[:2], {"role": "assistant", "content": f"Or so, {k}."}]} for k in ROWS]
    path = write(tmp_path / "rows.jsonl", told)
    tokenizer = twins.byte_level(tmp_path / "model", template=TEMPLATE)
    path, (hint,) = follow(path, tokenizer, tmp_path / "cache")
    assert hint.startswith("if such answers are one turn: jq")
    ((_, learned),) = read_back(tmp_path / "cache", path.name)
    assert learned == [f"{TOLD[1]}\n\nOr so, 0.<|im_end|>"]


def test_answers_in_a_row_with_weights_are_not_joined(tmp_path: Path) -> None:
    own = {"role": "assistant", "content": "Or so it says.", "train": False}
    path = write(tmp_path / "rows.jsonl", [{"messages": [*messages(k)[:2], own]} for k in ROWS])
    with pytest.raises(InputError) as caught:
        packer.build(path, tmp_path / "cache", tokenizer=twins.byte_level(tmp_path / "model"), progress=False)
    assert " jq " not in (caught.value.hint or "")


def test_answers_that_say_more_than_a_text_are_not_joined(tmp_path: Path) -> None:
    """Reasoning or a call of the second would be lost."""
    for more in ({"reasoning": "I look."}, {"function_call": {"name": "tide", "arguments": "{}"}, "content": ""}):
        second = {"role": "assistant", "content": "Or so.", **more}
        path = write(tmp_path / "rows.jsonl", [{"messages": [*messages(0)[:2], second]}])
        program = re.search(r"jq -c '(.*?)' ", in_a_row_hint(path, [json.loads(path.read_text("utf-8"))]) or "")
        assert program is not None
        done = subprocess.run(["jq", "-c", program[1], str(path)], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["messages"][-1] == second


def test_keys_with_dots_are_keys(tmp_path: Path) -> None:
    turns = [{"user.text": each, "bot.text": said} for each, said in zip(TOLD[::2], TOLD[1::2], strict=True)]
    path, _ = follow(
        write(tmp_path / "rows.jsonl", [{"turns": turns}] * 4),
        twins.byte_level(tmp_path / "model", template=TEMPLATE),
        tmp_path / "cache",
    )
    ((text, _),) = read_back(tmp_path / "cache", path.name)
    assert [each in text for each in TOLD] == [True] * len(TOLD)
