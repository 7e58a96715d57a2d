"""The page of guarantees and the tests beside it speak of the same faults."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "guarantees.md"


def test_every_promise_names_a_module_and_every_module_a_promise() -> None:
    text = PAGE.read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "held by" not in line and "---" not in line]
    named = [re.findall(r"`((?:tests/(?:\w+/)*)?test_\w+\.py)`", row.rpartition(" | ")[2]) for row in rows]
    assert len(rows) > 15 and all(named)
    every = {name for names in named for name in names}
    elsewhere = {name for name in every if "/" in name}
    assert all((PAGE.parents[2] / name).is_file() for name in elsewhere)
    there = {path.name for path in Path(__file__).parent.glob("test_*.py")} - {Path(__file__).name}
    assert every - elsewhere == there
