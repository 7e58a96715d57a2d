"""Files in shapes of published data sets and other tools, thirty rows each: whoever follows the hints trains the answer.

The first step of each hint is followed letter by letter, and the first row is read back: what is asked, what is trained.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from followed_steps import Shape, follow_shape, refused, write
from foreign_rows import CALL, asks, says, talk
from search_effort import one_in

from packer.questions.conversations import conversation_hint
from packer.questions.schema_errors import columns_hint

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")

ROWS = range(30)


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


SHAPES: dict[str, Shape] = {
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


@pytest.mark.parametrize("name", one_in(2, [*SHAPES]))
def test_whoever_follows_the_first_step_trains_what_is_answered(name: str, tmp_path: Path) -> None:
    follow_shape(SHAPES[name], tmp_path)


NEEDED: dict[str, list[dict[str, Any]]] = {
    "beside-messages": [
        {
            "messages": [
                {"role": by, "content": text} for by, text in zip(["user", "assistant"], talk(k, 2), strict=True)
            ],
            "documents": [{"title": f"Tides {k}", "text": says(k, turn)} for turn in (4, 5)],
        }
        for k in ROWS
    ],
    "other-keys": [
        {
            "messages": [
                {"_role": by, "_content": [{"text": text}], "_name": None, "_meta": {}}
                for by, text in zip(["user", "assistant"], talk(k, 2), strict=True)
            ]
        }
        for k in ROWS
    ],
}
"""Rows that are refused, by the heading that has the command to edit."""


@pytest.mark.parametrize("heading", NEEDED)
def test_rows_that_no_option_reads_are_refused_with_a_heading(heading: str, tmp_path: Path) -> None:
    assert f"#{heading} shows" in (refused(write(tmp_path / "rows.jsonl", NEEDED[heading]), tmp_path).hint or "")


@pytest.mark.parametrize("name", ["options", "choices"])
def test_options_in_a_text_are_never_an_answer(name: str) -> None:
    rows = [{"question": asks(k), name: "(A) At six (B) At seven (C) At noon"} for k in ROWS]
    assert f"output={name}" not in columns_hint(rows, {})


def test_short_texts_in_a_list_are_no_history(tmp_path: Path) -> None:
    rows = [{"title": f"Tide {k}", "tags": ["sea", "wind", "sun"][: 1 + 2 * (k % 2)], "content": says(k)} for k in ROWS]
    assert conversation_hint(write(tmp_path / "rows.jsonl", rows), rows) is None
