"""`packer diff` as people see it."""

import json

import pytest
from command_line import fields, run
from shorter_starter import shortened

from packer.audit.diff import diff
from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe
from packer.store.manifest import read_manifest


@pytest.fixture(scope="module")
def changed(starter, tmp_path_factory):
    """A cache that differs in everything: rules, an input, the template, the tokenizer, blocks."""
    place = shortened(starter, tmp_path_factory.mktemp("changed") / "starter", 22)
    rows = place / "data" / "chat.jsonl"
    lines = rows.read_text("utf-8").splitlines()
    row = json.loads(lines[3])
    row["messages"][-1]["content"] += " Ça va 世界? \x1b[31m"
    lines[3], lines[7] = json.dumps(row), "not json"
    rows.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    template = place / "tokenizer" / "chat_template.jinja"
    template.write_text(template.read_text("utf-8").replace("<think>", "<think> "), "utf-8")
    tokenizer = place / "tokenizer" / "tokenizer.json"
    definition = json.loads(tokenizer.read_text("utf-8"))
    definition["normalizer"] = {"type": "NFC"}
    tokenizer.write_text(json.dumps(definition), "utf-8")
    overrides = ["supervision.turns=last", "pack.block_len=256", "template.kwargs.note=" + "long " * 30]
    build(load_recipe(place / "recipe.yaml", overrides), place.parent / "cache", jobs=1, fail_above=1)
    return place.parent / "cache"


@pytest.fixture(scope="module")
def fewer_turns(starter, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fewer") / "cache"
    build(load_recipe(starter / "recipe.yaml", ["supervision.turns=last"]), folder, jobs=1, fail_above=1)
    return folder


def test_the_same_cache_is_one_line_and_exit_0(starter_cache):
    told = run("diff", starter_cache, starter_cache, exit_code=0)
    assert (told.stdout, told.stderr) == ("the same bytes\n", "")
    assert run("diff", starter_cache, starter_cache, "-q", exit_code=0).output == ""


def test_a_difference_is_reported_on_stdout_and_ends_with_exit_1(starter_cache, fewer_turns):
    told = run("diff", starter_cache, fewer_turns, exit_code=1)
    meaning = "other documents: different rules"
    assert told.stderr == f"error: {starter_cache} and {fewer_turns} differ: {meaning}\n"
    lines = told.stdout.splitlines()
    assert lines[0] == meaning
    assert '  supervision.turns  "all" → "last"' in lines
    assert len(lines) > 10
    (documents,) = diff(starter_cache, fewer_turns).documents
    told_words = " ".join(told.stdout.split())
    for words, count, rows in (
        ("in both", documents.both, ()),
        ("only in old, the first of", documents.only_old, documents.first_old),
        ("only in new, the first of", documents.only_new, documents.first_new),
    ):
        assert f"train {count:,} {words} {', '.join(rows)}".strip() in told_words
    totals = [read_manifest(folder).totals for folder in (starter_cache, fewer_turns)]
    trained = f"trained {totals[0].trained:,} → {totals[1].trained:,}"
    assert trained.split() in [line.split() for line in lines]
    # Sections in which nothing differs are not there.
    assert not {"inputs", "software", "tokenizer and template"} & set(lines)
    assert "tokenizer" not in told.stdout
    quiet = run("diff", starter_cache, fewer_turns, "-q", exit_code=1)
    assert (quiet.stdout, quiet.stderr) == ("", told.stderr)


def test_every_section_is_there_where_everything_differs(starter_cache, changed):
    lines = run("diff", starter_cache, changed, exit_code=1).stdout.splitlines()
    headings = [line for line in lines if line and not line.startswith(" ")]
    meaning, *sections = headings
    assert meaning == "other documents: different rules, inputs, tokenizer or template"
    assert sections == ["recipe", "inputs", "tokenizer and template", "documents", "totals"]


def test_json_has_every_field_of_the_library(starter_cache, changed):
    told = fields("diff", starter_cache, changed, exit_code=1)
    found = diff(starter_cache, changed)
    assert {"schema": 1, "command": "diff", "same": False, "same_bytes": False}.items() <= told.items()
    assert set(told) == {"schema", "command", "same", "same_bytes", "meaning", "error", *found.__slots__}
    assert (told["old"], told["new"]) == (str(starter_cache), str(changed))
    assert told["error"]["code"] == "check_failed"
    assert told["error"]["message"].endswith(found.meaning)
    assert told["content_fingerprint"] == list(found.content_fingerprint)
    assert {"key": "supervision.turns", "old": "all", "new": "last"} in told["recipe"]
    assert told["documents"][0]["only_old"] == found.documents[0].only_old
    same = fields("diff", starter_cache, starter_cache)
    assert (same["same"], same["error"], same["recipe"], same["documents"]) == (True, None, [], [])
