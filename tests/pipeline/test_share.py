"""Several machines make the documents of one cache: whatever their order, the build that finishes gives the same bytes."""

import multiprocessing
from pathlib import Path

import command_line
import pytest

from packer.errors import BusyError
from packer.pipeline.documents import Share
from packer.pipeline.from_python import build
from packer.pipeline.run import build_share
from packer.recipe import Recipe, load_recipe, make_recipe, to_json
from packer.store.folder import lock
from packer.store.manifest import manifest_fingerprint

RULES = {"split": {"shares": {"validation": 0.2}}, "deduplicate": {"exact": "bytes"}}


def recipe_of(starter: Path, **others: object) -> Recipe:
    """Of some partitions."""
    return make_recipe({**to_json(load_recipe(starter / "recipe.yaml")), "partition_bytes": 2**15, **others})


@pytest.mark.parametrize("rules", [{}, RULES], ids=["all rows", "rules about rows"])
def test_shares_in_any_order_are_the_cache_that_is_built_alone(
    rules: dict[str, object], starter: Path, tmp_path: Path
) -> None:
    recipe = recipe_of(starter, **rules)
    alone = build(recipe, tmp_path / "alone", jobs=1)
    made = {index: build_share(recipe, tmp_path / "cache", Share(index=index, count=4)) for index in (2, 0, 3)}
    assert build_share(recipe, tmp_path / "cache", Share(index=0, count=4)) == (0, sum(made[0]))
    finished = build(recipe, tmp_path / "cache", jobs=1)
    num_made = sum(num for num, _ in made.values())
    assert num_made > 3
    assert finished.num_partitions_reused == num_made
    assert finished.num_partitions_built == alone.num_partitions_built - num_made
    assert manifest_fingerprint(tmp_path / "cache") == manifest_fingerprint(tmp_path / "alone")


def make(recipe: Recipe, folder: Path, index: int) -> None:
    build_share(recipe, folder, Share(index=index, count=2))


def test_shares_are_made_at_the_same_time(starter: Path, tmp_path: Path) -> None:
    """Both make the first share, too."""
    recipe = recipe_of(starter)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=make, args=(recipe, tmp_path / "cache", index)) for index in (0, 1, 0)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert build(recipe, tmp_path / "cache", jobs=1).num_partitions_built == 0
    build(recipe, tmp_path / "alone", jobs=1)
    assert manifest_fingerprint(tmp_path / "cache") == manifest_fingerprint(tmp_path / "alone")


def test_a_build_waits_for_no_share_and_no_share_for_a_build(starter: Path, tmp_path: Path) -> None:
    recipe, cache = recipe_of(starter), tmp_path / "cache"
    with lock(cache, shared=True):
        build_share(recipe, cache, Share(index=0, count=9))
        with pytest.raises(BusyError):
            build(recipe, cache, jobs=1)
    with lock(cache), pytest.raises(BusyError):
        build_share(recipe, cache, Share(index=1, count=9))


def test_the_command_makes_a_share_and_says_what_finishes(starter: Path, tmp_path: Path) -> None:
    command = ("build", "-c", starter / "recipe.yaml", "-o", tmp_path / "cache", "-q")
    told = command_line.run(*command[:-1], "--share", "0/2").stdout
    assert told.startswith("share 0 of 2: 3 partitions made, 0 there\n")
    assert "without --share" in told
    found = command_line.fields(*command, "--share", "1/2")
    assert (found["partitions_built"], found["partitions_reused"]) == (2, 0)
    command_line.run(*command)
    for wrong in ("2/2", "1", "-1/2", "1/0"):
        command_line.run(*command, "--share", wrong, exit_code=2)
    command_line.assert_refused("--repair is not for a share", *command, "--share", "0/2", "--repair", exit_code=2)
