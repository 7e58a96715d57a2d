"""`packer verify --reencode` on the command line: what it says, in words and in JSON, and how it exits."""

import json
import shutil
from pathlib import Path

import msgspec
from command_line import fields, run
from rejected_lines import write_rejected

from packer.store.manifest import read_manifest, write_manifest
from packer.store.row_tables import Rejected


def row_of(shown, name):
    """The cells of a line of the table, which is indented."""
    (line,) = (line for line in shown.splitlines() if line.startswith(f"  {name} "))
    return line.split()


def test_a_good_cache_is_made_again_and_the_report_says_how_many_rows(starter_cache):
    shown = run("verify", starter_cache, "--sources", "/", "--reencode", "-j", "1").stdout
    assert row_of(shown, "inputs")[:3] == ["inputs", "5", "200"]
    assert row_of(shown, "re-encoded") == ["re-encoded", "5", "200", "ok"]
    assert "re-encoded   200 of 200 rows, by the reference engine" in shown
    assert "ok: everything is as it was written" in shown
    assert "note:" not in shown
    assert "re-encoded" not in run("verify", starter_cache, "--sources", "/").stdout
    assert fields("verify", starter_cache)["num_reencoded"] is None


def test_a_sample_says_how_many_rows_of_how_many(starter_cache):
    asked = ("verify", starter_cache, "--sources", "/", "--reencode", "--sample", "12", "-j", "1")
    assert "re-encoded   12 of 200 rows" in run(*asked).stdout and run(*asked, "-q").output == ""
    found = fields(*asked)
    assert (found["ok"], found["num_reencoded"], found["notes"]) == (True, 12, [])
    assert (found["checked"][-1]["kind"], found["checked"][-1]["num_rows"]) == ("re-encoded", 12)


def test_inputs_that_are_not_read_exit_1_and_their_rows_are_not_compared(starter, starter_cache):
    asked = ("verify", starter_cache, "--reencode", "-j", "1", "--sources")
    result = run(*asked, starter / "data" / "chat.jsonl", exit_code=1)
    assert "re-encoded   92 of 200 rows" in result.stdout
    assert "alpaca.jsonl" in result.stdout and "the cache itself is intact" in result.stderr
    shown = run(*asked, starter / "tokenizer", exit_code=1).stdout
    assert row_of(shown, "re-encoded") == ["re-encoded", "0", "not", "compared"]


def test_a_row_that_yields_something_else_is_shown_and_exits_1(starter_cache, tmp_path):
    cache = Path(shutil.copytree(starter_cache, tmp_path / "cache"))
    path = cache / "rejected.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    codes = [line["code"] for line in lines]
    assert codes[0] != codes[1]
    lines[0]["code"], lines[1]["code"] = codes[1], codes[0]  # so that every count is as it was
    digests = write_rejected(cache, msgspec.convert(lines, list[Rejected]))
    write_manifest(cache, msgspec.structs.replace(read_manifest(cache), **digests))
    result = run("verify", cache, "--sources", "/", "--reencode", "-j", "1", exit_code=1)
    assert f"row {lines[0]['row']:,}\n  re-encoded\n  expected  rejected: " in result.stdout
    assert f"found     rejected: {codes[1]}" in result.stdout
    assert "hint: every file is what its digest says" in result.stderr
    found = fields("verify", cache, "--sources", "/", "--reencode", "-j", "1", exit_code=1)
    finding, _ = found["findings"]
    assert (finding["path"], finding["row"]) == (lines[0]["source"], lines[0]["row"])
    assert found["error"]["code"] == "check_failed"
