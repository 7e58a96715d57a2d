"""Making documents again: what rows, tokenizer and rules come to is found, and whatever else is stored is told."""

import hashlib
import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import twins
from flipped_bits import flip
from packed_again import packed_again
from rejected_lines import write_rejected
from shorter_starter import shortened

from packer.audit import input_parts
from packer.audit.verify import verify
from packer.audit.verify.shard_checks import MAX_ROWS
from packer.pipeline.from_python import build
from packer.pipeline.identity import Provenance, resolve_engine
from packer.pipeline.stages import Stages
from packer.recipe.recipe import load_recipe, make_recipe
from packer.source.partition import partition_file
from packer.store.manifest import read_manifest, write_manifest
from packer.store.row_tables import content_fingerprint, read_rejected
from packer.store.writing import write_documents

NUM_CHATS, NUM_MIXED = 30, 65


def chat(k, **fields):
    """Two turns, of which the second is flagged in every fifth row."""
    turns = [
        {"role": "user", "content": f"What is {k} plus 30?"},
        {"role": "assistant", "content": f"The answer is {k + 30}.", "reasoning_content": "Think first."},
        {"role": "user", "content": "How are you today?"},
        {"role": "assistant", "content": f"I am fine, {k} times."} | ({"weight": 1} if k % 5 == 0 else {}),
    ]
    return {"id": f"chat-{k}", "messages": turns, **fields}


def lines(rows):
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def small_recipe(folder, **keys):
    """Thirty chats, without a block: what a row comes to is all there is."""
    values = {"sources": [{"path": str(folder / "chat.jsonl")}], "tokenizer": str(folder / "tokenizer")}
    return make_recipe(values | {"engine": "reference", "pack": {"mode": "none"}} | keys)


@pytest.fixture
def small(tmp_path):
    """A folder with thirty chats and a tokenizer that rewrites nothing."""
    template = twins.CHATML.replace("(message.content", "(message.reasoning_content or '') + (message.content")
    twins.byte_level(tmp_path / "tokenizer", template=template)
    (tmp_path / "chat.jsonl").write_bytes(lines(chat(k) for k in range(NUM_CHATS)))
    return tmp_path


def forged(folder, change, **keys):
    """A cache built from changed chats that claims the chats as they are: every digest is right, every law holds."""
    path = folder / "chat.jsonl"
    original = path.read_bytes()
    path.write_bytes(lines(change([json.loads(line) for line in original.splitlines()])))
    build(small_recipe(folder, **keys), folder / "cache", jobs=1)
    path.write_bytes(original)
    manifest = read_manifest(folder / "cache")
    (entry,) = manifest.inputs
    entry = msgspec.structs.replace(entry, sha256=hashlib.sha256(original).hexdigest(), num_bytes=len(original))
    recommit(folder / "cache", inputs=(entry,))
    assert verify(folder / "cache", level="full", sources=["/"]).ok
    return folder / "cache"


def recommit(cache, **changes):
    """Another manifest whose fingerprints are those of what it says."""
    manifest = msgspec.structs.replace(read_manifest(cache), **changes)
    found = Provenance.of(manifest, make_recipe(manifest.recipe)).recipe_fingerprint
    content = content_fingerprint(cache, manifest.shards)
    write_manifest(cache, msgspec.structs.replace(manifest, recipe_fingerprint=found, content_fingerprint=content))


def in_row(number, change):
    """A change of one row."""

    def changed(rows):
        change(rows[number])
        return rows

    return changed


def rows_of(report):
    return {(Path(finding.path).name, finding.row) for finding in report.findings}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Everything rows can be: rewritten history, flags, text, completions, an array, limits, a file for two splits.

    Four of the chats are bad, blank lines stand between them, and partitions are small.
    """
    folder = tmp_path_factory.mktemp("mixed")
    twins.byte_level(folder / "tokenizer", template=twins.QWEN3_LIKE, bos=True)
    bad = [{"messages": []}, {"messages": [{"role": "user", "content": "?"}]}]
    rows = [chat(0), *bad, *(chat(k) for k in range(1, 15)), *bad, *(chat(k) for k in range(15, 20))]
    (folder / "chat.jsonl").write_bytes(b"\n \n" + lines(rows).replace(b"}\n", b"}\n\n") + b"\n\n")
    (folder / "text.jsonl").write_bytes(lines({"text": f"The dog goes on sleeping, {k}."} for k in range(20)))
    completions = [{"prompt": f"{k} + {k} =", "completion": f" {2 * k}"} for k in range(20)]
    (folder / "array.json").write_text(json.dumps(completions, indent=1))
    (folder / "typed.jsonl").write_bytes(lines({"text": f"a web page says <|im_end|> {k}"} for k in range(5)))
    chats = {"path": str(folder / "chat.jsonl")}
    sources = [
        {**chats, "split": "train"},
        {**chats, "split": "held", "limit": 16, "columns": {"id": None}},
        {"path": str(folder / "text.jsonl"), "limit": 13},
        {"path": str(folder / "array.json"), "limit": 7},
        {"path": str(folder / "typed.jsonl"), "split": "held"},
    ]
    rules = {"engine": "reference", "supervision": {"history_rewrite": "exact"}, "partition_bytes": 3000}
    recipe = {"sources": sources, "tokenizer": str(folder / "tokenizer"), "pack": {"block_len": 256}, **rules}
    build(make_recipe(recipe), folder / "cache", jobs=1)
    return folder / "cache"


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_rows_of_every_kind_yield_their_documents_again(mixed, threads):
    manifest = read_manifest(mixed)
    totals, documents = manifest.totals, [shard for shard in manifest.shards if shard.kind == "documents"]
    assert totals.documents > 1.5 * totals.kept, "history is rewritten"
    assert sum(totals.rejected.values()) == 6, "of a file for two splits, four rows and two"
    assert Counter(shard.source for shard in documents)[0] > 4, "there are many partitions"
    report = verify(mixed, level="full", sources=["/"], reencode=True, threads=threads)
    assert report.findings == ()
    assert report.num_reencoded == totals.rows == NUM_MIXED == 24 + 16 + 13 + 7 + 5


@pytest.fixture
def rendered(monkeypatch):
    """Rows that went through the stages, in this process."""
    numbers = []
    run = Stages.run
    monkeypatch.setattr(Stages, "run", lambda self, rows: numbers.append(rows.num_rows) or run(self, rows))
    return numbers


@pytest.mark.parametrize("sample", [1, NUM_MIXED - 1])
def test_a_sample_compares_so_many_rows_and_renders_no_other(mixed, sample, rendered):
    report = verify(mixed, sources=["/"], reencode=True, sample=sample, threads=1)
    assert report.findings == ()
    assert report.num_reencoded == sample
    assert sum(rendered) == sample
    assert {entry.kind: entry.num_rows for entry in report.checked}["re-encoded"] == sample


def test_a_sample_finds_the_chosen_rows_where_all_are_wrong_and_chooses_the_same_again(small):
    def asked_otherwise(rows):
        for row in rows:  # of the same lengths, so that partitions are cut as before
            row["messages"][2]["content"] = "How are you todaz?"
        return rows

    cache = forged(small, asked_otherwise, partition_bytes=1000)
    assert len(read_manifest(cache).shards) > 9
    report = verify(cache, sources=["/"], reencode=True, sample=9, threads=1)
    assert report.num_reencoded == len(report.findings) == len(rows_of(report)) == 9
    assert verify(cache, sources=["/"], reencode=True, sample=9, threads=1).findings == report.findings
    more = verify(cache, sources=["/"], reencode=True, sample=10, threads=1)
    assert rows_of(report) < rows_of(more)


CHANGES = {
    "one id": lambda row: row["messages"][0].update(content="What is 4 plus 30?"),
    "a label": lambda row: row["messages"][1].update(train=False),
    "a name": lambda row: row.update(id="chat-4"),
    "no name": lambda row: row.pop("id"),
    "a shorter answer": lambda row: row["messages"][3].update(content="I am fine."),
}


def test_what_a_row_does_not_yield_is_found_though_every_digest_is_right(small):
    def change_each(rows):
        for row, change in zip(rows[3:], CHANGES.values(), strict=False):
            change(row)
        return rows

    cache = forged(small, change_each)
    findings = verify(cache, level="full", sources=["/"], reencode=True, threads=1).findings
    assert [finding.row for finding in findings] == list(range(3, 3 + len(CHANGES)))
    for finding in findings:
        assert (Path(finding.path).name, finding.what) == ("chat.jsonl", "re-encoded")
        assert finding.expected.startswith("1 document, ")
        assert finding.found.startswith("1 document, ") and finding.found != finding.expected
    assert verify(cache, sources=["/"], reencode=True, sample=NUM_CHATS, threads=1).findings == findings


def test_columns_that_digests_of_the_content_leave_out_are_compared_too(small, monkeypatch):
    def with_other_messages(folder, batches, **options):
        moved = (replace(each, run_message=np.where(each.run_message == 3, 2, each.run_message)) for each in batches)
        return write_documents(folder, moved, **options)

    with monkeypatch.context() as patch:
        patch.setattr("packer.pipeline.partition.write_documents", with_other_messages)
        build(small_recipe(small), small / "cache", jobs=1)
    assert verify(small / "cache", level="full", sources=["/"]).ok
    report = verify(small / "cache", sources=["/"], reencode=True, threads=1)
    assert rows_of(report) == {("chat.jsonl", row) for row in range(20)} | {("chat.jsonl", None)}
    assert report.findings[0].found.endswith(", with other values")
    assert report.findings[-1].found == "10 more of rows 0 to 29 with something else"


def test_rejections_that_should_not_be_and_those_that_are_missing_are_found(small):
    def empty(rows):
        rows[3]["messages"] = []
        return rows

    cache = forged(small, empty)
    (finding,) = verify(cache, sources=["/"], reencode=True, threads=1).findings
    assert finding.row == 3
    assert finding.expected.startswith("1 document, ")
    assert finding.found == "rejected: empty"

    good = (small / "chat.jsonl").read_bytes()
    (small / "chat.jsonl").write_bytes(lines(empty([json.loads(line) for line in good.splitlines()])))
    shutil.rmtree(cache)
    cache = forged(small, in_row(3, lambda row: row.update(messages=chat(3)["messages"])))
    (finding,) = verify(cache, sources=["/"], reencode=True, threads=1).findings
    assert (finding.row, finding.expected) == (3, "rejected: empty")
    assert finding.found.startswith("1 document, ")
    shutil.rmtree(cache)
    cache = forged(small, in_row(3, lambda row: row.update(messages=[{"role": "user", "content": "?"}])))
    (finding,) = verify(cache, sources=["/"], reencode=True, threads=1).findings
    assert (finding.expected, finding.found) == ("rejected: empty", "rejected: nothing_trained")


def test_a_row_that_is_neither_stored_nor_rejected_and_one_that_is_both_are_found(mixed, tmp_path):
    cache = Path(shutil.copytree(mixed, tmp_path / "cache"))
    first, *others = read_rejected(cache, read_manifest(cache))
    assert first.row == 1
    moved = msgspec.structs.replace(first, row=0)
    recommit(cache, **write_rejected(cache, [moved, *others]))
    assert verify(cache, level="full").ok
    neither_and_both = verify(cache, sources=["/"], reencode=True, threads=1).findings
    assert [finding.row for finding in neither_and_both] == [0, 1]
    assert neither_and_both[0].found == f"{neither_and_both[0].expected}; and rejected: empty"
    assert (neither_and_both[1].expected, neither_and_both[1].found) == ("rejected: empty", "no document")


def test_missing_and_changed_inputs_are_findings_and_the_rest_is_compared(starter, tmp_path):
    folder, cache = shortened(starter, tmp_path / "starter", 9), tmp_path / "cache"
    build(load_recipe(folder / "recipe.yaml", ["engine=reference"]), cache, jobs=1)
    with (folder / "data" / "chat.jsonl").open("a") as file:
        file.write("\n")
    (folder / "data" / "tools.jsonl").unlink()
    (folder / "data" / "sharegpt.jsonl").write_text("")
    assert verify(cache).ok, "inputs are looked at only when asked for"
    rows = {Path(entry.path).name: entry.num_rows for entry in read_manifest(cache).inputs}
    report = verify(cache, sources=["/"], reencode=True, threads=1)
    assert [Path(finding.path).name for finding in report.findings] == ["chat.jsonl", "tools.jsonl", "sharegpt.jsonl"]
    assert {finding.what for finding in report.findings} == {"input"}
    assert report.findings == verify(cache, sources=["/"]).findings
    assert report.num_reencoded == rows["reasoning.jsonl"] + rows["alpaca.jsonl"] > 0
    assert "the cache itself is intact" in report.hint
    shutil.rmtree(folder / "data")
    report = verify(cache, sources=["/"], reencode=True, sample=3, threads=1)
    assert (len(report.findings), report.num_reencoded) == (5, 0)


def test_an_input_that_changes_while_it_is_read_is_a_finding(small, monkeypatch):
    build(small_recipe(small), small / "cache", jobs=1)
    cut = input_parts.partition_file

    def cut_and_change(path, **options):
        found = cut(path, **options)
        path.write_bytes(path.read_bytes().replace(b"times", b"TIMES"))
        return found

    monkeypatch.setattr(input_parts, "partition_file", cut_and_change)
    for sample in (None, 5):
        (small / "chat.jsonl").write_bytes(lines(chat(k) for k in range(NUM_CHATS)))
        report = verify(small / "cache", sources=["/"], reencode=True, sample=sample, threads=1)
        assert [finding.what for finding in report.findings] == ["input"], sample
        assert "changed while being read" in report.findings[0].found
        assert report.num_reencoded == 0


def test_partitions_that_are_not_those_of_the_recipe_are_findings(small):
    build(small_recipe(small, partition_bytes=1000), small / "cache", jobs=1)
    manifest = read_manifest(small / "cache")
    recommit(small / "cache", recipe={**manifest.recipe, "partition_bytes": 2**20})
    assert verify(small / "cache", level="full", sources=["/"]).ok
    report = verify(small / "cache", sources=["/"], reencode=True, threads=1)
    assert {finding.what for finding in report.findings} == {"partition"}
    *of_shards, of_input = report.findings
    assert [finding.path for finding in of_shards] == [shard.path for shard in manifest.shards[:MAX_ROWS]]
    assert len(of_shards) > 9
    assert (Path(of_input.path).name, of_input.expected) == ("chat.jsonl", "rows 0 to 29")
    assert report.num_reencoded == 0
    recommit(small / "cache", recipe={**manifest.recipe, "partition_bytes": 2000})
    report = verify(small / "cache", sources=["/"], reencode=True, threads=1)
    file = Path(manifest.inputs[0].path)
    cuts = partition_file(file, format="jsonl", partition_bytes=2000).partitions
    ours = {(piece.first_row, piece.num_rows) for piece in cuts}
    theirs = {(shard.first_row, shard.num_input_rows) for shard in manifest.shards}
    assert 0 < len(ours & theirs) < len(theirs)
    assert report.num_reencoded == sum(num_rows for _, num_rows in ours & theirs)
    assert sum("partition" in finding.what for finding in report.findings) <= len(ours ^ theirs)
    assert not report.ok


def test_damaged_files_are_reported_once_and_what_can_be_compared_is(mixed, tmp_path):
    for name in ("model", "shard", "values", "rejected"):
        cache = Path(shutil.copytree(mixed, tmp_path / name))
        shard = read_manifest(cache).shards[0]
        columns = shard.places[0].columns
        path, place = {
            "model": (next(cache.glob("model/*/tokenizer.json")), None),
            "shard": (cache / shard.path, columns["length"] + 1),
            "values": (cache / shard.path, columns["digest"] + 1),
            "rejected": (cache / "rejected.jsonl", None),
        }[name]
        flip(path, place)
        plain, report = verify(cache, threads=1), verify(cache, sources=["/"], reencode=True, threads=1)
        assert not plain.ok
        assert report.findings[: len(plain.findings)] == plain.findings
        more = report.findings[len(plain.findings) :]
        if name == "model":
            assert [(finding.path, finding.what) for finding in more] == [("manifest.json", "re-encoded")]
            assert report.num_reencoded == 0
        else:
            assert more == ()
            assert report.num_reencoded == NUM_MIXED - (shard.num_input_rows if name == "shard" else 0)
    (cache / shard.path).unlink()
    missing = verify(cache, sources=["/"], reencode=True, threads=1)
    assert [finding.what for finding in missing.findings if finding.path == shard.path] == ["size"]
    assert missing.num_reencoded == NUM_MIXED - shard.num_input_rows


def test_a_manifest_that_does_not_say_how_to_read_is_a_finding(small):
    build(small_recipe(small), small / "cache", jobs=1)
    manifest = read_manifest(small / "cache")
    (entry,) = manifest.inputs
    odd = ({"schema": "parquet"}, {"format": "parquet"}, {"format": "json"}, {"num_rows": 2**62}, {"num_rows": 0})
    changes = [{"inputs": (msgspec.structs.replace(entry, **change),)} for change in odd]
    changes += [{"inputs": ()}, {"recipe": {"no": "recipe"}}]
    changes.append({"recipe": {**manifest.recipe, "supervision": {"turns": "none"}}})
    for change in changes:
        write_manifest(small / "cache", msgspec.structs.replace(manifest, **change))
        report = verify(small / "cache", sources=["/"], reencode=True, sample=4, threads=1)
        assert not report.ok or change["inputs"][0].num_rows == 2**62, change


def test_other_versions_are_noted_and_compared_all_the_same(small):
    build(small_recipe(small), small / "cache", jobs=1)
    manifest = read_manifest(small / "cache")
    version = resolve_engine("reference", b"").version
    for change in ({"engine_version": "tokenizers 0.1, jinja2 0.1"}, {"rules_version": manifest.rules_version + 1}):
        recommit(small / "cache", **change)
        report = verify(small / "cache", sources=["/"], reencode=True, threads=1)
        (note,) = report.notes
        assert version in note and str(next(iter(change.values()))) in note
        assert report.ok and report.num_reencoded == NUM_CHATS
        write_manifest(small / "cache", manifest)


def test_whatever_engine_made_a_cache_the_reference_makes_it_again(small, monkeypatch):
    pytest.importorskip("gigatoken", reason="the fast engine is not installed")
    from packer.tokenize.fast import FastEncoder

    build(small_recipe(small, engine="fast"), small / "cache", jobs=1)
    assert read_manifest(small / "cache").engine == "fast"

    def refuse(self, texts):
        raise AssertionError("the fast engine was asked")

    monkeypatch.setattr(FastEncoder, "encode", refuse)
    report = verify(small / "cache", sources=["/"], reencode=True, threads=1)
    assert (report.findings, report.notes, report.num_reencoded) == ((), (), NUM_CHATS)


def test_a_template_that_the_build_did_not_use_is_not_used_again(small):
    """With `--template`, a second template for tools in tokenizer_config.json is left alone; the kept files hold it."""
    config = json.loads((small / "tokenizer" / "tokenizer_config.json").read_text())
    for file in (small / "tokenizer").glob("*.jinja"):
        file.unlink()
    named = [{"name": "default", "template": twins.CHATML}, {"name": "tool_use", "template": "{{ 'never' }}"}]
    (small / "tokenizer" / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": named}))
    own = twins.CHATML.replace("(message.content", "(tools | string if tools else '') + (message.content")
    (small / "own.jinja").write_text(
        own.replace("(message.content", "(message.reasoning_content or '') + (message.content")
    )
    tool = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object"}}}
    (small / "chat.jsonl").write_bytes(lines(chat(k, tools=[tool]) for k in range(5)))
    build(small_recipe(small, template={"file": str(small / "own.jinja")}), small / "cache", jobs=1)
    report = verify(small / "cache", sources=["/"], reencode=True, threads=1)
    assert (report.findings, report.num_reencoded) == ((), 5)


def test_a_cache_packed_again_yields_its_documents_again_from_its_own_tokenizer(small):
    build(small_recipe(small), small / "cache", jobs=1)
    packed_again(small / "cache", small / "again", {"mode": "stream", "block_len": 64, "pad_id": 5})
    shutil.rmtree(small / "cache")
    shutil.rmtree(small / "tokenizer")
    sources = [entry.path for entry in read_manifest(small / "again").inputs]
    report = verify(small / "again", level="full", sources=sources, reencode=True, threads=1)
    assert (report.findings, report.num_reencoded) == ((), NUM_CHATS)
    assert not report.notes


def test_a_sample_without_making_again_or_of_no_rows_is_a_mistake(mixed):
    for arguments in ({"sample": 3}, {"sample": 0, "reencode": True}, {"sample": -1, "reencode": True}):
        with pytest.raises(ValueError, match="expected at least 1, with reencode"):
            verify(mixed, **arguments)
