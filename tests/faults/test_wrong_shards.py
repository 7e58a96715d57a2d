"""Shards that are missing, swapped, doubled, foreign or old: found by verify and by the reader, whatever their size."""

import itertools
import shutil
from pathlib import Path

import pytest
from faults.amount import FULL
from faults.jobs import Job, contents
from faults.readers import read_cache, refusal

from packer.audit.verify import verify
from packer.errors import CheckError
from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe
from packer.store.cache import Cache
from packer.store.manifest import Shard, read_manifest
from packer.store.row_tables import read_rejected


def some(cache: Path, kind: str) -> list[Shard]:
    shards = [shard for shard in read_manifest(cache).shards if shard.kind == kind][: 5 if FULL else 3]
    assert len(shards) > 2
    return shards


def named(cache: Path) -> set[str]:
    return {finding.path for finding in verify(cache, threads=1).findings}


@pytest.mark.parametrize("kind", ["documents", "blocks"])
def test_swapped_doubled_and_missing_shards_are_found_by_verify_and_reader(kind: str, cache: Path, tally) -> None:
    shards = some(cache, kind)
    wholes = {shard.path: (cache / shard.path).read_bytes() for shard in shards}
    tried = held = equal = 0
    for first, second in itertools.combinations(shards, 2):
        equal += first.num_bytes == second.num_bytes
        for change in ("swapped", "doubled", "missing"):
            own, other = wholes[first.path], wholes[second.path]
            if change == "missing":
                (cache / first.path).unlink()
            else:
                (cache / first.path).write_bytes(other)
            if change == "swapped":
                (cache / second.path).write_bytes(own)
            wrong = [first, second] if change == "swapped" else [first]
            assert named(cache) == {shard.path for shard in wrong}, change
            assert all(shard.path in str(refusal(cache, shard)) for shard in wrong), change
            for shard in (first, second):
                (cache / shard.path).write_bytes(wholes[shard.path])
            tried += 1
            held += 1
    assert kind == "documents" or equal, "shards of one size are those that could pass for each other"
    assert verify(cache, threads=1).ok
    tally(f"swapped, doubled, missing shard of {kind}", tried=tried, held=held, note=f"{equal} pairs of one size")


@pytest.mark.parametrize("kind", ["documents", "blocks"])
def test_a_foreign_shard_under_the_right_name_is_found(kind: str, cache: Path, rebuilt: Path, tally) -> None:
    tried = held = equal = 0
    strangers = some(rebuilt, kind)
    for shard, stranger in itertools.product(some(cache, kind), strangers):
        if shard.sha256 == stranger.sha256:
            continue
        whole = (cache / shard.path).read_bytes()
        (cache / shard.path).write_bytes((rebuilt / stranger.path).read_bytes())
        equal += shard.num_bytes == stranger.num_bytes
        tried += 1
        held += named(cache) == {shard.path} and shard.path in str(refusal(cache, shard))
        (cache / shard.path).write_bytes(whole)
    assert kind == "documents" or equal
    tally(f"foreign shard of {kind}", tried=tried, held=held, note=f"{equal} of the same size")


def test_an_older_manifest_over_newer_files_is_found(
    job: Job, cache: Path, rebuilt: Path, tmp_path: Path, tally
) -> None:
    """A backup put back by half: first with the older shards still there, then without."""
    mixed = tmp_path / "mixed"
    shutil.copytree(cache, mixed)
    shutil.copytree(rebuilt, mixed, dirs_exist_ok=True, ignore=shutil.ignore_patterns("manifest.json"))
    assert named(mixed) == {"rejected.jsonl"}, "every older shard is there; only the ledger is the newer one's"
    with pytest.raises(CheckError, match="is damaged"):
        list(read_rejected(mixed, read_manifest(mixed)))
    job.build(mixed)
    assert contents(mixed) == contents(cache), "a build does not take it for up to date"
    shutil.rmtree(mixed)
    shutil.copytree(rebuilt, mixed)
    shutil.copy(cache / "manifest.json", mixed / "manifest.json")
    gone = {shard.path for shard in read_manifest(cache).shards} - set(contents(rebuilt))
    assert gone and named(mixed) == gone | {"rejected.jsonl"}
    with pytest.raises(CheckError, match="is missing"):
        Cache.open(mixed)
    tally("older manifest over newer files", tried=2, held=2)


def test_an_extra_file_is_never_read(cache: Path, rebuilt: Path, job: Job, tally) -> None:
    """Not by the reader, not by verify, not by a build that finds its own shards: all say what they said before."""
    before, report = read_cache(cache), verify(cache, level="full", threads=1)
    tried = held = 0
    for stranger in (*read_manifest(rebuilt).shards[:: 1 if FULL else 6], None):
        name = stranger.path if stranger is not None else "blocks/train-99999-000000000000.arrow"
        target = cache / name
        if target.exists():
            continue
        content = b"nothing that Arrow knows" if stranger is None else (rebuilt / name).read_bytes()
        target.write_bytes(content)
        again = verify(cache, level="full", threads=1)
        assert again.findings == report.findings
        held += read_cache(cache) == before and not build(load_recipe(job.recipe), cache, jobs=1).built
        target.unlink()
        tried += 1
    assert tried > 1
    tally("extra file", tried=tried, held=held)
