"""Partitions that are rendered before there is an encoder come to the same as others."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from packer.build import partition, stages
from packer.build.partition import PartitionWork
from packer.build.plan import plan_build
from packer.build.progress import Silent
from packer.build.stages import Stages
from packer.build.workers import Taken, look_ahead
from packer.errors import InputError
from packer.recipe import load_recipe, make_recipe, to_json
from packer.tokenize import Encoder


@pytest.fixture
def plan(starter, tmp_path):
    """One of several partitions; some rows are rejected, one before it is rendered and one after."""
    path = tmp_path / "chat.jsonl"
    path.write_bytes(b'{"messages": 1}\n' + (starter / "data" / "chat.jsonl").read_bytes() * 2)
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


def looked_at(work: PartitionWork, plan) -> list[Taken]:
    taken: list[Taken] = []
    look_ahead(work, enumerate(plan.tasks), taken)
    return taken


@pytest.mark.parametrize("limit", [2**30, 40_000, 0])
def test_what_was_rendered_ahead_comes_to_the_same(limit, plan, tmp_path, monkeypatch):
    """Whole partitions, and the beginning of one where there is no room for the rest."""
    plain = [work_of(plan, tmp_path / "plain")(task)[0] for task in plan.tasks]
    work = work_of(plan, tmp_path / "ahead")
    loaded = still_loading(work, monkeypatch)
    monkeypatch.setattr(partition, "_AHEAD_BYTES", limit)
    taken = looked_at(work, plan)
    assert len(taken) == {2**30: len(plan.tasks), 0: 1}.get(limit, len(taken))
    assert 1 < len(taken) < len(plan.tasks) or limit != 40_000
    loaded()
    work.settle()
    rendered = []
    own = work._stages.renderer.render
    monkeypatch.setattr(work._stages.renderer, "render", lambda rows: rendered.append(rows.num_rows) or own(rows))
    others = [Taken(number, plan.tasks[number]) for number in range(len(taken), len(plan.tasks))]
    assert [each.do(work)[0] for each in (*taken, *others)] == plain
    assert sum(rendered) < sum(task.partition.num_rows for task in plan.tasks)
    assert (sum(rendered) == 0) == (limit == 2**30)


def test_nothing_is_rendered_ahead_once_there_is_an_encoder(plan, tmp_path):
    work = work_of(plan, tmp_path / "cache")
    work.settle()
    assert looked_at(work, plan) == []


def test_what_fails_ahead_fails_again_when_it_is_its_turn(plan, tmp_path, monkeypatch):
    work = work_of(plan, tmp_path / "cache")
    loaded = still_loading(work, monkeypatch)
    path = plan.tasks[0].partition.path
    before = path.read_bytes()
    changed = bytearray(before)
    changed[changed.index(b"Practice")] = ord("p")
    path.write_bytes(changed)
    taken = looked_at(work, plan)
    assert [each.task for each in taken] == list(plan.tasks)
    assert any(each.ahead is None for each in taken)
    loaded()
    with pytest.raises(InputError, match="changed"):
        [each.do(work) for each in taken]


def test_work_that_loads_nothing_is_left_alone():
    taken: list[Taken] = []
    look_ahead(len, enumerate(["a", "b"]), taken)
    assert taken == []


def test_stages_are_whole_unless_they_may_load_meanwhile(plan, monkeypatch):
    """A process that is forked has none of the threads, so it must not be left with one to wait for."""
    release = threading.Event()
    own = stages.encoder_of
    monkeypatch.setattr(stages, "encoder_of", lambda *given: (release.wait(20), own(*given))[1])
    waiting = Stages(plan.recipe, plan.model, meanwhile=True)
    assert not waiting.is_loaded
    threading.Timer(0.2, release.set).start()
    assert Stages(plan.recipe, plan.model).is_loaded
    assert waiting.tokenizing is waiting.tokenizing and waiting.is_loaded
