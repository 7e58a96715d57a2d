"""What the commands say of rules about rows."""

import json
import shutil

import msgspec
import pytest
from command_line import assert_refused, fields, run


@pytest.fixture(scope="module")
def place(starter, tmp_path_factory):
    folder = tmp_path_factory.mktemp("place")
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"What is {i % 25}?"},
                {"role": "assistant", "content": f"It is {i % 25}." if i else "No"},
            ]
        }
        for i in range(40)
    ]
    (folder / "a.jsonl").write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows))
    return folder, starter / "tokenizer"


RULES = ("--set", "deduplicate.exact=bytes", "--set", "split.shares.validation=0.3", "--set")


def test_a_build_and_stats_say_which_rows(place):
    folder, tokenizer = place
    filters = "filters=[{name: short, of: answers, chars: {min: 3}}, {name: dead, of: prompts, matches: What}]"
    cache = folder / "cache"
    built = run("build", folder / "a.jsonl", "--tokenizer", tokenizer, "-o", cache, *RULES, filters, "-j", 1).stdout
    assert "warning: filter dead leaves out no row" in built and "in no block" not in built
    assert all(len(line) <= 80 for line in built.splitlines() if "fingerprint" not in line and "/" not in line)
    found = fields("stats", cache)
    splits = found["selected"]["splits"]
    assert sum(splits.values()) == 25 and splits["validation"] > 0
    left_out = {(each["code"], each["rule"]): each["rows"] for each in found["selected"]["left_out"]}
    assert left_out == {("filtered", "short"): 1, ("filtered", "dead"): 0, ("duplicate", None): 14}
    told = run("stats", cache).stdout
    assert "left out by rules: 15 of 40 rows" in told and "14  35.0 %  duplicate" in told
    tokens = {each["split"]: str(each["tokens"]) for each in found["splits"]}
    lines = told.partition("\nsplits\n")[2].splitlines()[1:3]
    for line in lines:
        assert tokens[line.split()[0]] in line.split(), "what there is to train on, split by split"
    for words in (built, run("stats", cache).stdout):
        assert "25 kept, 15 left out by rules, 0 rejected" in words
    again = run("build", folder / "a.jsonl", "--tokenizer", tokenizer, "-o", cache, *RULES, filters, "-j", 1).stdout
    assert "is up to date" in again and "left out by rules" in again
    other = ("-o", folder / "other", *RULES, filters, "--set", "split.seed=7", "-j", 1)
    shutil.copytree(cache, folder / "other")
    seed = fields("build", folder / "a.jsonl", "--tokenizer", tokenizer, "--force", *other)
    assert seed["partitions_built"] == 0 and seed["rows"]["left_out"] == found["selected"]["left_out"]
    moved = run("diff", cache, folder / "other", exit_code=1).stdout
    assert "split.seed" in moved and "only in old" in moved and "only in new" in moved
    shown = run("inspect", cache, "--row", "a.jsonl:26").stdout
    assert "duplicate" in shown


def test_stats_of_a_cache_without_rules_say_nothing_of_rules(starter_cache):
    assert "selected" not in fields("stats", starter_cache)


def test_a_row_that_was_left_out_is_shown_with_its_reason_and_its_documents(place, tmp_path):
    folder, tokenizer = place
    rules = ("--set", "deduplicate.exact=bytes", "--set", "sources.take.rows=3")
    rules += ("--block-len", 16, "--fail-above", 1, "--set", "pack.overlong=truncate_right")
    run("build", folder / "a.jsonl", "--tokenizer", tokenizer, "-o", tmp_path / "cache", *rules, "-j", 1)
    lines = [json.loads(line) for line in (tmp_path / "cache" / "rejected.jsonl").read_text().splitlines()]
    by_code = {line["code"]: line for line in lines}
    truncated = by_code["truncated"]
    row = f"a.jsonl:{truncated['row']}"
    shown = run("inspect", tmp_path / "cache", "--row", row).stdout
    assert f"{truncated['tokens']} tokens of its document" in shown and "were left out: truncated" in shown
    copies = [line for line in lines if line["code"] == "duplicate"]
    assert copies
    for line in copies:
        kept = line["reason"].rpartition(" ")[2]
        left_out, winner = (
            fields("inspect", tmp_path / "cache", "--row", f"a.jsonl:{row}") for row in (line["row"], kept)
        )
        assert left_out["rejected"][0]["reason"].endswith(f"a.jsonl row {kept}")
        texts = [
            ["".join(run["text"] for run in each["runs"]) for each in view["documents"]] for view in (left_out, winner)
        ]
        assert texts[0] == texts[1] != [], "copies say the same, and what a rule left out is still in the shards"
        assert {each["split"] for each in left_out["documents"]} == {""}


def test_a_row_of_a_file_that_two_sources_name_is_found_in_the_one_that_reads_it(place, tmp_path):
    """The first source stops before it."""
    _, tokenizer = place
    rows = [{"text": f"some words {i}", "n": i} for i in range(12)]
    (tmp_path / "b.jsonl").write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows))
    sources = [
        {"path": str(tmp_path / "b.jsonl"), "split": "validation", "limit": 4},
        {"path": str(tmp_path / "b.jsonl"), "where": {"n": {"min": 6, "max": 9}}},
    ]
    recipe = {"version": 1, "sources": sources, "tokenizer": str(tokenizer)}
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    run("build", "-c", tmp_path / "recipe.yaml", "-o", tmp_path / "cache", "-j", 1)
    for row, split, codes in (
        (2, "validation", ["filtered"]),
        (7, "train", []),
        (5, "", ["filtered"]),
        (11, "", ["filtered"]),
    ):
        found = fields("inspect", tmp_path / "cache", "--row", f"b.jsonl:{row}")
        assert {each["split"] for each in found["documents"]} == {split}
        assert [each["code"] for each in found["rejected"]] == codes
    assert_refused("no row 12 in", "inspect", tmp_path / "cache", "--row", "b.jsonl:12", exit_code=2)
    run("report", tmp_path / "cache", "-o", tmp_path / "page.html")
