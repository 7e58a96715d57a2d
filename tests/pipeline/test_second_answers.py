"""A field that has an answer already, or one more, is never offered as the system's words or as the reasoning."""

from pathlib import Path

import pytest
import twins
from hints import settings_in
from shown_rows import hint_for, learned, shown_for

ASKED, SAID = "When does the ferry to Mull leave?", "It leaves at six in the morning."
ROW = {"instruction": ASKED, "output": SAID}


COPIES = {
    "with its question": f"Below is a task.\n\n### Task:\n{ASKED}\n\n### Response:\n{SAID}",
    "after other words": f"Sure! {SAID}",
}


@pytest.mark.parametrize("name", COPIES)
def test_a_text_that_has_the_answer_is_only_left_out(tmp_path: Path, name: str) -> None:
    rows = [ROW | {"formatted": COPIES[name]}]
    assert hint_for(shown_for(tmp_path, twins.CHATML, rows)) == "--ignore formatted leaves it out"
    assert learned(shown_for(tmp_path, twins.CHATML, rows, ignore=["formatted"])) == [f"{SAID}<|im_end|>"]


def test_a_passage_from_which_the_answer_is_taken_is_context(tmp_path: Path) -> None:
    passage = f"The harbor has two piers, and a cafe that opens late in the day. {SAID} Nobody sells tickets on board."
    seen = shown_for(tmp_path, twins.CHATML, [ROW | {"notes": passage}])
    assert "`input=FIELD`: as part of the question" in hint_for(seen)


@pytest.mark.parametrize("inside", [False, True])
def test_the_field_that_says_that_an_answer_was_cut_off_is_named(tmp_path: Path, inside: bool) -> None:
    ends = {"finish_reasons": ["stop", "length"]}
    rows = [ROW | ({"meta": ends} if inside else ends)]
    ways = settings_in(hint_for(shown_for(tmp_path, twins.CHATML, rows)))
    assert ways == [f"sources.columns={{{'meta' if inside else 'finish_reasons'}: null}}"]
    assert learned(shown_for(tmp_path, twins.CHATML, rows, *ways)) == [f"{SAID}<|im_end|>"]
