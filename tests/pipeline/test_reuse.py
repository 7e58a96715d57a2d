"""What is there already: found again whatever was left, believed only where it is whole, ended where it was begun."""

import hashlib
import json
import shutil
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rejected_lines import write_rejected
from shorter_starter import SETTLED, shortened
from watched_builds import Notes, digests

from packer import __version__
from packer.audit.verify import verify
from packer.display import repair_hint
from packer.errors import StorageError
from packer.pipeline import commit, run
from packer.pipeline.commit import finish_if_free
from packer.pipeline.documents import committed
from packer.pipeline.from_python import build
from packer.pipeline.identity import Provenance, key_of
from packer.pipeline.partition import JOURNALS, PartitionResult
from packer.recipe.groups import Pack
from packer.recipe.recipe import load_recipe, make_recipe, to_json
from packer.source.partition import Partition
from packer.store import files
from packer.store.folder import lock
from packer.store.manifest import read_manifest, write_manifest
from packer.store.row_tables import is_pending, read_rejected


@pytest.fixture(scope="module")
def starter(starter, tmp_path_factory):
    """The example with fewer rows, of which one is rejected."""
    return shortened(starter, tmp_path_factory.mktemp("short") / "starter", 24)


@pytest.fixture(scope="module")
def starter_cache(starter, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "cache"
    again(starter, folder)
    return folder


@pytest.fixture
def cache(starter_cache, tmp_path):
    """A copy that a test may damage."""
    return Path(shutil.copytree(starter_cache, tmp_path / "cache"))


def again(starter, folder, **options):
    return build(load_recipe(starter / "recipe.yaml"), folder, jobs=1, **options)


def unfinished(cache):
    """Take a cache back to the moment behind its commit: its ledger is staged, and a shard of before is still there."""
    manifest = read_manifest(cache)
    pending = cache / manifest.pending_rejected
    pending.parent.mkdir(exist_ok=True)
    shutil.move(cache / "rejected.jsonl", pending)
    (cache / "blocks" / "train-00007-0123456789ab.arrow").write_bytes(b"of the build before")
    return manifest


def test_a_build_that_is_up_to_date_ends_the_commit_another_one_began(starter, starter_cache, cache):
    unfinished(cache)
    assert not again(starter, cache).built
    assert digests(cache) == digests(starter_cache)


def test_a_commit_that_its_own_process_is_ending_is_left_to_it(cache):
    manifest = unfinished(cache)
    with lock(cache):
        finish_if_free(cache, manifest)
        assert is_pending(cache, manifest)
    finish_if_free(cache, manifest)
    assert not is_pending(cache, manifest)


def test_a_dry_run_of_a_build_that_is_up_to_date_ends_nothing(starter, cache):
    unfinished(cache)
    before = digests(cache)
    result = again(starter, cache, dry_run=True)
    assert (result.built, result.num_partitions_built) == (False, 0)
    assert digests(cache) == before


def test_a_build_that_another_one_came_before_does_nothing(starter, starter_cache, tmp_path, monkeypatch):
    """The other one finishes between the look at the folder and the lock."""
    cache, builds = tmp_path / "cache", []

    @contextmanager
    def late(folder):
        if not builds:
            builds.append(folder)
            builds.append(again(starter, cache))
        with lock(folder):
            yield

    monkeypatch.setattr(run, "lock", late)
    result = again(starter, cache)
    assert builds[1].built and not result.built
    assert result.fingerprint == builds[1].fingerprint
    assert digests(cache) == digests(starter_cache)


def test_a_manifest_that_is_damaged_is_reported_and_built_again(starter, starter_cache, cache):
    path = cache / "manifest.json"
    path.write_bytes(path.read_bytes()[:-3])
    notes = Notes()
    assert again(starter, cache, progress=notes).num_partitions_built == 5
    assert [note for note in notes.notes if note.endswith("; building again") and str(path) in note]
    assert digests(cache) == digests(starter_cache)


def test_journal_entries_that_cannot_be_read_cost_their_partitions_alone(starter, tmp_path, monkeypatch):
    def dies(*_, **__):
        raise StorageError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(run, "pack_documents", dies)
        with pytest.raises(StorageError):
            again(starter, tmp_path / "died")
    entries = sorted((tmp_path / "died" / JOURNALS[PartitionResult]).iterdir())
    for entry, left in zip(entries, (b"", b"{", b'{"shard": 3}', b"\xff"), strict=False):
        entry.write_bytes(left)
    result = again(starter, tmp_path / "died")
    assert (result.num_partitions_built, result.num_partitions_reused) == (4, 1)


def test_a_document_shard_that_is_missing_is_made_again_and_only_it(starter, starter_cache, cache):
    shards = [shard for shard in read_manifest(cache).shards if shard.kind == "documents"]
    (cache / shards[1].path).unlink()
    result = again(starter, cache)
    assert (result.num_partitions_built, result.num_partitions_reused) == (1, len(shards) - 1)
    assert digests(cache) == digests(starter_cache)


@pytest.mark.parametrize("change", ["one line less", "a row of another partition"])
def test_a_ledger_that_does_not_go_with_the_partitions_vouches_for_none(change, starter, starter_cache, cache):
    """Its digest is right and its rows are not: nothing of such a cache is taken over."""
    manifest = read_manifest(cache)
    lines = list(read_rejected(cache, manifest))
    assert len(committed(cache, manifest)) == 5
    if change == "one line less":
        lines = lines[:-1]
    else:
        lines[0] = msgspec.structs.replace(lines[0], row=10**6)
    write_manifest(cache, msgspec.structs.replace(manifest, **write_rejected(cache, lines)))
    assert committed(cache, read_manifest(cache)) == []
    assert again(starter, cache, repair=True).num_partitions_built == 5
    assert digests(cache) == digests(starter_cache)


def inodes(cache):
    """What each file of a cache is; a file that was written again is another one."""
    return {path.relative_to(cache).as_posix(): path.stat().st_ino for path in cache.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def shards_of_all_kinds(starter, tmp_path_factory):
    """A cache with many document shards, of which few reject rows, and many block shards."""
    folder = tmp_path_factory.mktemp("many") / "cache"
    keys = [*SETTLED, "partition_bytes=8KiB", "shard_bytes=60KiB"]
    build(load_recipe(starter / "recipe.yaml", keys), folder, jobs=1)
    return folder


def damaged_file(manifest, kind):
    shards = [shard for shard in manifest.shards if shard.kind == kind]
    if shards:
        return shards[len(shards) // 2].path
    return "rejected.jsonl" if kind == "rejected" else f"model/{manifest.model.files[-1].path}"


@pytest.mark.parametrize(
    ("kind", "harm"), [("documents", "a flipped bit"), ("blocks", "cut"), ("rejected", "gone"), ("model", "gone")]
)
def test_repair_makes_the_damaged_file_again_and_no_other_document(kind, harm, shards_of_all_kinds, tmp_path):
    """The blocks, the manifest and the ledger, which every commit writes, aside.

    The reasons of rejections are in the ledger alone: without it, the partitions that rejected something are made again.
    """
    cache = Path(shutil.copytree(shards_of_all_kinds, tmp_path / "cache"))
    manifest = read_manifest(cache)
    name = damaged_file(manifest, kind)
    before, whole = inodes(cache), digests(cache)
    content = bytearray((cache / name).read_bytes())
    content[len(content) // 2] ^= 1
    (cache / name).rename(tmp_path / "aside")
    if harm != "gone":
        (cache / name).write_bytes(content[: -1 if harm == "cut" else None])
    report = verify(cache)
    assert {finding.path for finding in report.findings} == {name}
    assert report.hint == repair_hint(cache)
    result = build(make_recipe(manifest.recipe), cache, jobs=1, repair=True)
    assert digests(cache) == whole
    after = inodes(cache)
    written = {path for path in before if after[path] != before[path]} - {"manifest.json", "rejected.jsonl"}
    written -= {shard.path for shard in manifest.shards if shard.kind == "blocks"} - {name}
    rejecting = {shard.path for shard in manifest.shards if shard.num_rejected}
    assert 0 < len(rejecting) < len(manifest.shards) // 4
    assert written == (rejecting if kind == "rejected" else {name})
    assert result.num_partitions_built == {"documents": 1, "rejected": len(rejecting)}.get(kind, 0)


def test_a_cache_alone_answers_where_it_came_from_and_what_was_left_out(starter, starter_cache, tmp_path):
    """Its inputs, tokenizer and template may be gone: the five questions of the contract are answered by the folder."""
    cache = Path(shutil.copytree(starter_cache, tmp_path / "alone"))
    manifest = read_manifest(cache)
    # Which raw files: by name, size and digest.
    for entry in manifest.inputs:
        path = Path(entry.path)
        assert (entry.num_bytes, entry.sha256) == (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
    assert {Path(entry.path).name for entry in manifest.inputs} == {path.name for path in (starter / "data").iterdir()}
    # Which rows were left out and why.
    rejected, totals = [line for line in read_rejected(cache, manifest) if line.document is None], manifest.totals
    assert Counter(line.code for line in rejected) == Counter(totals.rejected)
    lines = (line for entry in manifest.inputs for line in Path(entry.path).read_bytes().splitlines())
    assert sum(1 for line in lines if line.strip()) == totals.rows == totals.kept + len(rejected)
    assert totals.tokens == totals.trained + totals.masked > 10_000
    assert all(line.reason and line.source in {entry.path for entry in manifest.inputs} for line in rejected)
    # Which tokenizer, normalizer, template: their very files.
    for file in manifest.model.files:
        kept = cache / "model" / file.path
        assert kept.read_bytes() == (starter / "tokenizer" / kept.name).read_bytes()
    assert {Path(file.path).name for file in manifest.model.files} >= {"tokenizer.json", "chat_template.jinja"}
    # Which rules of packing, truncation and loss: the recipe, every default written out that is a value.
    assert manifest.recipe == to_json(make_recipe(manifest.recipe))
    assert manifest.recipe["pack"].keys() == to_json(Pack()).keys() - {"max_pixels", "pad_id"}
    assert manifest.recipe["supervision"].keys() == {*to_json(make_recipe({}))["supervision"], "on_prompt_mismatch"}
    # Was it made by this code.
    assert manifest.versions["packer"] == __version__
    assert verify(cache, level="full").ok


def test_names_of_files_that_are_kept_are_flushed_before_the_commit(starter, cache, monkeypatch):
    """A build that was killed may have given them their names and not flushed the folder; then the power goes."""
    events = []
    sync, write = files.sync_folder, commit.write_manifest
    monkeypatch.setattr(files, "sync_folder", lambda folder: events.append(folder) or sync(folder))
    monkeypatch.setattr(
        commit, "write_manifest", lambda *given, **more: events.append("commit") or write(*given, **more)
    )
    place = (cache / "model" / read_manifest(cache).model.files[0].path).parent
    (cache / "manifest.json").unlink()
    assert again(starter, cache).built
    assert events.index(cache / "model") < events.index("commit")
    assert events.index(place) < events.index("commit")


def test_a_partition_keeps_its_file_wherever_it_stands_and_equal_ones_have_one(starter, tmp_path):
    """Rows of different traits may give equal documents; blocks are made of those of each group of partitions."""
    for number, said in enumerate((0, 1, 0, 3)):
        rows = [{"prompt": f"row {said} {i}", "completion": "word " * 30, "of": number} for i in range(20)]
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def built(folder, *numbers):
        filters = [{"name": "all", "field": "of", "max": 9}]
        rules = {"pack": {"block_len": 64, "group_documents": 40}, "filters": filters}
        files = [tmp_path / f"{number}.jsonl" for number in numbers]
        return build(files, folder, jobs=1, tokenizer=starter / "tokenizer", **rules)

    first = built(tmp_path / "cache", 0, 1, 2, 3).manifest.document_shards
    paths = [shard.path for shard in first]
    assert len(paths) == 4 and paths[0] == paths[2] and len({*paths}) == 3
    assert verify(tmp_path / "cache", sources=tmp_path, reencode=True).ok
    before = {path: (tmp_path / "cache" / path).stat().st_ino for path in paths}
    moved = built(tmp_path / "cache", 3, 1, 2).manifest.document_shards
    assert [shard.path for shard in moved] == [paths[number] for number in (3, 1, 2)]
    assert {path: (tmp_path / "cache" / path).stat().st_ino for path in before} == before
    built(tmp_path / "new", 3, 1, 2)
    assert digests(tmp_path / "cache") == digests(tmp_path / "new")


WAYS = {
    "columns": [{"columns": {"instruction": asked, "output": "a"}, "ignore": [other]} for asked, other in ("qr", "rq")],
    "roles": [
        {"roles": dict(zip("abc", roles.split(), strict=True))}
        for roles in ("user assistant user", "system user assistant")
    ],
}


@pytest.mark.parametrize("name", WAYS)
def test_rows_that_are_read_in_another_way_are_read_again(name, starter, tmp_path):
    """Of the same bytes, by the same schema: only the source says that other fields are meant."""
    row = {"q": "What is it?", "r": "Which is it?", "a": "This one."}
    if name == "roles":
        row = {"messages": [{"role": role, "content": f"I am {role}."} for role in "abc"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")

    def built(folder, way):
        options = {"tokenizer": starter / "tokenizer", "jobs": 1, "force": True}
        return build(tmp_path / "rows.jsonl", tmp_path / folder, **options, **way)

    first, second = WAYS[name]
    built("cache", first)
    assert built("cache", second).num_partitions_built == 1
    built("new", second)
    assert digests(tmp_path / "cache") == digests(tmp_path / "new")


def test_the_key_of_a_partition_is_of_all_that_decides_its_documents(starter_cache, tmp_path):
    manifest = read_manifest(starter_cache)
    (entry, *_), recipe = manifest.inputs, make_recipe(manifest.recipe)
    partition = Partition(path=tmp_path, start=0, stop=9, format="jsonl", num_rows=2, xxh3="0")
    origin = Provenance.of(manifest, recipe)

    def key(entry=entry, origin=origin, **change):
        return key_of(replace(partition, **change), entry, documents=origin.documents_identity)

    read = [msgspec.structs.replace(entry, **{name: "f"}) for name in ("schema", "columns", "roles")]
    files = [msgspec.structs.replace(file, sha256="f") for file in manifest.model.files]
    made = [
        replace(origin, rules_version=0),
        replace(origin, engine_version="0"),
        replace(origin, model=msgspec.structs.replace(manifest.model, processor="f")),
        *(replace(origin, model=msgspec.structs.replace(manifest.model, files=(file,))) for file in files),
        replace(origin, recipe=make_recipe(manifest.recipe, ["supervision.turns=last"])),
    ]
    keys = [key(), *map(key, read), *(key(origin=each) for each in made)]
    keys += [key(**change) for change in ({"xxh3": "f"}, {"stop": 8}, {"num_rows": 3}, {"format": "json"})]
    assert len({*keys}) == len(keys)
    elsewhere = {"path": tmp_path / "b", "first_row": 7, "first_line": 8}
    assert key(**elsewhere) == key() == key(msgspec.structs.replace(entry, path="b", split="b"))
