"""What of builds on Ray needs no Ray: bundles, what a node must have, and what is said where it is missing.

Builds on a real cluster are in tests/cluster.
"""

import sys
from pathlib import Path
from types import ModuleType

import command_line
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.pipeline.bundles import MOST_BYTES, MOST_DEATHS, MOST_TASKS, Bundles
from packer.pipeline.ray_nodes import NodeRequirements, versions
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
        ("--on is not for a share", ["--on", "ray", "--share", "0/2"]),
    ],
)
def test_what_cannot_be_built_on_is_said_before_anything_is_made(
    words: str, options: list[str], starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as where it is not installed
    recipe = str(starter / "recipe.yaml")
    command_line.assert_refused(words, "build", "-c", recipe, "-o", tmp_path / "cache", *options, exit_code=2)
    assert not (tmp_path / "cache").exists()
