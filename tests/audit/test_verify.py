"""Verifying: a whole cache passes at every level; whatever is damaged is found, all of it, and named."""

import dataclasses
import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from flipped_bits import flip
from packed_again import packed_again
from rejected_lines import write_rejected
from shorter_starter import shortened

from packer.audit.verify import shard_checks, verify
from packer.audit.verify.shard_checks import MAX_ROWS, document_rules
from packer.errors import CheckError
from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe
from packer.store import row_tables
from packer.store.arrow_columns import document_rows
from packer.store.cache import Cache
from packer.store.manifest import read_manifest, sealed, write_manifest
from packer.store.mapping import OutOfBounds, check_rows
from packer.store.row_tables import content_fingerprint, read_rejected
from packer.store.writing import write_blocks

LEVELS = ("default", "full")


@pytest.fixture
def cache(starter_cache, tmp_path):
    """A copy that a test may damage."""
    return Path(shutil.copytree(starter_cache, tmp_path / "cache"))


def files_of(folder):
    """Every file of a cache that its manifest vouches for."""
    manifest = read_manifest(folder)
    paths = [shard.path for shard in manifest.shards] + [f"model/{file.path}" for file in manifest.model.files]
    return [*paths, "rejected.jsonl"]


def paths(report):
    return {finding.path for finding in report.findings}


@pytest.mark.parametrize("level", LEVELS)
def test_a_whole_cache_passes_at_every_level(starter_cache, level):
    report = verify(starter_cache, level=level, sources=["/"])
    assert report.findings == ()
    assert report.ok
    assert report.hint is None


def test_the_report_counts_what_lies_in_the_cache(starter_cache):
    report = verify(starter_cache, sources=["/"])
    manifest = read_manifest(starter_cache)
    checked = {entry.kind: entry for entry in report.checked}
    assert list(checked) == ["manifest", "documents", "blocks", "rejected", "model", "inputs"]
    for kind in ("documents", "blocks"):
        files = sorted((starter_cache / kind).iterdir())
        rows = sum(pa.ipc.open_file(file).read_all().num_rows for file in files)
        assert (checked[kind].num_files, checked[kind].num_rows) == (len(files), rows)
        assert checked[kind].num_bytes == sum(file.stat().st_size for file in files)
    assert checked["rejected"].num_rows == len((starter_cache / "rejected.jsonl").read_text().splitlines())
    assert checked["inputs"].num_files == len(manifest.inputs) == 5
    assert report.content_fingerprint == manifest.content_fingerprint


def test_a_flipped_value_names_its_row(cache):
    shard = next(shard for shard in read_manifest(cache).shards if shard.kind == "blocks")
    place = shard.places[0]
    row_bytes = 4 * 512
    flip(cache / shard.path, place.columns["input_ids"] + 1 * row_bytes + 8)
    found = {(finding.path, finding.row, finding.what) for finding in verify(cache).findings}
    assert found == {(shard.path, None, "xxh3-128"), (shard.path, 1, "row digest")}


def test_shards_swapped_in_the_manifest_are_found(cache):
    manifest = read_manifest(cache)
    blocks = [i for i, shard in enumerate(manifest.shards) if (shard.kind, shard.split) == ("documents", "train")]
    shards = list(manifest.shards)
    a, b = blocks[:2]
    shards[a], shards[b] = shards[b], shards[a]
    write_manifest(cache, msgspec.structs.replace(manifest, shards=tuple(shards)))
    assert "content_fingerprint" in {finding.what for finding in verify(cache).findings}


def test_another_cache_fails_against_a_pinned_fingerprint(starter_cache):
    fingerprint = verify(starter_cache).fingerprint
    assert verify(starter_cache, expect=fingerprint).ok
    assert verify(starter_cache, expect=fingerprint.upper()).ok
    for wrong in ("0" * 64, fingerprint[:-1], "", "ä"):
        report = verify(starter_cache, expect=wrong)
        (finding,) = report.findings
        assert (finding.what, finding.expected, finding.found) == ("fingerprint", wrong, fingerprint)
        assert report.is_another
        assert {entry.num_damaged for entry in report.checked} == {0}, "it is another cache, and a whole one"
        assert report.hint is not None and f"packer diff OLD {starter_cache}" in report.hint


def test_another_cache_that_is_damaged_too_is_sent_to_repair(cache):
    (cache / read_manifest(cache).shards[0].path).unlink()
    report = verify(cache, expect="0" * 64)
    assert not report.is_another
    assert "makes it again with --repair" in report.hint


@pytest.mark.parametrize(
    "change",
    [
        lambda m: {"recipe": {**m.recipe, "pack": {**m.recipe["pack"], "seed": 1}}},
        lambda m: {"recipe": {**m.recipe, "supervision": {**m.recipe["supervision"], "turns": "last"}}},
        lambda m: {"recipe": {}},
        lambda m: {"recipe_fingerprint": "0" * 64},
        lambda m: {"content_fingerprint": "0" * 64},
        lambda m: {"rejected_sha256": "0" * 64},
        lambda m: {"model": msgspec.structs.replace(m.model, vocab_size=m.model.vocab_size + 1)},
        lambda m: {"model": msgspec.structs.replace(m.model, stop_ids=())},
        lambda m: {"totals": msgspec.structs.replace(m.totals, kept=m.totals.kept - 1)},
        lambda m: {
            "totals": msgspec.structs.replace(m.totals, rejected={**m.totals.rejected, "not_json": 0, "empty": 1})
        },
        lambda m: {"shards": m.shards[1:]},
        lambda m: {"shards": (*m.shards, m.shards[-1])},
        lambda m: {"inputs": m.inputs[:1]},
    ],
)
def test_a_manifest_that_contradicts_the_cache_is_found_without_a_pin(cache, change):
    manifest = read_manifest(cache)
    write_manifest(cache, msgspec.structs.replace(manifest, **change(manifest)))
    assert not verify(cache).ok


def test_numbers_of_a_shard_that_are_not_those_of_its_rows_are_found(cache):
    manifest = read_manifest(cache)
    for field in ("num_tokens", "num_trained", "num_last_tokens", "num_rejected"):
        shard = manifest.shards[0]
        changed = msgspec.structs.replace(shard, **{field: getattr(shard, field) + 1})
        write_manifest(cache, msgspec.structs.replace(manifest, shards=(changed, *manifest.shards[1:])))
        assert shard.path in str(verify(cache).findings), field


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"format": "packer-cache"'])
def test_a_manifest_that_cannot_be_read_is_a_finding(cache, content):
    (cache / "manifest.json").write_bytes(content)
    report = verify(cache)
    assert paths(report) == {"manifest.json"}
    assert report.content_fingerprint is None
    assert "makes it again with --repair" in report.hint


def test_other_bytes_that_mean_the_same_manifest_are_found(cache):
    path = cache / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest))
    assert {finding.what for finding in verify(cache).findings} == {"structure"}
    path.write_bytes(sealed(json.dumps({key: manifest[key] for key in manifest if key != "checksum"}).encode()))
    assert {finding.what for finding in verify(cache).findings} == {"form"}


def test_every_damaged_file_is_reported_and_the_hint_repairs_them(cache, starter):
    names = files_of(cache)
    for number, name in enumerate(names):
        if number % 3 == 0:
            (cache / name).unlink()
        elif number % 3 == 1:
            flip(cache / name)
        else:
            (cache / name).write_bytes(b"")
    report = verify(cache)
    assert paths(report) >= set(names), "each of them, not just the first"
    assert "--repair" in report.hint
    build(load_recipe(starter / "recipe.yaml"), cache, jobs=1, repair=True)
    again = verify(cache, level="full")
    assert again.findings == ()
    assert again.fingerprint == report.fingerprint


def first_batch(folder, kind):
    shard = next(shard for shard in read_manifest(folder).shards if shard.kind == kind)
    return pa.ipc.open_file(folder / shard.path).get_batch(0)


def broken(rules):
    """What is broken, and in which rows."""
    return {what: np.flatnonzero(rows).tolist() for what, _, rows in rules if rows.any()}


def writable(rows):
    """The same rows over memory of their own."""
    fields = {}
    for name in rows.__dataclass_fields__:
        value = getattr(rows, name)
        if hasattr(value, "offsets"):
            value = type(value)(values=value.values.copy(), offsets=value.offsets.copy())
        elif value is not None:
            value = value.copy()
        fields[name] = value
    return type(rows)(**fields)


def trained_place(labels, row_start, row_end):
    return row_start + int(np.flatnonzero(labels[row_start:row_end] != -100)[0])


def test_document_rules_name_what_is_broken_and_the_row(starter_cache):
    model = read_manifest(starter_cache).model

    def rules(change):
        rows = writable(document_rows(first_batch(starter_cache, "documents")))
        change(rows, int(rows.input_ids.offsets[2]), int(rows.input_ids.offsets[3]))
        return broken(document_rules(rows, model))

    def label_of_another_id(rows, start, end):
        rows.labels.values[trained_place(rows.labels.values, start, end)] += 1

    def trained_first(rows, start, end):
        rows.labels.values[start] = rows.input_ids.values[start]

    def outside_vocabulary(rows, start, end):
        place = start + int(np.flatnonzero(rows.labels.values[start:end] == -100)[0])
        rows.input_ids.values[place] = model.vocab_size

    def masked(rows, start, end):
        rows.labels.values[trained_place(rows.labels.values, start, end)] = -100

    def shorter_span(rows, start, end):
        rows.span_end[rows.span_offsets[2]] -= 1

    assert rules(lambda *_: None) == {}
    assert rules(label_of_another_id) == {"labels": [2], "doc_id": [2]}
    assert rules(trained_first).keys() == {"first token", "num_trained", "spans", "doc_id"}
    assert rules(outside_vocabulary) == {"input_ids": [2], "doc_id": [2]}
    assert rules(masked) == {"num_trained": [2], "spans": [2], "doc_id": [2]}
    assert rules(shorter_span) == {"spans": [2]}


@pytest.mark.parametrize("column", ["length", "labels", "spans"])
def test_lists_that_are_not_one_value_for_each_token_are_out_of_bounds(chat_cache, column):
    (shard, *_) = read_manifest(chat_cache).document_shards
    rows = writable(document_rows(first_batch(chat_cache, "documents")))
    check_rows(rows, shard)
    if column == "length":
        rows.length[2] -= 1
    elif column == "spans":
        rows.span_end[rows.span_offsets[2]] = 2**31 - 1
    else:
        getattr(rows, column).offsets[3] += 1
    with pytest.raises(OutOfBounds) as raised:
        check_rows(rows, shard)
    assert raised.value.row == 2


@pytest.fixture(scope="module")
def chat_cache(starter, tmp_path_factory):
    """Six chats of growing length."""
    folder = tmp_path_factory.mktemp("chats") / "cache"
    answers = [{"role": "assistant", "content": " ".join(map(str, range(k + 3)))} for k in range(6)]
    chats = [{"messages": [{"role": "user", "content": f"count to {k}"}, each]} for k, each in enumerate(answers)]
    build(chats, folder, tokenizer=starter / "tokenizer", pack={"block_len": 64}, jobs=1, progress=None)
    return folder


def forge_blocks(cache, split, change):
    """Write the blocks of a split anew after a change, with digests that are right; returns the path of their shard."""
    manifest = read_manifest(cache)
    with Cache.open(cache) as opened:
        blocks = opened.blocks(split)
        batch = change(blocks.read(np.arange(len(blocks))))
    shard = write_blocks(cache, [batch], block_len=batch.input_ids.shape[1], split=split, index=0)
    others = tuple(each for each in manifest.shards if (each.kind, each.split) != ("blocks", split))
    forged = msgspec.structs.replace(manifest, shards=(*others, shard))
    content = content_fingerprint(cache, forged.shards)
    write_manifest(cache, msgspec.structs.replace(forged, content_fingerprint=content))
    return shard.path


# column, where (a trained token, the head or the padding of a row, its first run or piece), new value, what is found
BLOCK_CHANGES = {
    "another token": ("input_ids labels", "trained", lambda old, _: old ^ 1, "other input_ids, labels"),
    "a trained head": ("labels", "head", lambda _, token: token, "other labels"),
    "another padding": ("input_ids", "padding", lambda old, _: old + 1, "other input_ids"),
    "trained padding": ("labels", "padding", lambda _, token: token, "other labels"),
    "another position": ("position_ids", "head", lambda *_: 7, "other position_ids"),
    "a longer run": ("seq_lengths", "run", lambda old, _: old + 1, "seq_lengths: expected a sum of"),
    "another place": ("doc_places", "piece", lambda old, _: old + 1, "other doc_places"),
    "a shorter piece": ("doc_lengths", "piece", lambda old, _: old - 1, "other doc_lengths"),
    "no piece": ("doc_lengths", "piece", lambda *_: 0, "a piece that is not inside its document"),
    "no document": ("doc_ids", "piece", lambda old, _: old ^ 1, "other doc_ids"),
}


@pytest.mark.parametrize("change", BLOCK_CHANGES)
def test_a_block_that_is_not_what_its_pieces_make_is_named(change, chat_cache, tmp_path):
    cache = Path(shutil.copytree(chat_cache, tmp_path / "cache"))
    columns, where, value, said = BLOCK_CHANGES[change]
    changed = {}

    def forged(batch):
        copies = {name: values.copy() for name in batch.__slots__ if (values := getattr(batch, name)) is not None}
        row = int(np.flatnonzero(batch.length < batch.input_ids.shape[1])[-1])
        trained = (row, int(np.flatnonzero(batch.labels[row] != -100)[-1]))
        places = {"trained": trained, "head": (row, 0), "padding": (row, -1)}
        places |= {"run": batch.seq_offsets[row], "piece": batch.doc_offsets[row]}
        for name in columns.split():
            token = batch.input_ids[places[where]] if where in ("head", "padding") else None
            copies[name][places[where]] = value(copies[name][places[where]], token)
        changed["row"] = row
        return dataclasses.replace(batch, **copies)

    path = forge_blocks(cache, "train", forged)
    found = [finding for finding in verify(cache, level="full").findings if finding.what in {"block", "bounds"}]
    assert [(finding.path, finding.row) for finding in found] == [(path, changed["row"])]
    assert said in found[0].found
    if change in ("another token", "another position"):
        assert verify(cache).ok, "every digest is right"


def test_blocks_in_another_order_than_packing_gives_are_found(chat_cache, tmp_path):
    cache = Path(shutil.copytree(chat_cache, tmp_path / "cache"))
    with Cache.open(cache) as opened:
        blocks = opened.blocks("train")
        backwards = blocks.read(np.arange(len(blocks))[::-1])
    assert len(backwards.length) > 1
    forge_blocks(cache, "train", lambda _: backwards)
    assert verify(cache).ok, "every digest is right"
    assert {finding.what for finding in verify(cache, level="full").findings} == {"block"}


def test_a_part_in_no_block_that_is_said_of_another_document_is_found(starter_cache, tmp_path):
    packed_again(starter_cache, tmp_path / "cache", {"block_len": 128, "overlong": "reject"})
    cache = tmp_path / "cache"
    lines = [*read_rejected(cache, read_manifest(cache))]
    (first, one), (second, other), *_ = [(at, line) for at, line in enumerate(lines) if line.document is not None]
    assert one.document != other.document and (one.code, one.split) == (other.code, other.split)
    lines[first] = msgspec.structs.replace(one, document=other.document)
    lines[second] = msgspec.structs.replace(other, document=one.document)
    write_manifest(cache, msgspec.structs.replace(read_manifest(cache), **write_rejected(cache, lines)))
    assert verify(cache).ok, "every count is right"
    assert [finding.what for finding in verify(cache, level="full").findings] == ["parts in no block"]


def test_of_many_rows_that_break_a_rule_the_first_are_named_and_the_rest_counted(cache):
    shard = max((s for s in read_manifest(cache).shards if s.kind == "documents"), key=lambda s: s.places[0].num_rows)
    place = shard.places[0]
    assert place.num_rows > MAX_ROWS + 5
    with (cache / shard.path).open("r+b") as file:
        file.seek(place.columns["length"])
        file.write(b"\x01\x00\x00\x00" * place.num_rows)
    found = [finding for finding in verify(cache).findings if finding.what == "row digest"]
    assert [finding.row for finding in found] == [*range(MAX_ROWS), None]
    assert found[-1].found == f"{place.num_rows - MAX_ROWS:,} more rows with something else"


def test_a_shard_under_a_name_that_is_not_its_digest_is_found(cache):
    manifest = read_manifest(cache)
    shard = manifest.shards[0]
    path = shard.path[: -len("0123456789ab.arrow")] + "0123456789ab.arrow"
    shutil.move(cache / shard.path, cache / path)
    renamed = msgspec.structs.replace(shard, path=path)
    write_manifest(cache, msgspec.structs.replace(manifest, shards=(renamed, *manifest.shards[1:])))
    (finding,) = verify(cache).findings
    assert (finding.path, finding.what, finding.expected) == (path, "name", f"…-{shard.sha256[:12]}.arrow")


@pytest.mark.parametrize("error", [OSError, ValueError, IndexError, OverflowError])
def test_whatever_a_shard_breaks_is_its_finding_and_the_other_files_are_checked(error, cache, monkeypatch):
    first, second = read_manifest(cache).shards[:2]
    flip(cache / second.path)
    batches = shard_checks._batches

    def breaks(folder, shard):
        if shard == first:
            raise error("broken")
        return batches(folder, shard)

    monkeypatch.setattr(shard_checks, "_batches", breaks)
    found = {(finding.path, finding.what, finding.found) for finding in verify(cache).findings}
    assert (first.path, "structure", "broken") in found
    assert {path for path, _, _ in found} == {first.path, second.path}


@pytest.mark.parametrize("level", ["default", "full"])
def test_a_file_the_disk_fails_to_give_is_a_finding_and_the_others_are_checked(level, cache, monkeypatch):
    shard = read_manifest(cache).shards[0]
    file_digest = hashlib.file_digest

    def fails(file, of):
        if os.path.samestat(os.fstat(file.fileno()), (cache / shard.path).stat()):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return file_digest(file, of)

    monkeypatch.setattr(hashlib, "file_digest", fails)
    (finding,) = verify(cache, level=level).findings
    assert (finding.path, finding.what) == (shard.path, "structure")
    assert finding.found.startswith(f"cannot read {cache / shard.path}: Input/output error")


def test_a_recipe_that_no_build_has_is_a_finding_and_its_blocks_are_not_judged(cache):
    manifest = read_manifest(cache)
    recipe = {**manifest.recipe, "template": {"date": "2026-02-30"}}
    write_manifest(cache, msgspec.structs.replace(manifest, recipe=recipe))
    (finding,) = verify(cache).findings
    assert (finding.path, finding.what) == ("manifest.json", "recipe")
    assert "template.date" in finding.found
    assert verify(cache, level="full").findings == (finding,)


def test_the_identity_of_a_cache_of_another_version_is_its_own(cache):
    """Rules decide a recipe's fingerprint; those of another version are not known here."""
    manifest = msgspec.structs.replace(read_manifest(cache), recipe_fingerprint="0" * 64)
    write_manifest(cache, manifest)
    assert {finding.what for finding in verify(cache).findings} == {"recipe_fingerprint"}
    write_manifest(cache, msgspec.structs.replace(manifest, versions={**manifest.versions, "packer": "0.0.0"}))
    assert verify(cache).ok


def test_inputs_with_relative_names_are_looked_for_from_here_and_the_hint_says_so(starter, tmp_path, monkeypatch):
    folder = shortened(starter, tmp_path / "project", 22)
    monkeypatch.chdir(folder)
    build(load_recipe("recipe.yaml"), "cache", jobs=1)
    assert {Path(entry.path).parent for entry in read_manifest(Path("cache")).inputs} == {Path("data")}
    assert verify("cache", sources=["/"]).ok
    assert verify("cache", sources=["/"], reencode=True, sample=2, threads=1).ok
    monkeypatch.chdir(tmp_path)
    assert verify(folder / "cache", sources=[folder], reencode=True, sample=2, threads=1).ok
    report = verify(folder / "cache", sources=[folder / "data"])
    assert {finding.what for finding in report.findings} == {"input"}, "their names begin above this folder"
    monkeypatch.chdir(folder)
    assert verify("cache", sources=["data"]).ok
    monkeypatch.chdir(tmp_path)
    for sources in (["."], ["/"]):
        report = verify(folder / "cache", sources=sources, reencode=True, sample=2, threads=1)
        assert [finding.what for finding in report.findings] == ["input"] * 5
        assert all("no such file" in finding.found.lower() for finding in report.findings)
        assert report.hint.endswith("Names are looked up from the current folder and below --sources")


def test_rows_that_break_rules_in_a_file_that_is_as_written_are_not_sent_to_repair(cache):
    """Repair keeps a file that is what its digest says."""

    def changed(batch):
        batch.position_ids[0, 3] = 7
        return batch

    forge_blocks(cache, "eval", changed)
    report = verify(cache, level="full")
    assert {finding.what for finding in report.findings} == {"block"}
    assert "--repair would keep it" in report.hint and "build into another folder" in report.hint
    (cache / read_manifest(cache).shards[0].path).unlink()
    assert "makes it again with --repair" in verify(cache, level="full").hint


def test_a_line_of_a_rejected_list_that_has_no_end_is_not_held(starter_cache, tmp_path, monkeypatch):
    manifest = read_manifest(starter_cache)
    longest = max(map(len, (starter_cache / "rejected.jsonl").read_bytes().splitlines(keepends=True)))
    monkeypatch.setattr(row_tables, "_MAX_LINE_BYTES", longest)
    assert [*read_rejected(starter_cache, manifest)]
    monkeypatch.setattr(row_tables, "_MAX_LINE_BYTES", longest - 1)
    with pytest.raises(CheckError, match=f"expected at most {longest - 1:,} bytes"):
        [*read_rejected(starter_cache, manifest)]
