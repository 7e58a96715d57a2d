"""Files in shapes of published data sets and other tools, thirty rows each: whoever follows the hints trains the answer.

The first step of each hint is followed letter by letter, and the first row is read back: what is asked, what is trained.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from followed_steps import Shape, follow_shape, refused, write
from foreign_rows import CALL, asks, place, says, talk
from search_effort import one_in

from packer.questions.conversations import conversation_hint
from packer.questions.schema_errors import columns_hint

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")

ROWS = range(30)


def posts(number: int) -> dict[str, Any]:
    answers = [
        {"answer_id": 9000 - 10 * number - turn, "author_id": 7 * number + turn, "pm_score": 2 * turn, "text": text}
        for turn, text in enumerate([says(number, 1), says(number, 2), says(number, 3)][: 2 + number % 2])
    ]
    return {"qid": 100 + number, "question": asks(number), "answers": answers, "date": "2016/12/05"}


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


def table(number: int) -> dict[str, Any]:
    cells = [["Year", "Port"], [str(1990 + number), place(number)]]
    row = {"feta_id": 2000 + number, "table_page_title": place(number), "table_array": cells}
    return row | {"highlighted_cell_ids": [[1, 0]], "question": asks(number), "answer": says(number)}


def meeting(number: int) -> list[dict[str, str]]:
    return [
        {"speaker": who, "content": says(number, turn)}
        for turn, who in enumerate(["Skipper", "Harbor master", "Pilot"])
    ]


def records(number: int) -> list[dict[str, str]]:
    by = ["ferry", "rowing boat", "sailing boat"]
    return [{"port": f"the old pier of {place(number + n)}", "by": by[n], "2024": f"9.{n}"} for n in range(3)]


SHAPES: dict[str, Shape] = {
    "texts with a label": Shape(
        [
            {
                "premise": f"A man rows to {place(k)} in the rain.",
                "hypothesis": f"A man is at {place(k + 1)}.",
                "label": k % 4 - 1,
            }
            for k in ROWS[1:]
        ],
        ["A man rows to Mull in the rain.\n\nhypothesis: A man is at Mallaig."],
        ["0"],
    ),
    "two questions with a label": Shape(
        [{"question1": asks(k), "question2": asks(k, 1), "label": ["same", "other"][k % 2]} for k in ROWS],
        [f"{asks(0, 1)}\n\nquestion1: {asks(0)}"],
        ["same"],
    ),
    "answers with scores and ids": Shape([posts(k) for k in ROWS], [asks(0)], [says(0, 1)]),
    "a table": Shape([table(k) for k in ROWS], [asks(0), 'table_array: [["Year","Port"],["1990","Oban"]]'], [says(0)]),
    "what several people said": Shape(
        [{"query": asks(k), "meeting_transcripts": meeting(k), "answer": says(k, 7)} for k in ROWS],
        [asks(0), f'{{"speaker":"Skipper","content":"{says(0)}"}},{{"speaker":"Harbor master"'],
        [says(0, 7)],
    ),
    "a table as records": Shape(
        [{"question": asks(k), "table": records(k), "answer": says(k)} for k in ROWS],
        [
            f'{asks(0)}\n\ntable: [{{"port":"the old pier of Oban","by":"ferry","2024":"9.0"}},{{"port":"the old pier of Mull"'
        ],
        [says(0)],
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


def test_letters_beside_options_are_no_label_that_answers() -> None:
    options = {"text": ["At six.", "At seven.", "At noon."], "label": ["A", "B", "C"]}
    rows = [{"question": asks(k), "choices": options, "answerKey": "ABC"[k % 3]} for k in ROWS]
    assert "output=answerKey" in columns_hint(rows, {}) and "choices.label" not in columns_hint(rows, {})


def test_short_texts_in_a_list_are_no_history(tmp_path: Path) -> None:
    rows = [{"title": f"Tide {k}", "tags": ["sea", "wind", "sun"][: 1 + 2 * (k % 2)], "content": says(k)} for k in ROWS]
    assert conversation_hint(write(tmp_path / "rows.jsonl", rows), rows) is None
