"""A field that has an answer already, or one more, is never offered as the system's words or as the reasoning."""

import json
from pathlib import Path
from typing import Any

import pytest
import twins
from hints import settings_in

from packer.audit.preview import preview
from packer.errors import InputError
from packer.recipe.recipe import make_recipe

ASKED, SAID = "When does the ferry to Mull leave?", "It leaves at six in the morning."


def hint_and_text(path: Path, *rows: dict[str, Any], overrides: tuple[str, ...] = ()) -> tuple[str, list[str]]:
    """The hint of the first look at rows, and what is trained of them with some settings."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    tokenizer = str(twins.byte_level(path.parent / "tokenizer", template=twins.CHATML))
    try:
        seen = preview(make_recipe({"sources": [{"path": str(path)}], "tokenizer": tokenizer}, overrides))
    except InputError as error:
        return str(error.hint), []
    runs = [run for row in seen.rows for document in row.view.documents for run in document.runs]
    return str(seen.hint or seen.rows[0].hint), [run.text for run in runs if run.message is not None]


COPIES = {
    "with its question": f"Below is a task.\n\n### Task:\n{ASKED}\n\n### Response:\n{SAID}",
    "after other words": f"Sure! {SAID}",
}


@pytest.mark.parametrize("name", COPIES)
def test_a_text_that_has_the_answer_is_only_left_out(tmp_path: Path, name: str) -> None:
    row = {"instruction": ASKED, "output": SAID, "formatted": COPIES[name]}
    hint, _ = hint_and_text(tmp_path / "rows.jsonl", row)
    assert hint == "--ignore formatted leaves it out"
    assert hint_and_text(tmp_path / "rows.jsonl", row, overrides=("sources.ignore=[formatted]",))[1] == [
        f"{SAID}<|im_end|>"
    ]


def test_a_passage_from_which_the_answer_is_taken_is_context(tmp_path: Path) -> None:
    passage = f"The harbor has two piers, and a cafe that opens late in the day. {SAID} Nobody sells tickets on board."
    hint, _ = hint_and_text(tmp_path / "rows.jsonl", {"instruction": ASKED, "output": SAID, "notes": passage})
    assert "`input=FIELD`: as part of the question" in hint


@pytest.mark.parametrize("inside", [False, True])
def test_the_field_that_says_that_an_answer_was_cut_off_is_named(tmp_path: Path, inside: bool) -> None:
    ends = {"finish_reasons": ["stop", "length"]}
    row = {"instruction": ASKED, "output": SAID} | ({"meta": ends} if inside else ends)
    hint, _ = hint_and_text(tmp_path / "rows.jsonl", row)
    way, name = settings_in(hint), "meta" if inside else "finish_reasons"
    assert way == [f"sources.columns={{{name}: null}}"]
    assert hint_and_text(tmp_path / "rows.jsonl", row, overrides=(way[0],))[1] == [f"{SAID}<|im_end|>"]
