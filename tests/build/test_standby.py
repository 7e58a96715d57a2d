"""Processes that wait for a plan are there where they are needed, and gone where they are not."""

import signal
import threading
from pathlib import Path

import msgspec
import pytest

from packer.backend import load_fast_meanwhile
from packer.build import build, standby
from packer.build.engine import resolve_engine
from packer.build.places import tokenizer_place
from packer.errors import InputError
from packer.recipe import load_recipe, make_recipe, to_json


@pytest.fixture
def large(starter, tmp_path, monkeypatch):
    """A recipe whose input comes to several partitions, on a machine of two processors."""
    monkeypatch.setattr(standby, "default_jobs", lambda: 2)
    path = tmp_path / "rows.jsonl"
    path.write_bytes((starter / "data" / "chat.jsonl").read_bytes() * 2)
    values = to_json(load_recipe(starter / "recipe.yaml"))
    sources = [{"path": str(path), "schema": "messages"}]
    return make_recipe({**values, "sources": sources, "partition_bytes": path.stat().st_size // 3})


@pytest.fixture
def told(monkeypatch):
    """What becomes of processes that wait."""
    seen = []

    def note(name, own):
        monkeypatch.setattr(
            standby.Workers, name, lambda self, *given: (seen.append((name, self.jobs)), own(self, *given))[1]
        )

    for name in ("start", "begin", "stop"):
        note(name, getattr(standby.Workers, name))
    return seen


def test_processes_are_started_before_the_plan_and_take_its_tasks(large, told, tmp_path, starter):
    result = build(large, tmp_path / "cache", jobs=2)
    assert [name for name, _ in told] == ["start", "begin", "stop", "stop"]
    assert build(large, tmp_path / "alone", jobs=1).fingerprint == result.fingerprint


@pytest.mark.parametrize("change", [{"limit": 3}, {"path": "rows.json"}])
def test_none_are_started_where_only_a_plan_knows_how_many(change, large, told, tmp_path):
    source = to_json(large)["sources"][0]
    (tmp_path / "rows.json").write_bytes(Path(source["path"]).read_bytes())
    if "path" in change:
        change = {"path": str(tmp_path / change["path"])}
    build(make_recipe({**to_json(large), "sources": [{**source, **change}]}), tmp_path / "cache", jobs=2)
    assert told[:1] != [("start", 2)]  # before there are tasks


def test_none_are_started_for_a_cache_that_is_there_or_beyond_the_processors(large, told, tmp_path):
    build(large, tmp_path / "cache", jobs=3)
    assert [name for name, _ in told] == ["begin", "start", "stop"]
    build(large, tmp_path / "cache", jobs=2)
    build(large, tmp_path / "other", jobs=2, dry_run=True)
    assert len(told) == 3


def test_a_plan_that_fails_ends_them_before_they_are_ready(large, told, tmp_path, monkeypatch):
    template = {**to_json(large)["template"], "file": str(tmp_path / "none.jinja")}
    ended = []
    stop = standby.Workers.stop
    monkeypatch.setattr(standby.Workers, "stop", lambda self: (stop(self), ended.extend(self._processes))[0])
    with pytest.raises(InputError):
        build(make_recipe({**to_json(large), "template": template}), tmp_path / "cache", jobs=2)
    assert [name for name, _ in told] == ["start", "stop"]
    assert ended and [process.exitcode for process in ended] == [-signal.SIGKILL] * len(ended)


@pytest.mark.parametrize("jobs", [1, 2])
def test_one_process_loads_the_fast_encoder_while_it_plans(jobs, large, told, tmp_path, monkeypatch):
    pytest.importorskip("fastokens")
    content = (tokenizer_place(large.tokenizer) / "tokenizer.json").read_bytes()
    assert resolve_engine("fast", content).name == "fast"  # known from here on
    loading = []
    monkeypatch.setattr(standby, "load_fast_meanwhile", lambda given: loading.append(load_fast_meanwhile(given)))
    monkeypatch.setattr(standby, "WORTH_LOADING_BYTES", 2 * Path(large.sources[0].path).stat().st_size)
    build(large, tmp_path / "small", jobs=jobs)
    assert not loading
    monkeypatch.setattr(standby, "WORTH_LOADING_BYTES", 0)
    build(large, tmp_path / "cache", jobs=jobs)
    assert [type(each) for each in loading] == [threading.Thread] * (jobs == 1)
    build(msgspec.structs.replace(large, engine="reference"), tmp_path / "reference", jobs=jobs)
    assert len(loading) == (jobs == 1)
