"""Where an object was cut is recorded beside the cache: for its version and this way to cut it, and nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest
from written_formats import as_jsonl, as_parquet, packed, some_rows

from packer.pipeline import input_cuts
from packer.pipeline.bucket_inputs import ObjectFile
from packer.pipeline.executor import ALONE
from packer.pipeline.input_cuts import InputCuts
from packer.pipeline.input_resolution import SourceFile
from packer.pipeline.inputs import open_input
from packer.progress import Silent
from packer.recipe import Recipe, make_recipe
from packer.source.partition import FilePartitions

ROWS = some_rows(400)
CONTENTS = {
    "rows.jsonl": as_jsonl(ROWS),
    "rows.jsonl.zst": packed(as_jsonl(ROWS), "zstd"),
    "rows.parquet": as_parquet(ROWS, row_group_size=50),
}


@pytest.fixture(params=CONTENTS)
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SourceFile:
    """An object that this machine has a copy of, so that no store is asked."""
    monkeypatch.setenv("PACKER_CACHE_DIR", str(tmp_path / "kept"))
    return version_of(request.param, '"1"')


def recipe_of(name: str, **others: object) -> Recipe:
    return make_recipe(
        {"version": 1, "tokenizer": "t", "sources": [{"path": f"s3://b/{name}"}], "partition_bytes": 2**14, **others}
    )


def version_of(name: str, etag: str) -> SourceFile:
    """A version of an object, with its copy."""
    path = ObjectFile(f"s3://b/{name}", etag, len(CONTENTS[name]))
    path._copy.parent.mkdir(parents=True)
    path._copy.write_bytes(CONTENTS[name])
    return SourceFile(source=recipe_of(name).sources[0], name=path.url, path=path, split="train")


def cut(file: SourceFile, cache: Path | None, recipe: Recipe | None = None, *, keeps: bool = True) -> FilePartitions:
    recipe = recipe or recipe_of(file.name.rpartition("/")[2])
    opened = open_input(file, recipe)
    cuts = InputCuts(cache, [file], recipe, keeps=keeps)
    ((found, seen),) = cuts.cut([(opened, None)], [opened.path.num_bytes], ALONE, Silent())  # type: ignore[union-attr]
    assert seen is None
    return found


@pytest.fixture
def num_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read, in order."""
    read: list[str] = []
    whole = input_cuts.partition_file
    monkeypatch.setattr(
        input_cuts, "partition_file", lambda path, **how: (read.append(str(path)), whole(path, **how))[1]
    )
    return read


def test_a_recorded_object_is_not_read_again_and_its_cuts_are_the_same(
    file: SourceFile, tmp_path: Path, num_read: list[str]
) -> None:
    first = cut(file, tmp_path / "cache")
    assert cut(file, tmp_path / "cache") == first
    assert len(num_read) == 1
    assert cut(file, None) == first and len(num_read) == 2
    assert file.name.endswith("zst") or len(first.partitions) > 3


def test_another_version_or_another_way_to_cut_is_read(file: SourceFile, tmp_path: Path, num_read: list[str]) -> None:
    cache, name = tmp_path / "cache", file.name.rpartition("/")[2]
    cut(file, cache)
    cut(version_of(name, '"2"'), cache)
    cut(file, cache, recipe_of(name, partition_bytes=2**15))
    limited = replace(file, source=recipe_of(name, sources=[{"path": file.name, "limit": 7}]).sources[0])
    assert cut(limited, cache).num_rows == 7
    assert len(num_read) == 4 and len(list((cache / ".packer" / "cuts").iterdir())) == 4


def test_a_damaged_record_is_none_and_a_dry_run_writes_none(
    file: SourceFile, tmp_path: Path, num_read: list[str]
) -> None:
    cut(file, tmp_path / "cache", keeps=False)
    assert not (tmp_path / "cache").exists()
    cut(file, tmp_path / "cache")
    (record,) = (tmp_path / "cache" / ".packer" / "cuts").iterdir()
    whole = record.read_bytes()
    record.write_bytes(whole[:-1])
    cut(file, tmp_path / "cache")
    assert len(num_read) == 3
    assert record.read_bytes() == whole, "it is written again"
