"""A build from the starter: up to date, incremental, interrupted, refused; and the same bytes every time."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shorter_starter import shortened
from watched_builds import digests

from packer.audit.verify import verify
from packer.errors import CheckError, UsageError
from packer.pipeline import blocks
from packer.pipeline.from_python import build
from packer.pipeline.messages.build_result import BuildResult
from packer.recipe.recipe import Recipe, load_recipe, make_recipe
from packer.source.file_bytes import read_chunks
from packer.store.cache import fingerprint
from packer.store.manifest import read_manifest
from packer.store.row_tables import read_rejected


@pytest.fixture
def own(starter: Path, tmp_path: Path) -> Path:
    """A starter to be changed."""
    return shortened(starter, tmp_path / "starter", 12)


def recipe_of(starter: Path, *overrides: str) -> Recipe:
    return load_recipe(starter / "recipe.yaml", overrides)


def build_one(starter: Path, folder: Path, *overrides: str, jobs: int = 1, **options: object) -> BuildResult:
    return build(recipe_of(starter, *overrides), folder, jobs=jobs, **options)  # type: ignore[arg-type]


def test_bytes_depend_neither_on_processes_nor_on_folders_hash_seed_time_zone_locale_or_times_of_files(
    own: Path, tmp_path: Path
) -> None:
    cut = ["sources.limit=3", "partition_bytes=2KiB"]
    first = build_one(own, tmp_path / "one", *cut)
    assert first.num_partitions_built > 5
    code = "import sys; from packer.pipeline.from_python import build; from packer.recipe.recipe import load_recipe\n"
    code += "build(load_recipe(sys.argv[1], sys.argv[3:]), sys.argv[2], jobs=2)"
    for path in (own / "data").iterdir():
        os.utime(path, (1, 1))
    environment = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Pacific/Auckland", "LC_ALL": "C"}
    command = [sys.executable, "-c", code, str(own / "recipe.yaml"), str(tmp_path / "deep" / "er" / "two"), *cut]
    subprocess.run(command, check=True, env=environment)
    assert digests(tmp_path / "one") == digests(tmp_path / "deep" / "er" / "two")


def test_building_again_changes_nothing(starter: Path, starter_cache: Path, tmp_path: Path) -> None:
    cache = Path(shutil.copytree(starter_cache, tmp_path / "cache"))
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    again = build_one(starter, cache)
    assert (again.built, again.fingerprint) == (False, fingerprint(read_manifest(starter_cache)))
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before


def test_of_a_file_that_is_added_or_longer_only_what_is_new_is_tokenized(own: Path, tmp_path: Path) -> None:
    chat, added = (own / "data" / name for name in ("chat.jsonl", "added.jsonl"))
    sources = [{"path": str(own / "data" / "[ac][dh]*.jsonl")}]
    recipe = make_recipe({"sources": sources, "tokenizer": str(own / "tokenizer"), "partition_bytes": 4096})
    first = build(recipe, tmp_path / "cache", jobs=1).num_partitions_built
    shutil.copy(chat, added)
    second = build(recipe, tmp_path / "cache", jobs=1)
    assert second.num_partitions_built == 0 and second.num_partitions_reused >= first + 2
    with added.open("a", encoding="utf-8") as file:
        file.write('{"messages": [{"role": "user", "content": "Ping?"}, {"role": "assistant", "content": "Pong."}]}\n')
    third = build(recipe, tmp_path / "cache", jobs=1)
    assert third.num_partitions_built == 1 and third.num_partitions_reused >= second.num_partitions_reused - 1
    build(recipe, tmp_path / "anew", jobs=1)
    assert digests(tmp_path / "cache") == digests(tmp_path / "anew")


def test_of_rows_that_must_all_be_kept_the_first_that_is_not_is_named(starter: Path, tmp_path: Path) -> None:
    shards = []
    for _ in range(2):  # the second time the partitions are there already, and not in doubt
        with pytest.raises(CheckError, match=r"the first is .*chat\.jsonl:21: multimodal: ") as caught:
            build_one(starter, tmp_path / "cache", fail_above=0.0)
        assert caught.value.exit_code == 1
        shards.append({path: path.stat().st_ino for path in (tmp_path / "cache" / "documents").iterdir()})
    assert shards[0] == shards[1] and len(shards[0]) > 1
    assert not (tmp_path / "cache" / "manifest.json").exists()


def test_a_rejected_row_is_listed_under_its_line_and_moves_with_it(starter: Path, tmp_path: Path) -> None:
    """A row becomes as many blank lines as it has bytes: what follows is the same bytes in other lines, and is reused."""
    path, cache = tmp_path / "rows.jsonl", tmp_path / "cache"
    chosen = starter / "data" / "chat.jsonl"
    lines = [line for line in chosen.read_bytes().split(b"\n") if line.strip()][:40]
    lines[30:30] = [b"not json", b" ", b'{"messages": 7}']
    path.write_bytes(b"\n".join(lines))
    options = (f"sources=[{{path: {path}}}]", "partition_bytes=16KiB")
    build_one(starter, cache, *options)

    def listed() -> list[tuple[int, int | None, str]]:
        return [
            (line.row, line.line, line.code) for line in read_rejected(cache, read_manifest(cache)) if not line.document
        ]

    before = listed()
    assert {(30, 31, "not_json"), (31, 33, "wrong_type")} <= set(before)
    moved = len(lines[0])
    path.write_bytes(b"\n" * moved + b"\n" + b"\n".join(lines[1:]))
    result = build_one(starter, cache, *options)
    assert result.num_partitions_reused >= result.num_partitions_built == 1
    assert listed() == [(row - 1, (line or 0) + moved, code) for row, line, code in before]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_a_build_reads_every_byte_twice_whatever_it_rejects(
    starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """For the plan and for the documents; a build that reuses a partition reads it for the plan alone."""
    path, cache = tmp_path / name, tmp_path / "cache"
    good, bad = b'{"text": "a good row"}\n', b"not json\n"
    if name.endswith(".csv"):
        good, bad = b'"a good\n\nrow",1\n', b"one cell\n"
    head = b"text,n\n" * name.endswith(".csv")
    path.write_bytes(head + b"\n" + (good * 300 + bad) * 3)
    options = (f"sources=[{{path: {path}, schema: text}}]", "partition_bytes=8KiB")
    read: list[int] = []

    def counted(*arguments: Any) -> Iterator[bytes]:
        for chunk in read_chunks(*arguments):
            read.append(len(chunk))
            yield chunk

    def of_partition(path: Path, *place: int) -> Iterator[bytes]:
        return counted(path, *place) if place else read_chunks(path)  # the first rows are looked at before

    monkeypatch.setattr("packer.source.partition.read_chunks", counted)
    monkeypatch.setattr("packer.source.rows.read_chunks", of_partition)
    result = build_one(starter, cache, *options)
    assert result.manifest is not None
    assert (result.manifest.totals.kept, sum(result.manifest.totals.rejected.values())) == (900, 3)
    assert sum(read) == 2 * path.stat().st_size
    read.clear()
    again = build_one(starter, cache, *options, "pack.block_len=1024", force=True)
    assert again.num_partitions_built == 0 and sum(read) == path.stat().st_size


def test_a_folder_with_other_things_in_it_is_not_taken_for_a_cache(starter: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="contains other files"):
        build_one(starter, tmp_path / "home")
    assert (tmp_path / "home" / "thesis.txt").read_text() == "years of work"
    (tmp_path / "link").symlink_to(tmp_path / "unmounted" / "cache")
    with pytest.raises(UsageError, match="link is a link to nothing"):
        build_one(starter, tmp_path / "link")


def test_a_block_that_loses_tokens_breaks_the_ledger(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gather = blocks.gather

    def losing(*arguments: Any, **options: Any) -> Any:
        batch = gather(*arguments, **options)
        return replace(batch, length=batch.length - 1)

    monkeypatch.setattr(blocks, "gather", losing)
    with pytest.raises(CheckError, match="breaks the rule tokens = packed"):
        build_one(own, tmp_path / "cache")
    assert not (tmp_path / "cache" / "manifest.json").exists()


def test_a_cache_may_be_in_a_folder_whose_name_is_not_text(own: Path, tmp_path: Path) -> None:
    """Arrow takes paths as text in UTF-8, or as bytes."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    assert build_one(own, folder / "cache").fingerprint == build_one(own, tmp_path / "cache").fingerprint
    assert verify(folder / "cache").findings == ()
