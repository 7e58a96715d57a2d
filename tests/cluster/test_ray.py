"""Builds on a real Ray cluster whose nodes see one disk: the bytes are a local build's, whatever dies.

Run by `make cluster`.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from processes import wait_until
from written_formats import as_jsonl, in_three_files, some_rows

from packer.errors import CheckError, InputError, UsageError
from packer.pipeline.from_python import build
from packer.pipeline.workers.executor import WorkerDiedError
from packer.pipeline.workers.ray_workers import MOST_DEATHS, ray_workers
from packer.recipe.recipe import Recipe, make_recipe, to_json
from packer.store.manifest import read_manifest

ray = pytest.importorskip("ray", reason="make cluster installs Ray")

# Workers cannot import this module: its functions are sent whole.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

RULES = {"split": {"shares": {"validation": 0.2}}, "deduplicate": {"exact": "bytes"}}
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nodes")]


def recipe_of(starter: Path, *paths: Path, **others: object) -> Recipe:
    return make_recipe(
        {
            "sources": [{"path": str(path)} for path in paths],
            "tokenizer": str(starter / "tokenizer"),
            "pack": {"block_len": 512},
            "partition_bytes": 2**16,
            **others,
        }
    )


@pytest.fixture(scope="module")
def recipe(starter: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """Some hundred partitions, enough for something to die midway."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_bytes(as_jsonl(some_rows(16_000)))
    return recipe_of(starter, path, partition_bytes=2**15)


@pytest.fixture(scope="module")
def expected(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("local") / "cache"
    build(recipe, folder)
    return files_of(folder)


def files_of(cache: Path) -> dict[str, bytes]:
    """Every file of a cache but the lock, which names a process."""
    return {
        path.relative_to(cache).as_posix(): path.read_bytes()
        for path in sorted(cache.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def journal(cache: Path) -> list[Path]:
    return list((cache / ".packer" / "partitions").glob("*.json"))


def command(recipe: Recipe, cache: Path) -> "subprocess.Popen[str]":
    """`packer build --on ray`, as a process of its own."""
    path = cache.with_suffix(".yaml")
    path.write_text(json.dumps(to_json(recipe)))
    packer = [str(Path(sys.executable).with_name("packer")), "build", "-c", str(path), "-o", str(cache), "--on", "ray"]
    return subprocess.Popen(packer, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("rules", [{}, RULES], ids=["all rows", "rules about rows"])
def test_a_build_on_the_cluster_is_the_build_of_one_machine(
    rules: dict[str, object], starter: Path, tmp_path: Path
) -> None:
    rows = some_rows(3000)
    rows[17] = {"prompt": "one that is rejected", "completion": ""}
    written = in_three_files(rows)
    for name, content in written.items():
        (tmp_path / name).write_bytes(content)
    recipe = recipe_of(starter, *(tmp_path / name for name in written), **rules)
    build(recipe, tmp_path / "local", jobs=1)
    done = build(recipe, tmp_path / "cluster", on="ray")
    assert done.built and done.num_partitions_built > 8
    assert not ray.is_initialized()
    assert files_of(tmp_path / "cluster") == files_of(tmp_path / "local")
    assert json.loads((tmp_path / "cluster" / "rejected.jsonl").read_text().splitlines()[0])["line"] == 18
    assert not build(recipe, tmp_path / "cluster", on="ray").built


def counting(folder: str) -> Callable[[int], int]:
    """Notes every task it begins and ends; 7 kills its process once, 99 whenever it is begun."""

    def work(task: int) -> int:
        with (Path(folder) / f"begun-{task}").open("a") as file:
            file.write("x")
        first = (Path(folder) / f"begun-{task}").stat().st_size == 1
        if (task == 7 and first) or task == 99:
            os.kill(os.getpid(), signal.SIGKILL)
        (Path(folder) / f"done-{task}").write_text(str(task * task))
        return task * task

    return work


def test_a_task_that_kills_its_processes_is_named_and_all_others_are_done_once(tmp_path: Path) -> None:
    tasks = list(range(120))
    found: list[tuple[int, int]] = []
    with ray_workers("ray", None, lambda _: None) as workers, pytest.raises(WorkerDiedError) as caught:
        found += workers.run(partial(counting, str(tmp_path)), tasks, sizes=[1] * 120)
    assert len(found) == 119
    assert dict(found) == {task: task * task for task in tasks if task != 99}
    assert caught.value.message.startswith(f"99: {MOST_DEATHS} processes died of it")
    begun = Counter({task: (tmp_path / f"begun-{task}").stat().st_size for task in tasks})
    assert {task: times for task, times in begun.items() if times > 1} == {7: 2, 99: MOST_DEATHS}


def failing(folder: str) -> Callable[[int], int]:
    def work(task: int) -> int:
        if task == 5:
            raise CheckError("five", hint="not five") if folder else ValueError("five")
        return task

    return work


def test_what_a_task_raises_is_raised_here() -> None:
    with ray_workers("ray", 2, lambda _: None) as workers:
        with pytest.raises(CheckError, match="five") as caught:
            list(workers.run(partial(failing, "x"), list(range(9)), sizes=[1] * 9))
        assert caught.value.hint == "not five"
        with pytest.raises(ValueError, match="five"):
            list(workers.run(partial(failing, ""), list(range(9)), sizes=[1] * 9))
        assert list(workers.run(partial(failing, ""), [], sizes=[])) == []


@pytest.mark.usefixtures("interruptible")
def test_a_build_that_is_interrupted_goes_on_to_the_same_bytes(
    nodes: Any, recipe: Recipe, expected: dict[str, bytes], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    driver = command(recipe, cache)
    wait_until(lambda: len(journal(cache)) > 5)
    os.kill(driver.pid, signal.SIGINT)
    _, said = driver.communicate(timeout=60)
    assert driver.returncode != 0, said
    left = len(journal(cache))
    done = build(recipe, cache, on="ray")
    assert 0 < left <= done.num_partitions_reused < len(read_manifest(cache).shards)
    assert files_of(cache) == expected
    wait_until(lambda: not nodes.workers())


def test_a_node_with_another_version_is_refused_by_name(nodes: Any, recipe: Recipe, tmp_path: Path) -> None:
    other = tmp_path / "packages" / "numpy-0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0\n")
    node = nodes.add(PYTHONPATH=str(other.parent))
    try:
        with pytest.raises(UsageError, match=r"node .* has other software: numpy 0, here "):
            build(recipe, tmp_path / "cache", on="ray")
    finally:
        nodes.cluster.remove_node(node)
    assert not (tmp_path / "cache" / "manifest.json").exists()


def test_an_input_that_a_node_does_not_see_is_named_with_the_node(
    starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from packer.pipeline import documents

    path = tmp_path / "rows.jsonl"
    path.write_bytes(as_jsonl(some_rows(400)))
    reusable = documents.reusable
    monkeypatch.setattr(
        documents, "reusable", lambda *given, **more: (reusable(*given, **more), path.unlink(missing_ok=True))[0]
    )
    with pytest.raises(InputError, match=r"rows.jsonl: cannot be read: .* \(on node "):
        build(recipe_of(starter, path), tmp_path / "cache", on="ray")
