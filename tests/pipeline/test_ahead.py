"""Rows that are rendered while the encoder is loading come to the same documents as others."""

import functools
from concurrent.futures import Future

import pytest

from packer.errors import InputError
from packer.pipeline import partition
from packer.pipeline.partition import PartitionWork
from packer.pipeline.plan import plan_build
from packer.pipeline.progress import Silent
from packer.recipe import load_recipe, make_recipe, to_json
from packer.tokenize import Encoder


@pytest.fixture
def plan(starter, tmp_path, monkeypatch):
    """Several partitions of several batches; some rows are rejected, one before it is rendered and one after."""
    monkeypatch.setattr(partition, "read_rows", functools.partial(partition.read_rows, batch_rows=3))
    path = tmp_path / "chat.jsonl"
    path.write_bytes(b'{"messages": 1}\n' + (starter / "data" / "chat.jsonl").read_bytes() * 2)
    values = to_json(load_recipe(starter / "recipe.yaml"))
    sources = [{"path": str(path), "schema": "messages"}]
    recipe = make_recipe({**values, "sources": sources, "partition_bytes": path.stat().st_size // 2})
    made = plan_build(recipe, Silent())
    assert len(made.tasks) > 3
    return made


def work_of(plan, folder) -> PartitionWork:
    (folder / ".packer").mkdir(parents=True, exist_ok=True)
    return PartitionWork(folder, plan.recipe, plan.model)


class Loading(Future[Encoder]):
    """An encoder that is loaded when it is waited for."""

    def __init__(self, own: "Future[Encoder]") -> None:
        super().__init__()
        self._own = own

    def result(self, timeout: float | None = None) -> Encoder:
        if not self.done():
            self.set_result(self._own.result())
        return super().result(timeout)


@pytest.mark.parametrize("limit", [2**30, 0])
def test_what_was_rendered_ahead_comes_to_the_same(limit, plan, tmp_path, monkeypatch):
    """All of a partition, and the beginning of one where there is no room for the rest."""
    plain = [work_of(plan, tmp_path / "plain")(task)[0] for task in plan.tasks]
    work = work_of(plan, tmp_path / "ahead")
    monkeypatch.setattr(partition, "_AHEAD_BYTES", limit)
    monkeypatch.setattr(work._stages, "_loading", Loading(work._stages._loading))
    events = []
    render, run = work._stages.renderer.render, work._stages.run
    monkeypatch.setattr(work._stages.renderer, "render", lambda rows: (events.append("render"), render(rows))[1])
    monkeypatch.setattr(work._stages, "run", lambda *given: (events.append("run"), run(*given))[1])
    assert not work._stages.is_loaded
    assert work(plan.tasks[0])[0] == plain[0]
    assert work._stages.is_loaded and len(events) > 4
    assert (events.index("run") == events.count("render")) == (limit == 2**30)
    assert [work(task)[0] for task in plan.tasks[1:]] == plain[1:]


def test_an_input_that_changed_is_told_while_the_encoder_is_loading(plan, tmp_path, monkeypatch):
    work = work_of(plan, tmp_path / "cache")
    monkeypatch.setattr(work._stages, "_loading", Loading(work._stages._loading))
    path = plan.tasks[0].partition.path
    changed = bytearray(path.read_bytes())
    changed[changed.index(b"Practice")] = ord("p")
    path.write_bytes(changed)
    with pytest.raises(InputError, match="changed"):
        [work(task) for task in plan.tasks]
