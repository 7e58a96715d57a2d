"""Rules for the reader in a recipe: kept in the manifest, outside the content, and what a loader does unless told."""

import shutil
import warnings

import pytest
import torch
from packed_again import packed_again

from packer.errors import UsageError
from packer.load import Mixture, PackedLoader, Padded
from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe
from packer.store.cache import Cache

FEW = ("sources.limit=40", "pack.block_len=96")
LEFT = ("read.batching=padded", "read.multiple_of=8", "read.side=left")
ALONE = {"rank": 0, "world_size": 1, "prefetch": 0}


@pytest.fixture(scope="module")
def ruled(starter, tmp_path_factory):
    """Caches of the starter recipe, as it is and with rules for the reader."""
    folder = tmp_path_factory.mktemp("ruled")
    for name, rules in (("plain", ()), ("left", LEFT)):
        build(load_recipe(starter / "recipe.yaml", [*FEW, *rules]), folder / name, jobs=1, fail_above=1)
    return folder


def micro_batches(cache, **options):
    with PackedLoader(cache, global_batch_size=4, micro_batch_size=2, order="sequential", **ALONE, **options) as loader:
        return [micro_batch for step in loader for micro_batch in step]


def test_a_recipe_says_how_documents_are_batched_and_the_content_stays_what_it_is(ruled):
    plain, left = Cache.open(ruled / "plain"), Cache.open(ruled / "left")
    assert plain.manifest.content_fingerprint == left.manifest.content_fingerprint
    assert "read" not in plain.manifest.recipe
    assert left.manifest.recipe["read"] == {"batching": "padded", "multiple_of": 8, "side": "left"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_recipe = micro_batches(left)
        asked = micro_batches(plain, batching=Padded(multiple_of=8, side="left"))
    assert len(by_recipe) == len(asked) > 4
    for one, other in zip(by_recipe, asked, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one.keys() | other.keys())


@pytest.mark.parametrize("batching", ["packed", "padded"])
def test_a_loader_that_departs_from_the_recipe_says_so_once(batching, ruled):
    with pytest.warns(UserWarning, match=r"multiple_of=8, side='left'\), says its recipe") as caught:
        loader = PackedLoader(ruled / "left", batching=batching, **ALONE)
    assert len([warning for warning in caught if "recipe" in str(warning.message)]) == 1
    assert caught[0].filename == __file__
    assert loader.state_dict()["batching"] == batching


def test_caches_whose_recipes_differ_are_mixed_only_with_a_batching_that_is_named(ruled):
    mixture = Mixture({ruled / "plain": 1, ruled / "left": 1})
    with pytest.raises(UsageError, match="batch documents differently"):
        PackedLoader(mixture, **ALONE)
    with pytest.warns(UserWarning, match="says its recipe"):
        assert PackedLoader(mixture, batching="padding_free", **ALONE).num_blocks > 4


def test_rules_change_without_force_and_tokenize_nothing(starter, ruled, tmp_path):
    shutil.copytree(ruled / "plain", tmp_path / "cache")
    recipe = load_recipe(starter / "recipe.yaml", [*FEW, *LEFT])
    result = build(recipe, tmp_path / "cache", jobs=1, fail_above=1)
    assert (result.num_partitions_built, result.built) == (0, True)
    assert not build(recipe, tmp_path / "cache", jobs=1, fail_above=1).built
    packed_again(tmp_path / "cache", tmp_path / "other", {}, ["read.side=right"])
    cache = Cache.open(tmp_path / "other")
    assert cache.manifest.recipe["read"]["side"] == "right"
    assert cache.manifest.content_fingerprint == Cache.open(ruled / "plain").manifest.content_fingerprint
