"""Manifests made by hand, with the right checksum: an error or nothing wrong, and no file outside the cache is opened."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from faults.amount import FULL, amount
from faults.jobs import Job
from processes import in_a_process

from packer.store.manifest import sealed

WATCHED = """
import contextlib, io, json, os, sys
from pathlib import Path
import numpy, pyarrow as pa
import packer.pipeline.run, packer.store.rejected
from packer.audit import verify
from packer.errors import PackerError
from packer.store.cache import Cache
from packer_cli.main import cli

opened, mapped = [], pa.memory_map

def watch(event, arguments):
    if event in ("open", "os.scandir", "os.listdir") and isinstance(arguments[0], (str, bytes)):
        opened.append(os.fsdecode(arguments[0]))

def memory_map(path, mode="r"):
    opened.append(str(path))
    return mapped(path, mode)

def read(folder):
    with Cache.open(folder) as cache:
        for split in cache.splits("blocks"):
            blocks = cache.blocks(split)
            blocks.read(numpy.arange(len(blocks)))
        for split in cache.splits("documents"):
            cache.documents(split).verify()
        list(packer.store.rejected.read_rejected(folder, cache.manifest))

def command(*words):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            cli.main(words, prog_name="packer")
        except SystemExit as end:
            assert end.code in (0, 1, 2, 3, 5), f"{words}: exit {end.code}: {errors.getvalue()}"

pa.memory_map = memory_map
sys.addaudithook(watch)
for folder in map(Path, sys.argv[1:]):
    opened.clear()
    print(folder, file=sys.stderr)
    findings = [str(finding) for finding in verify(folder, level="full", threads=1).findings]
    refused = None
    try:
        read(folder)
    except PackerError as error:
        refused = error.message
    command("stats", str(folder))
    command("inspect", str(folder))
    command("verify", str(folder))
    print(json.dumps({"refused": refused, "findings": findings, "opened": opened}))
"""

Change = Callable[[dict[str, Any]], Any]


def of_shard(**values: Any) -> Change:
    return lambda manifest: manifest["shards"][0].update(values)


def of_model(**values: Any) -> Change:
    return lambda manifest: manifest["model"].update(values)


def of_model_file(path: str) -> Change:
    return lambda manifest: manifest["model"]["files"][0].update(path=path)


def of_totals(**values: Any) -> Change:
    return lambda manifest: manifest["totals"].update(values)


def deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


VALUES: dict[str, Change] = {
    "shard ../": of_shard(path="documents/../../outside/secret.arrow"),
    "shard absolute": of_shard(path="/OUTSIDE/secret.arrow"),
    "shard NUL": of_shard(path="documents/a\0b.arrow"),
    "shard backslash": of_shard(path="documents\\..\\..\\outside"),
    "shard folder": of_shard(path="documents"),
    "shard long name": of_shard(path="documents/" + "a" * 5000),
    "shard is the manifest": of_shard(path="manifest.json"),
    "shard of another kind": of_shard(kind="blocks"),
    "shard rows -1": of_shard(num_rows=-1),
    "shard rows 2^63": of_shard(num_rows=2**63),
    "shard rows 10^400": of_shard(num_rows=10**400),
    "shard split ../": of_shard(split="../../outside"),
    "places none": of_shard(places=[]),
    "places far": of_shard(places=[{"first_row": 0, "num_rows": 1, "columns": {"length": 2**62}}]),
    "model ../": of_model_file("../../outside/secret.json"),
    "model absolute": of_model_file("/OUTSIDE/secret.json"),
    "model stop -1": of_model(stop_ids=[-1]),
    "model pad 2^40": of_model(pad_id=2**40),
    "totals -1": of_totals(rows=-1),
    "recipe empty": lambda manifest: manifest.update(recipe={}),
    "recipe mode unknown": lambda manifest: manifest["recipe"]["pack"].update(mode="none"),
    "recipe block_len 2^63 - 1": lambda manifest: manifest["recipe"]["pack"].update(block_len=2**63 - 1),
    "recipe template file": lambda manifest: manifest["recipe"]["template"].update(file="/OUTSIDE/secret.json"),
    "recipe deep 500": lambda manifest: manifest["recipe"].update(template=deep(500)),
    "no shards": lambda manifest: manifest.update(shards=[]),
    "a shard twice": lambda manifest: manifest["shards"].append(manifest["shards"][0]),
    "rejected of another": lambda manifest: manifest.update(rejected_sha256="0" * 64),
    "key unknown": lambda manifest: manifest.update({"__reduce__": "os.system"}),
    "surrogate": lambda manifest: manifest.update(engine="\ud800"),
}

TEXTS: dict[str, Callable[[str], str]] = {
    "depth 10,000": lambda text: text.replace('"engine":', '"recipe":' + "[" * 10_000 + "]" * 10_000 + ',"engine":', 1),
    "64 MiB": lambda text: text.replace('"engine":', '"versions":{"a":"' + "x" * 2**26 + '"},"engine":', 1),
    "two documents": lambda text: text + text,
}


QUICK = ("shard ../", "shard absolute", "shard NUL", "model ../", "recipe empty", "shard rows 2^63")
NAMES = [*VALUES, *TEXTS] if FULL else [*QUICK, "depth 10,000"]
LINKS = ["shard", "model file", "rejected.jsonl", "documents", "model", "circle", "device"]


def look(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """What came of reading some caches, in one process with an audit hook."""
    found: list[dict[str, Any]] = in_a_process(WATCHED, *folders)
    return found


@pytest.fixture
def outside(tiny_job: Job, tmp_path: Path) -> Path:
    """What must not be opened; beside the caches, so that `../../outside` leads there."""
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


@pytest.fixture
def whole(tiny_job: Job, tmp_path: Path, outside: Path) -> Path:
    cache = tiny_job.build(tmp_path / "whole")
    for name in ("secret.arrow", "secret.json"):
        shutil.copy(next((cache / "documents").iterdir()), outside / name)
    return cache


def count_refused(folders: Mapping[str, Path], outside: Path) -> int:
    """How many were refused or found, with nothing outside opened; says which was not."""
    held = 0
    for (name, folder), found in zip(folders.items(), look(list(folders.values())), strict=True):
        assert not [path for path in found["opened"] if Path(path).is_relative_to(outside)], name
        assert any(Path(path).is_relative_to(folder) for path in found["opened"]), "the watch sees what is opened"
        assert found["refused"] or found["findings"], f"{name}: nobody noticed"
        held += 1
    return held


def test_a_manifest_made_by_hand_is_refused_and_leads_nowhere(
    whole: Path, outside: Path, tmp_path: Path, tally
) -> None:
    folders = {name: Path(shutil.copytree(whole, tmp_path / f"cache{i}")) for i, name in enumerate(NAMES)}
    for name, folder in folders.items():
        path = folder / "manifest.json"
        if name in VALUES:
            manifest = json.loads(path.read_bytes())
            del manifest["checksum"]
            VALUES[name](manifest)
            text = json.dumps(manifest, sort_keys=True).replace("/OUTSIDE", str(outside))
        else:
            text = TEXTS[name](path.read_text())
        path.write_bytes(sealed(text.encode()))
    tally("hostile manifest", tried=len(folders), held=count_refused(folders, outside))


def test_a_link_in_a_cache_leads_nowhere(whole: Path, outside: Path, tmp_path: Path, tally) -> None:
    """What is behind the link is just what the manifest says it is, and still it is not opened."""
    names = LINKS if FULL else LINKS[:3]
    folders = {name: Path(shutil.copytree(whole, tmp_path / f"cache{i}")) for i, name in enumerate(names)}
    for name, folder in folders.items():
        shard = next((folder / "documents").iterdir())
        places = {"shard": shard, "circle": shard, "device": shard, "model file": next(folder.glob("model/*/*.json"))}
        place = places.get(name, folder / name)
        target = Path(shutil.move(place, outside / f"moved {name}"))
        place.symlink_to({"circle": place, "device": Path("/dev/zero")}.get(name, target))
    tally("link out of a cache", tried=len(folders), held=count_refused(folders, outside))


def test_a_manifest_that_is_large_and_right_is_read_like_any_other(whole: Path) -> None:
    """64 MiB (in the small part 1 MiB) of names of software, say; and the watch does not take everything for an attack."""
    path = whole / "manifest.json"
    large = path.read_text().replace(
        '"versions":{', '"versions":{"a":"' + "x" * amount(small=2**20, full=2**26) + '",', 1
    )
    path.write_bytes(sealed(large.encode()))
    (found,) = look([whole])
    assert (found["refused"], found["findings"]) == (None, [])
