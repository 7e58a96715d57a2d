"""Caches of pairs: whatever selects, the two answers of a row stay together, or go together."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from single_documents import read_document
from watched_builds import Notes

from packer.audit.verify import verify
from packer.errors import CheckError, RecipeError
from packer.layout import MASKED
from packer.pipeline.from_python import build
from packer.recipe.recipe import Recipe, load_recipe, make_recipe, to_json
from packer.store.cache import Cache
from packer.store.manifest import read_manifest, write_manifest

WORDS = ("yes", "no", "a fox", "the lazy dog", "it depends on the weather, and on much else that nobody knows")


def row(number: int, *, turns: int = 1, words: int = 3) -> dict[str, Any]:
    prompt = [{"role": "user", "content": f"question {number} " + "why " * (number % 7)}]
    sides = [
        [
            message
            for turn in range(turns)
            for message in (
                {"role": "assistant", "content": f"{side} {turn}: " + WORDS[(number + turn) % len(WORDS)] * words},
                {"role": "user", "content": "go on"},
            )
        ][:-1]
        for side in ("good", "bad")
    ]
    return {"prompt": prompt, "chosen": sides[0], "rejected": sides[1], "id": f"r{number}"}


def write(path: Path, rows: list[dict[str, Any]]) -> dict[str, str]:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return {"path": str(path)}


def recipe_of(starter: Path, sources: list[dict[str, str]], **others: Any) -> Recipe:
    values = to_json(load_recipe(starter / "recipe.yaml"))
    pack = {"block_len": 256, **others.pop("pack", {})}
    return make_recipe({**values, "sources": sources, "partition_bytes": 2**14, "pack": pack, **others})


def numbered(text: str) -> int:
    return int(text.removeprefix("r"))


def assert_pairs_stand_together(cache: Cache) -> list[int]:
    """The numbers of the rows whose pairs are there, in all splits."""
    rows = []
    for split in cache.splits("documents"):
        documents = cache.documents(split)
        sides = [read_document(documents, number) for number in range(len(documents))]
        assert [each.side for each in sides] == ["chosen", "rejected"] * (len(sides) // 2)
        for chosen, rejected in zip(sides[::2], sides[1::2], strict=True):
            assert chosen.sample_id is not None
            assert chosen.sample_id == rejected.sample_id
            start = int(np.flatnonzero(chosen.labels != MASKED)[0])
            assert start == int(np.flatnonzero(rejected.labels != MASKED)[0])
            assert chosen.input_ids[:start].tolist() == rejected.input_ids[:start].tolist()
            rows.append(numbered(chosen.sample_id))
    assert cache.splits("blocks") == ()
    return rows


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Some are equal, some are too long for a block, some have several turns, some are no pairs."""
    found = [row(number, turns=1 + number % 3) for number in range(40)]
    found += found[:5]
    found += [row(number, words=20) for number in range(40, 46)]
    return [*found, {**row(46), "rejected": row(46)["chosen"]}, {**row(47), "chosen": []}]


def test_pairs_are_built_whole_and_verified_and_rules_of_packing_are_said_to_have_no_effect(
    starter: Path, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    pairs = write(tmp_path / "pairs.jsonl", rows)
    for pack, is_told in (({"mode": "none"}, False), ({"mode": "isolated", "block_len": 16}, True)):
        recipe, notes = recipe_of(starter, [pairs], pack=pack), Notes()
        build(recipe, tmp_path / "cache", dry_run=True, progress=notes)
        assert any("`pack` has no effect" in note for note in notes.notes) == is_told
    result = build(recipe, tmp_path / "cache", jobs=1)
    assert result.manifest is not None
    assert result.manifest.totals.rejected == {"pair_empty_side": 1, "pair_identical": 1}
    assert not result.manifest.totals.cut and result.left_out is None
    with Cache.open(tmp_path / "cache") as cache:
        assert sorted(assert_pairs_stand_together(cache)) == sorted([*range(46), *range(5)])
    assert not verify(tmp_path / "cache", level="full", sources=["/"], reencode=True, threads=1).findings
    assert not build(recipe, tmp_path / "cache", jobs=1).built


def test_pairs_longer_than_a_filter_lets_pass_are_left_out_whole(
    starter: Path, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    source = [write(tmp_path / "pairs.jsonl", rows)]
    build(recipe_of(starter, source, filters=[{"name": "long", "tokens": {"max": 200}}]), tmp_path / "cache", jobs=1)
    with Cache.open(tmp_path / "cache") as cache:
        kept = assert_pairs_stand_together(cache)
        assert cache.documents("train").lengths().max() <= 200
    assert {*range(40)} - {*kept} == set() and {*range(40, 46)} - {*kept}


def test_blocks_of_preference_data_are_refused_and_built_over(
    starter: Path, tmp_path: Path, rows: list[dict[str, Any]], starter_cache: Path
) -> None:
    recipe = recipe_of(starter, [write(tmp_path / "pairs.jsonl", rows)])
    cache = tmp_path / "cache"
    build(recipe, cache, jobs=1)
    manifest, block = read_manifest(cache), next(s for s in read_manifest(starter_cache).shards if s.kind == "blocks")
    packed = {**manifest.recipe, "pack": {**manifest.recipe["pack"], "mode": "isolated"}}
    write_manifest(cache, msgspec.structs.replace(manifest, recipe=packed, shards=(*manifest.shards, block)))
    with pytest.raises(CheckError, match="has blocks of pairs or rated answers, which nothing reads") as caught:
        Cache.open(cache)
    assert "--force" in caught.value.hint
    result = build(recipe, cache, jobs=1, force=True)
    assert (result.built, result.num_partitions_built) == (True, 0)
    assert read_manifest(cache) == manifest


def test_rules_about_rows_take_whole_pairs(starter: Path, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    rules = {
        "deduplicate": {"exact": "bytes"},
        "split": {"shares": {"validation": 0.3}},
        "filters": [{"name": "short", "of": "answers", "chars": {"max": 400}}],
    }
    recipe = recipe_of(starter, [write(tmp_path / "pairs.jsonl", rows)], **rules)
    build(recipe, tmp_path / "cache", jobs=1)
    with Cache.open(tmp_path / "cache") as cache:
        assert cache.splits("documents") == ("train", "validation")
        found = assert_pairs_stand_together(cache)
    assert len(found) == len(set(found))
    assert set(range(5)) < set(found) < set(range(46))
    assert not verify(tmp_path / "cache", level="full").findings


def test_a_cache_has_one_kind_of_rows_and_answers_are_whole(starter: Path, tmp_path: Path) -> None:
    pairs = write(tmp_path / "pairs.jsonl", [row(0)])
    chats = write(tmp_path / "chats.jsonl", [{"messages": [*row(0)["prompt"], *row(0)["chosen"]]}])
    with pytest.raises(RecipeError, match=r"pairs\.jsonl holds pairs, .*chats\.jsonl holds examples"):
        build(recipe_of(starter, [pairs, chats]), tmp_path / "cache", jobs=1)
    with pytest.raises(RecipeError, match=r"pack\.mode=stream is not for pairs, which are compared whole") as caught:
        build(recipe_of(starter, [pairs], pack={"mode": "stream"}), tmp_path / "cache", jobs=1)
    assert caught.value.hint == "pack={'mode': 'none'}"
    rated = write(tmp_path / "rated.jsonl", [{"prompt": "q", "completion": "a", "label": False}])
    for inputs, compared in (([pairs], "pairs"), ([rated], "rated answers")):
        with pytest.raises(RecipeError, match=f"trains questions, too, and of {compared} only the answers"):
            build(recipe_of(starter, inputs, supervision={"turns": "conversation"}), tmp_path / "cache", jobs=1)


def test_rated_answers_keep_their_rating(starter: Path, tmp_path: Path) -> None:
    rated = [{"prompt": row(n)["prompt"], "completion": row(n)["chosen"], "label": n % 3 > 0} for n in range(9)]
    build(recipe_of(starter, [write(tmp_path / "rated.jsonl", rated)]), tmp_path / "cache", jobs=1)
    with Cache.open(tmp_path / "cache") as cache:
        documents = cache.documents("train")
        sides = [read_document(documents, number).side for number in range(len(documents))]
        assert sides == ["desirable" if each["label"] else "undesirable" for each in rated]
        assert not documents.is_paired
        assert cache.splits("blocks") == ()
    assert not verify(tmp_path / "cache", level="full").findings


@pytest.fixture(scope="module")
def small(starter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    build(recipe_of(starter, [write(folder / "pairs.jsonl", [row(n) for n in range(12)])]), folder / "cache", jobs=1)
    return folder / "cache"


@given(at=st.integers(0, 23), bit=st.integers(0, 7))
def test_a_side_that_was_changed_is_found(small: Path, at: int, bit: int) -> None:
    (shard, *_) = [each for each in read_manifest(small).shards if each.kind == "documents"]
    place = shard.places[0]
    path, content = small / shard.path, (small / shard.path).read_bytes()
    number = place.columns["side"] + at % place.num_rows
    try:
        path.write_bytes(content[:number] + bytes([content[number] ^ 1 << bit]) + content[number + 1 :])
        with Cache.open(small) as cache:
            documents = cache.documents("train")
            with pytest.raises(CheckError, match=r"digest|side: expected 0 to 3"):
                documents.verify()
            with pytest.raises(CheckError, match=r"stand apart|side: expected 0 to 3"):
                documents.sides()
    finally:
        path.write_bytes(content)
