"""Answers that are objects: the command of the hint writes them as JSON, and what is not read of one is named."""

import json
import shutil
import subprocess
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


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_objects_as_answers_are_trained_as_the_json_that_the_hint_makes_of_them(rows: Path, tmp_path: Path) -> None:
    tokenizer, out = twins.byte_level(tmp_path / "model"), tmp_path / "cache"
    hint = fields("build", rows, "--tokenizer", tokenizer, "-o", out, exit_code=3)["error"]["hint"]
    assert "if a model is to read or write `output` as JSON: jq" in hint
    subprocess.run(["bash", "-euc", hint.partition(": ")[2]], check=True, cwd=tmp_path)
    run("build", tmp_path / "ports_lines.jsonl", "--tokenizer", tokenizer, "-o", out)
    learned = view_row(Cache.open(out), "ports_lines.jsonl", 3).documents[0].runs[-1].text
    assert json.loads(learned.removesuffix("<|im_end|>")) == ROWS[3]["output"]


def test_what_is_not_read_of_an_object_that_columns_read_is_named(rows: Path, tmp_path: Path) -> None:
    columns = ("--columns", "instruction=instruction,output=output.port")
    result = run("build", rows, "--tokenizer", twins.byte_level(tmp_path / "model"), "-o", tmp_path / "cache", *columns)
    assert "fields of rows that are not read: `output.berth` (0, 1, 2, …)" in result.stderr
