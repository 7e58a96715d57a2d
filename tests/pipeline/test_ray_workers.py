"""What of builds on Ray needs no Ray: tasks that are lost, what a node must have, and what is said where it is missing.

Builds on a real cluster are in tests/cluster.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import command_line
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import UsageError
from packer.pipeline.workers.executor import WorkerDiedError
from packer.pipeline.workers.ray_workers import MOST_DEATHS, NodeRequirements, RayWorkers, versions
from packer.store.place import SentFolder


def test_a_node_must_have_the_same_software_and_see_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = versions()
    assert {"packer", "Python", "numpy", "pyarrow", "tokenizers", "jinja2"} <= here.keys()
    NodeRequirements(versions=here, folder=tmp_path).check()
    with pytest.raises(UsageError, match=f"more is missing, here 1; numpy {here['numpy']}, here 0"):
        NodeRequirements(versions={**here, "numpy": "0", "more": "1"}, folder=tmp_path).check()
    with SentFolder.to_machines(tmp_path / "cache") as sent:
        assert sent.arrive() == tmp_path / "cache"
    with pytest.raises(UsageError, match=f"does not see {tmp_path / 'cache'}\n"):
        sent.arrive()


class FakeRay(ModuleType):
    """A cluster of one process, which tasks end as they say; what is lost is told before what is done."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.exceptions, self.cancelled = ModuleType("ray.exceptions"), list[Any]()
        self.exceptions.RayError = error = type("RayError", (Exception,), {})  # type: ignore[attr-defined]
        crashes = "WorkerCrashedError", "OutOfMemoryError", "NodeDiedError", "LocalRayletDiedError", "ObjectLostError"
        for name in ("RayTaskError", *crashes):
            setattr(self.exceptions, name, type(name, (error,), {}))
        self.asked, self._numbers = list[str](), count()

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True}]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def put(self, job: Any) -> Any:
        return job

    def remote(self, **_: Any) -> Any:
        def remote(_name: str, _job: Any, task: str) -> tuple[int, str]:
            self.asked.append(task)
            return next(self._numbers), task

        return lambda _: SimpleNamespace(remote=remote)

    def wait(self, running: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return running[:1], running[1:]

    def get(self, reference: tuple[int, str]) -> Any:
        kind = reference[1].split()[0]
        if hasattr(self.exceptions, kind):
            raise getattr(self.exceptions, kind)(f"{kind}\nno module named packer")
        return (f"did {reference[1]}", UsageError("other software") if kind == "refused" else None)

    def cancel(self, reference: Any, **_: Any) -> None:
        self.cancelled.append(reference)


def ran(ray: FakeRay, tasks: list[str]) -> Iterator[tuple[int, str]]:
    return RayWorkers(ray, None, lambda _: None).run(str, tasks, sizes=())


@given(st.lists(st.sampled_from(["task", "WorkerCrashedError", "NodeDiedError", "OutOfMemoryError"]), max_size=40))
def test_every_task_that_kills_is_given_up_once_all_others_are_done(kinds: list[str]) -> None:
    tasks, ray, done = [f"{kind} {number}" for number, kind in enumerate(kinds)], FakeRay(), dict[int, str]()
    deadly = [task for task in tasks if not task.startswith("task")]
    with pytest.raises(WorkerDiedError, match=deadly[0]) if deadly else nullcontext() as caught:
        done.update(ran(ray, tasks))
    assert done == {number: f"did {task}" for number, task in enumerate(tasks) if task not in deadly}
    assert Counter(ray.asked) == {task: MOST_DEATHS if task in deadly else 1 for task in tasks}
    if deadly:
        assert all(task in caught.value.message for task in deadly)
        assert ray.asked[: len(tasks)] == tasks, "what is repeated comes after all others"


@pytest.mark.parametrize(
    ("kind", "message"),
    [("refused", "other software"), ("RayTaskError", "a node cannot run packer: no module named packer")],
)
def test_a_node_that_cannot_take_part_ends_the_run_and_what_is_running_is_cancelled(kind: str, message: str) -> None:
    ray = FakeRay()
    with pytest.raises(UsageError, match=message):
        list(ran(ray, ["task 0", kind, *(f"task {number}" for number in range(1, 9))]))
    assert ray.cancelled and len(ray.asked) < 9


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("token-packer[ray]", ["--on", "ray"]),
        ("--on ray://head:10001: not a place packer can work on", ["--on", "ray://head:10001"]),
        ("--on spark: not a place packer can work on", ["--on", "spark"]),
    ],
)
def test_what_cannot_be_built_on_is_said_before_anything_is_made(
    words: str, options: list[str], starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as where it is not installed
    recipe = str(starter / "recipe.yaml")
    command_line.assert_refused(words, "build", "-c", recipe, "-o", tmp_path / "cache", *options, exit_code=2)
    assert not (tmp_path / "cache").exists()
