"""Hints about columns are followed letter by letter: the next build takes the row, and what was said to be read is."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from packer.audit import preview
from packer.errors import InputError
from packer.progress import Silent
from packer.recipe import make_recipe

USER, ANSWER = {"role": "user", "content": "question"}, {"role": "assistant", "content": "answer"}
ROWS = {
    "strings": {"prompt": "question", "completion": "answer"},
    "messages in prompt and completion": {"prompt": [USER], "completion": [ANSWER]},
    "alpaca": {"instruction": "question", "output": "answer"},
    "query": {"query": "question", "response": "answer"},
    "messages": {"messages": [USER, ANSWER]},
    "pair of texts": {"prompt": "question", "chosen": "answer", "rejected": "other"},
    "pair of messages": {"prompt": [USER], "chosen": [ANSWER], "rejected": [ANSWER | {"content": "other"}]},
    "pair after an instruction": {"instruction": "question", "chosen": "answer", "rejected": "other"},
    "rated strings": {"prompt": "question", "completion": "answer", "label": True},
    "rated messages": {"messages": [USER, ANSWER], "label": True},
    "rated alpaca": {"instruction": "question", "output": "answer", "label": False},
}
NAMES = (
    "system_prompt",
    "System Message",
    "cot",
    "rationale",
    "context",
    "passage",
    "system",
    "reasoning",
    "input",
    "it's",
)


class Notes(Silent):
    """Keeps the notes."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def follow(
    path: Path, row: dict[str, Any], columns: dict[str, str], tokenizer: Path, *, last: bool
) -> tuple[list[str], str, str]:
    """Follow hints until the row builds: of each, the first way out or the last. Return them, the rendered row, and the notes."""
    path.write_text(json.dumps(row) + "\n", "utf-8")
    values = {"sources": [{"path": str(path), "columns": columns}], "tokenizer": str(tokenizer)}
    followed: list[str] = []
    while len(followed) <= 4:
        try:
            notes = Notes()
            (shown,) = preview(make_recipe(values, followed[-1:]), progress=notes).rows
            if shown.hint is None:
                text = "".join(run.text for document in shown.view.documents for run in document.runs)
                return followed, text, "\n".join(notes.notes)
            hint = shown.hint
        except InputError as error:
            assert error.hint is not None
            hint = error.hint
        ways = [word for word in shlex.split(hint) if word.startswith("sources.columns=")]
        assert ways, hint
        assert ways[-1 if last else 0] not in followed
        followed.append(ways[-1 if last else 0])
    raise AssertionError(followed)


@settings(max_examples=4 * settings.default.max_examples)
@given(
    row=st.sampled_from(sorted(ROWS)),
    extra=st.sets(st.sampled_from(NAMES), max_size=3),
    renamed=st.sets(
        st.sampled_from(["prompt", "completion", "instruction", "output", "messages", "chosen", "system", "input"])
    ),
    last=st.booleans(),
)
@example(row="strings", extra={"cot"}, renamed=set(), last=False)
@example(row="strings", extra={"cot", "system_prompt", "input"}, renamed={"prompt", "completion"}, last=False)
@example(row="strings", extra={"system", "reasoning"}, renamed={"prompt", "completion"}, last=False)
@example(row="pair of texts", extra={"system_prompt"}, renamed={"prompt", "chosen"}, last=False)
@example(row="alpaca", extra={"system", "system_prompt", "cot", "rationale"}, renamed={"system"}, last=True)
def test_hints_about_columns_lead_to_a_row_that_builds(
    tmp_path_factory: pytest.TempPathFactory, starter: Path, row: str, extra: set[str], renamed: set[str], last: bool
) -> None:
    fields = ROWS[row] | {name: f"text of {name}" for name in extra}
    columns = {name: f"my {name}" for name in renamed & {*ROWS[row], *(extra & {"system"})}}
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    named = {columns.get(name, name): value for name, value in fields.items()}
    followed, text, notes = follow(path, named, columns, starter / "tokenizer", last=last)
    assert "question" in text
    assert "answer" in text
    said = yaml.safe_load(followed[-1].partition("=")[2]) if followed else columns
    for name in extra:
        left_out = any(new in {name, columns.get(name)} and old is None for new, old in said.items())
        assert (f"text of {name}" in text) + left_out + (f"`{columns.get(name, name)}`" in notes) == 1, (name, followed)
