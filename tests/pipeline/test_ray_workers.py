"""What of builds on Ray needs no Ray: bundles, what a node must have, and what is said where it is missing.

Builds on a real cluster are in tests/cluster.
"""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import command_line
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import ResourceError, UsageError
from packer.pipeline.workers.bundles import MOST_BYTES, MOST_DEATHS, MOST_TASKS, Bundles
from packer.pipeline.workers.ray_nodes import NodeRequirements, versions
from packer.pipeline.workers.ray_workers import RayWorkers
from packer.store.mirror import shown

sizes = st.lists(st.integers(0, 2 * MOST_BYTES), min_size=1, max_size=200)


most_bytes = st.integers(0, 2 * MOST_BYTES)


def bundles_of(sizes: list[int], most_bytes: int) -> Bundles:
    return Bundles(((f"task {i}", size) for i, size in enumerate(sizes)), most_bytes)


@given(sizes, most_bytes)
def test_bundles_hold_every_task_once_in_order_and_are_bounded(sizes: list[int], most_bytes: int) -> None:
    waiting, bundles = bundles_of(sizes, most_bytes), []
    while waiting.waiting:
        bundles.append(waiting.next())
        assert [waiting.tasks[number] for number in bundles[-1]] == [f"task {number}" for number in bundles[-1]]
        assert list(waiting.done(dict.fromkeys(bundles[-1], 1))) == [(number, 1) for number in bundles[-1]]
        assert not waiting.tasks
    assert [number for bundle in bundles for number in bundle] == list(range(len(sizes)))
    for bundle in bundles:
        assert 1 <= len(bundle) <= MOST_TASKS
        assert len(bundle) == 1 or sum(sizes[number] for number in bundle) <= min(MOST_BYTES, most_bytes)


@given(sizes, st.sets(st.integers(0, 199)), most_bytes)
def test_every_task_that_kills_is_given_up_and_no_other_is(sizes: list[int], deadly: set[int], most_bytes: int) -> None:
    """Processes that die of a deadly task, after they did those before it in the bundle."""
    bundles, done, deaths = bundles_of(sizes, most_bytes), list[int](), 0
    while bundles.waiting:
        bundle = bundles.next()
        first = next((place for place, number in enumerate(bundle) if number in deadly), len(bundle))
        done += bundle[:first]
        if first < len(bundle):
            deaths += 1
            bundles.lost(bundle[first:], RuntimeError("killed"))
    fatal = {number for number in deadly if number < len(sizes)}
    assert set(bundles.given_up) == fatal and deaths == MOST_DEATHS * len(fatal)
    assert sorted(done) == [number for number in range(len(sizes)) if number not in fatal]


def test_a_node_must_have_the_same_software_and_see_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = versions()
    assert {"packer", "Python", "numpy", "pyarrow", "tokenizers", "jinja2"} <= here.keys()
    assert NodeRequirements(versions=here, folder=tmp_path, probe=tmp_path).refusal() is None
    bucket = (tmp_path / "scratch", "s3://bucket/cache")
    assert NodeRequirements(versions=here, folder=tmp_path, probe=None, cache=bucket).refusal() is None
    assert shown(tmp_path / "scratch") == "s3://bucket/cache", "the node has a folder of its own for the bucket"
    other = NodeRequirements(versions={**here, "numpy": "0", "more": "1"}, folder=tmp_path, probe=None).refusal()
    assert other is not None
    assert f"more is missing, here 1; numpy {here['numpy']}, here 0" in other.message
    unseen = NodeRequirements(versions=here, folder=tmp_path, probe=tmp_path / "cache" / ".packer" / "probe").refusal()
    assert unseen is not None and unseen.message.endswith(f"does not see {tmp_path / 'cache'}")


class FakeRay(ModuleType):
    """A cluster whose nodes answer, die or hang when they are looked at; there are no others."""

    def __init__(self, answers: list[Any]) -> None:
        super().__init__("ray")
        self.exceptions, self.cancelled = ModuleType("ray.exceptions"), list[int]()
        self.exceptions.RayError = error = type("RayError", (Exception,), {})  # type: ignore[attr-defined]
        crashes = "WorkerCrashedError", "OutOfMemoryError", "NodeDiedError", "LocalRayletDiedError", "ObjectLostError"
        for name in ("RayTaskError", "RuntimeEnvSetupError", *crashes):
            setattr(self.exceptions, name, type(name, (error,), {}))
        self._answers = [answer if not isinstance(answer, str) else self._error(answer) for answer in answers]

    def _error(self, name: str) -> Any:
        return HANGS if name == HANGS else getattr(self.exceptions, name)(f"{name}\nno module named packer")

    def nodes(self) -> list[dict[str, Any]]:
        resources = {"Alive": True, "Resources": {"CPU": 1.0}}
        return [{"NodeID": n, "NodeManagerHostname": f"node-{n}", **resources} for n, _ in enumerate(self._answers)]

    def remote(self, **_: Any) -> Any:
        def options(*, scheduling_strategy: int, **_: Any) -> Any:
            return SimpleNamespace(remote=lambda _: scheduling_strategy)

        return lambda _: SimpleNamespace(options=options)

    def wait(self, asked: list[int], **_: Any) -> tuple[list[int], list[int]]:
        return [node for node in asked if self._answers[node] != HANGS], []

    def get(self, node: int) -> Any:
        if isinstance(self._answers[node], Exception) and not isinstance(self._answers[node], UsageError):
            raise self._answers[node]
        return self._answers[node]

    def cancel(self, node: int, **_: Any) -> None:
        self.cancelled.append(node)


HANGS = "hangs"


@pytest.mark.parametrize(
    ("answers", "refused"),
    [
        ([None, "NodeDiedError", HANGS], None),
        (["NodeDiedError", HANGS], (ResourceError, "no node of the Ray cluster is left to work on: NodeDiedError")),
        ([HANGS], (ResourceError, "none answers")),
        ([None, "RayTaskError"], (UsageError, "node node-1 cannot run packer: no module named packer")),
        ([None, "RuntimeEnvSetupError"], (UsageError, "node node-1 cannot run packer: no module named packer")),
        (["NodeDiedError", UsageError("other software")], (UsageError, "other software")),
    ],
)
def test_nodes_that_die_or_hang_while_they_are_looked_at_are_passed_over(
    answers: list[Any], refused: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray, strategies = FakeRay(answers), ModuleType("ray.util.scheduling_strategies")
    strategies.NodeAffinitySchedulingStrategy = lambda node, **_: node  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, strategies.__name__, strategies)
    workers = RayWorkers(ray, None, None, lambda _: None)
    here = NodeRequirements(versions={}, folder=tmp_path, probe=None)
    if refused is None:
        workers._refuse_other_nodes(here)
    else:
        with pytest.raises(refused[0], match=refused[1]) as caught:
            workers._refuse_other_nodes(here)
        assert ("install packer" in (caught.value.hint or "")) == bool(
            {"RayTaskError", "RuntimeEnvSetupError"} & {*map(str, answers)}
        )
    assert ray.cancelled == [node for node, answer in enumerate(answers) if answer == HANGS]


def test_a_client_without_grpcio_names_what_to_install(
    starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "grpc", None)
    options = ["-c", starter / "recipe.yaml", "-o", tmp_path / "cache", "--on", "ray://head:10001"]
    command_line.assert_refused("Ray's client needs grpcio", "build", *options, exit_code=2)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("token-packer[ray]", ["--on", "ray"]),
        ("token-packer[ray]", ["--on", "ray://head:10001"]),
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
