"""Partitions that are rendered before there is an encoder come to the same as others."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from packer.build import partition
from packer.build.partition import PartitionWork
from packer.build.plan import plan_build
from packer.build.progress import Silent
from packer.build.workers import look_ahead
from packer.errors import InputError
from packer.recipe import load_recipe, make_recipe, to_json
from packer.tokenize import Encoder


@pytest.fixture
def plan(starter):
    """One of several partitions; some rows are rejected, one before it is rendered and one after."""
    path = starter / "data" / "chat.jsonl"
    path.write_bytes(b'{"messages": 1}\n' + path.read_bytes() * 2)
    values = to_json(load_recipe(starter / "recipe.yaml"))
    sources = [{"path": str(path), "schema": "messages"}]
    recipe = make_recipe({**values, "sources": sources, "partition_bytes": path.stat().st_size // 2})
    made = plan_build(recipe, Silent())
    assert len(made.tasks) > 3
    return made


def work_of(plan, folder: Path) -> PartitionWork:
    (folder / ".packer").mkdir(parents=True, exist_ok=True)
    return PartitionWork(folder, plan.recipe, plan.model)


def still_loading(work: PartitionWork, monkeypatch) -> Callable[[], None]:
    """As if the encoder were being loaded, until it is called."""
    loading: Future[Encoder] = Future()
    encoder = work._stages._loading.result()
    monkeypatch.setattr(work._stages, "_loading", loading)
    return lambda: loading.set_result(encoder)


@pytest.mark.parametrize("limit", [2**30, 40_000, 0])
def test_what_was_rendered_ahead_comes_to_the_same(limit, plan, tmp_path, monkeypatch):
    """Whole partitions, and the beginning of one where there is no room for the rest."""
    plain = [work_of(plan, tmp_path / "plain")(task)[0] for task in plan.tasks]
    work = work_of(plan, tmp_path / "ahead")
    loaded = still_loading(work, monkeypatch)
    monkeypatch.setattr(partition, "_AHEAD_BYTES", limit)
    taken = look_ahead(work, enumerate(plan.tasks))
    assert len(taken) == {2**30: len(plan.tasks), 0: 1}.get(limit, len(taken))
    assert 1 < len(taken) < len(plan.tasks) or limit != 40_000
    loaded()
    work.settle()
    rendered = []
    own = work._stages.renderer.render
    monkeypatch.setattr(work._stages.renderer, "render", lambda rows: rendered.append(rows.num_rows) or own(rows))
    assert [work(task)[0] for task in plan.tasks] == plain
    assert sum(rendered) < sum(task.partition.num_rows for task in plan.tasks)
    assert (sum(rendered) == 0) == (limit == 2**30)


def test_nothing_is_rendered_ahead_once_there_is_an_encoder(plan, tmp_path):
    work = work_of(plan, tmp_path / "cache")
    work.settle()
    assert len(look_ahead(work, enumerate(plan.tasks))) == 1


def test_what_fails_ahead_fails_again_when_it_is_its_turn(plan, tmp_path, monkeypatch):
    work = work_of(plan, tmp_path / "cache")
    loaded = still_loading(work, monkeypatch)
    path = plan.tasks[0].partition.path
    before = path.read_bytes()
    changed = bytearray(before)
    changed[changed.index(b"Practice")] = ord("p")
    path.write_bytes(changed)
    assert len(look_ahead(work, enumerate(plan.tasks))) == len(plan.tasks)
    loaded()
    with pytest.raises(InputError, match="changed"):
        [work(task) for task in plan.tasks]


def test_work_that_loads_nothing_is_left_alone():
    assert look_ahead(len, enumerate(["a", "b"])) == []
