"""Shares of a build whose inputs are in a bucket: each input is read once for the plan, the finishing build copies none."""

from pathlib import Path

import pytest
from bucket_objects import files, objects
from command_line import fields, run

from packer.pipeline import input_cuts
from packer.pipeline.documents import Share
from packer.pipeline.run import build_share
from packer.recipe import make_recipe
from packer.store.bucket import Bucket

pytestmark = pytest.mark.slow

NUM_FILES = 5
SHARES = 2


@pytest.fixture
def inputs(bucket, recipe):
    """Objects with rows."""
    there = Bucket(bucket.url.replace("/cache", "/in"))
    for number in range(NUM_FILES):
        there.create(f"{number}.jsonl", recipe.with_name(f"{number}.jsonl"))
    return there


@pytest.fixture
def read(monkeypatch):
    """The names of the inputs that were read to be cut; `read.before` is called before each."""
    whole = input_cuts.partition_file

    class Read(list):
        before = staticmethod(lambda: None)

    def partition_file(path, **how):
        there.append(Path(str(path)).name)
        there.before()
        return whole(path, **how)

    there = Read()
    monkeypatch.setattr(input_cuts, "partition_file", partition_file)
    return there


@pytest.fixture
def share(bucket, inputs, recipe, tmp_path, monkeypatch):
    """Make a share, with a disk of its own."""
    tokenizer = str(recipe.parent / "tokenizer")
    asked = make_recipe(
        {
            "version": 1,
            "tokenizer": tokenizer,
            "sources": [{"path": f"{inputs.url}/*.jsonl"}],
            "pack": {"block_len": 128},
        }
    )

    def made(index):
        with monkeypatch.context() as patch:
            patch.setenv("PACKER_CACHE_DIR", str(tmp_path / f"share-{index}"))
            return build_share(asked, bucket.url, Share(index=index, count=SHARES), jobs=1)

    return made


def finish(inputs, recipe, place):
    """The build without a share."""
    command = ("--tokenizer", recipe.parent / "tokenizer", "--block-len", 128, "-j", 1)
    return fields("build", f"{inputs.url}/*.jsonl", *command, "-o", place)


@pytest.mark.parametrize("at_once", [False, True], ids=["one after another", "at the same time"])
def test_inputs_are_read_once_for_the_plan_and_never_copied(at_once, bucket, inputs, recipe, share, read, tmp_path):
    def other():
        read.before = lambda: None
        share(1)

    if at_once:
        read.before = other  # the other share begins while this one reads its first file
    share(0)
    if not at_once:
        share(1)
    names = [f"{number}.jsonl" for number in range(NUM_FILES)]
    assert sorted(read) == sorted([*names, "0.jsonl"] if at_once else names)
    read.clear()
    told = finish(inputs, recipe, bucket.url)
    assert (told["partitions_built"], read) == (0, [])
    assert not list(tmp_path.glob("*/inputs")), "an input was copied"
    finish(inputs, recipe, tmp_path / "local")
    assert objects(bucket) == files(tmp_path / "local")
    run("verify", bucket.url, "--sources", "/", "--sources", inputs.url)


def test_an_input_that_was_replaced_after_the_shares_is_read_again(bucket, inputs, recipe, share, read, tmp_path):
    share(0)
    share(1)
    inputs.replace("3.jsonl", recipe.with_name("6.jsonl"))
    read.clear()
    told = finish(inputs, recipe, bucket.url)
    assert (told["partitions_built"], read) == (1, ["3.jsonl"])
    finish(inputs, recipe, tmp_path / "local")
    assert files(tmp_path / "local").items() <= objects(bucket).items(), "the replaced shard stays"
