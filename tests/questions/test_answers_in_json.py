"""Answers that are objects: they are refused until they are JSON in a text, and what is not read of one is named."""

import json
from pathlib import Path

import pytest
import twins
from command_line import fields, run

from packer.audit.view import view_row
from packer.store.cache import Cache

ROWS = [
    {"instruction": f"Which port has ferry {k}?", "output": {"port": ("Oban", "Mallaig")[k % 2], "berth": k, "z": None}}
    for k in range(8)
]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "ports.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), "utf-8")
    return path


def test_objects_as_answers_are_refused_and_trained_as_the_text_that_the_hint_asks_for(
    rows: Path, tmp_path: Path
) -> None:
    tokenizer, out = twins.byte_level(tmp_path / "model"), tmp_path / "cache"
    error = fields("build", rows, "--tokenizer", tokenizer, "-o", out, exit_code=3)["error"]
    assert "wrong_type" in error["message"] and "write it as a text, as `json.dumps` does" in error["hint"]
    written = [row | {"output": json.dumps(row["output"])} for row in ROWS]
    rows.write_text("".join(json.dumps(row) + "\n" for row in written), "utf-8")
    run("build", rows, "--tokenizer", tokenizer, "-o", out)
    learned = view_row(Cache.open(out), rows.name, 3).documents[0].runs[-1].text
    assert json.loads(learned.removesuffix("<|im_end|>")) == ROWS[3]["output"]


def test_what_is_not_read_of_an_object_that_columns_read_is_named(rows: Path, tmp_path: Path) -> None:
    columns = ("--columns", "instruction=instruction,output=output.port")
    result = run("build", rows, "--tokenizer", twins.byte_level(tmp_path / "model"), "-o", tmp_path / "cache", *columns)
    assert "fields of rows that are not read: `output.berth` (0, 1, 2, …)" in result.stderr
