"""What each command prints and how it exits: data on stdout, everything else on stderr."""

import fcntl
import json
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest
from chats import chat
from command_line import fields, run
from flipped_bits import flip

from packer.audit.verify import verify
from packer.store.manifest import read_manifest
from packer.version import __version__
from packer_cli.main import COMMANDS

ROW = chat("Hi [b]there[/b]", "Hello [red]you[/red]")


@pytest.fixture
def rows(tmp_path):
    """A file of three rows, two of them good, with brackets in its name."""
    path = tmp_path / "rows [bold].jsonl"
    path.write_text(f"{json.dumps(ROW)}\nnot json\n{json.dumps(ROW)}\n")
    return path


@pytest.fixture
def cache(starter_cache, tmp_path):
    return Path(shutil.copytree(starter_cache, tmp_path / "cache"))


def damage(cache):
    path = cache / read_manifest(cache).shards[0].path
    flip(path)
    return path.relative_to(cache).as_posix()


def test_from_nothing_to_a_verified_cache(tmp_path):
    assert "next: packer build" in run("init", tmp_path / "demo").stdout
    built = run("build", "-c", tmp_path / "demo" / "recipe.yaml", "-o", tmp_path / "cache", "-j", "1").stdout
    assert "200" in built
    assert "197 kept, 3 rejected" in built
    assert "preference" in built
    assert verify(tmp_path / "cache").fingerprint in built
    assert "assistant" in run("inspect", tmp_path / "cache").stdout
    assert "ok: everything is as it was written" in run("verify", tmp_path / "cache", "--full", "--sources", "/").stdout
    assert "  eval   " in run("stats", tmp_path / "cache").stdout.partition("lengths of documents")[2]


def test_build_again_does_nothing_and_says_so(tmp_path, starter):
    first = fields("build", "-c", starter / "recipe.yaml", "-o", tmp_path / "cache", "-j", "1")
    again = fields("build", "-c", starter / "recipe.yaml", "-o", tmp_path / "cache", "-j", "1")
    assert (first["built"], again["built"], again["profile"]) == (True, False, {})
    assert list(first["profile"]) == ["plan", "documents", "blocks", "commit"]
    assert 0 < sum(first["profile"].values()) <= first["seconds"] + 0.01
    assert first["fingerprint"] == again["fingerprint"] == verify(tmp_path / "cache").fingerprint
    assert "is up to date" in run("build", "-c", starter / "recipe.yaml", "-o", tmp_path / "cache").stdout


def test_a_cache_is_repaired_by_what_built_it(cache, starter):
    before = verify(cache).fingerprint
    damage(cache)
    found = fields("verify", cache, exit_code=1)
    assert found["error"]["hint"].endswith(f"packer build … -o {cache} --repair")
    assert fields("build", "-c", starter / "recipe.yaml", "-o", cache, "--repair", "-j", "1")["partitions_built"] == 1
    assert verify(cache, level="full", expect=before).ok


def test_sources_on_the_command_line_take_the_place_of_the_recipes(tmp_path, starter, rows):
    options = ("--split", "dev", "--schema", "messages", "-j", "1")
    found = fields("build", rows, "-c", starter / "recipe.yaml", "-o", tmp_path / "cache", *options)
    manifest = read_manifest(tmp_path / "cache")
    (entry,) = manifest.inputs
    assert (entry.path, entry.split, entry.schema) == (rows.as_posix(), "dev", "messages")
    assert manifest.recipe["pack"]["block_len"] == 512
    assert (found["totals"]["rows"], found["totals"]["kept"]) == (3, 2)


def test_a_number_of_rows_may_be_larger_than_any_file(starter, rows):
    run("preview", rows, "--tokenizer", starter / "tokenizer", "-n", 2**64)


@pytest.mark.parametrize(
    ("asked", "limits"),
    [(("preview", "-n", "0"), ", 1 or more"), (("inspect", "cache", "--rank", 2**31), f" from 0 to {2**31 - 1}")],
)
def test_a_number_out_of_range_is_refused_with_the_range_that_help_leaves_out(asked, limits):
    told = run(*asked, exit_code=2).stderr
    assert f"{asked[-1]}: expected a whole number{limits}" in told
    assert "<=x" not in run(asked[0], "--help").stdout
    assert "expected a whole number" in run(*asked[:-1], "two", exit_code=2).stderr


def test_a_wrong_type_is_reported_with_the_path_of_the_first(tmp_path, starter, rows):
    turns = [{"role": "user", "content": 7}, *ROW["messages"]]
    rows.write_text("".join(json.dumps(row) + "\n" for row in (ROW, {"messages": turns}, {"messages": turns[:1]}, ROW)))
    build = ("build", rows, "--tokenizer", starter / "tokenizer", "-o", tmp_path / "cache", "-j", "1")
    told = " ".join(run(*build).stdout.split())
    assert "are rejected: wrong_type: expected `str | array | null`, got `int`" in told
    assert "at $.messages[0].content" in told


def test_inspect_ids_gives_ids_and_labels(cache):
    block = fields("inspect", cache, "--block", "1", "--ids")["block"]
    runs = [one for document in block["documents"] for one in document["runs"]]
    runs += [block["padding"]] if block["padding"] else []
    ids = [token for one in runs for token in one["input_ids"]]
    labels = [label for one in runs for label in one["labels"]]
    assert len(ids) == len(labels) == 512
    assert sum(label != -100 for label in labels) == block["num_trained"]
    assert all(label in (-100, token) for token, label in zip(ids, labels, strict=True))
    assert "input_ids" not in fields("inspect", cache)["block"]["documents"][0]["runs"][0]
    trained = next(one["input_ids"] for one in runs if one["kind"] == "trained")
    assert f"trained: {' '.join(map(str, trained[:3]))}" in run("inspect", cache, "--block", "1", "--ids").stdout


def test_inspect_finds_a_document_by_its_id(cache):
    document = fields("inspect", cache, "--split", "eval")["block"]["documents"][0]
    assert isinstance(document["doc_id"], str), "a number of 64 bits is another one in JavaScript"
    assert fields("inspect", cache, "--doc", document["doc_id"])["document"] == document
    assert f"doc {document['doc_id']}" in run("inspect", cache, "--doc", document["doc_id"]).stdout


def test_verify_lists_what_is_damaged_and_exits_1(cache):
    path = damage(cache)
    result = run("verify", cache, exit_code=1)
    assert path in result.stdout
    assert "expected" in result.stdout
    assert result.stderr.startswith("error: ")
    assert f"packer build … -o {cache} --repair" in result.stderr
    found = fields("verify", cache, exit_code=1)
    assert found["ok"] is False
    assert {finding["path"] for finding in found["findings"]} == {path}
    assert found["error"]["code"] == "check_failed"


def test_verify_compares_with_a_pinned_fingerprint(cache):
    fingerprint = fields("verify", cache)["fingerprint"]
    run("verify", cache, "--expect", fingerprint)
    other = run("verify", cache, "--expect", "0" * 64, exit_code=1)
    assert other.stderr.startswith(f"error: {cache} is not the expected cache\n\nhint: ")
    assert "damaged" not in other.stdout + other.stderr
    run("verify", cache, "--expect", "\udcff", exit_code=1)  # a byte that is not UTF-8
    assert f"  expected  {'0' * 64}\n  found     {fingerprint}" in other.stdout


def test_a_cache_that_is_being_written_is_busy(tmp_path, starter, rows):
    lock = tmp_path / "cache" / ".packer" / "lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        told = run("build", rows, "--tokenizer", starter / "tokenizer", "-o", tmp_path / "cache", exit_code=4)
    assert "is writing this cache" in told.stderr


def test_a_bug_asks_to_be_reported_and_v_shows_where(cache, monkeypatch):
    def burst(*_, **__):
        raise ZeroDivisionError("of [bold]course[/bold]")

    monkeypatch.setattr("packer.audit.stats.stats", burst)
    told = run("stats", cache, exit_code=70)
    assert told.stdout == ""
    assert "internal error: ZeroDivisionError: of [bold]course[/bold]" in told.stderr
    assert "please report it" in told.stderr
    assert "Traceback" not in told.stderr
    assert "Traceback" in run("stats", cache, "-v", exit_code=70).stderr
    assert fields("stats", cache, exit_code=70)["error"]["code"] == "bug"


def test_quiet_says_nothing_but_data(tmp_path, rows, starter):
    built = run("build", rows, "--tokenizer", starter / "tokenizer", "-o", tmp_path / "cache", "-j", "1", "-q")
    assert built.output == ""
    assert run("verify", tmp_path / "cache", "-q").output == ""
    assert run("init", tmp_path / "demo", "-q").output == ""
    assert "tokens" in run("stats", tmp_path / "cache", "-q").stdout


def test_command_distribution_and_manifest_name_the_same_version(starter_cache):
    recorded = read_manifest(starter_cache).versions["packer"]
    assert run("--version").stdout.split() == ["packer", recorded] == ["packer", version("token-packer")]


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_help_and_version_are_everywhere_and_fit_80_columns(name):
    words = [name] if name else []
    short, long = run(*words, "-h", env={"COLUMNS": "80"}), run(*words, "--help", env={"COLUMNS": "80"})
    assert short.stdout == long.stdout
    assert all(len(line) <= 80 for line in long.stdout.splitlines())
    assert run(*words, "--version").stdout == f"packer {__version__}\n"
    if not name:
        assert not any(line.startswith("  ") and line.endswith("...") for line in long.stdout.splitlines())  # cut
    else:
        for option in ("--verbose", "--quiet", "--json"):
            assert option in long.stdout


def test_stats_warns_first_and_then_says_what_a_build_says(starter, tmp_path):
    arguments = ("-c", starter / "recipe.yaml", "-o", tmp_path / "cache", "--fail-above", "1", "--block-len", "64")
    settings = ("supervision.turns=conversation", "filters=[{name: dead, of: answers, not_matches: qqq}]")
    built = run("build", *arguments, *(word for each in settings for word in ("--set", each))).stdout.splitlines()
    lines = run("stats", tmp_path / "cache").stdout.splitlines()
    warned = [number for number, line in enumerate(lines) if line.startswith("warning: ")]
    first = next(number for number, line in enumerate(lines) if line.startswith("  rows "))
    assert len(warned) == 3 and max(warned) < first
    assert {line for line in built if line.startswith(("warning: ", "  rows ", "  documents ", "  blocks "))} <= {
        *lines
    }
