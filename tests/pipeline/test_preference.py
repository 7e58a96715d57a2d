"""Caches of pairs: whatever selects, the two answers of a row stay together, or go together."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from followed_steps import write
from hypothesis import given
from hypothesis import strategies as st
from single_documents import read_document
from watched_builds import Notes

from packer.audit.verify import verify
from packer.errors import CheckError, RecipeError
from packer.layout import MASKED
from packer.pipeline.from_python import build
from packer.pipeline.messages.build_result import BuildResult
from packer.store.cache import Cache
from packer.store.manifest import read_manifest, write_manifest

WORDS = ("yes", "no", "a fox", "the lazy dog", "it depends on the weather, and on much else that nobody knows")


def row(number: int, *, turns: int = 1, words: int = 3) -> dict[str, Any]:
    prompt = [{"role": "user", "content": f"question {number} " + "why " * (number % 7)}]
    said = [WORDS[(number + turn) % len(WORDS)] * words for turn in range(turns)]
    goes_on = {"role": "user", "content": "go on"}
    sides = [
        [
            each
            for turn in range(turns)
            for each in ({"role": "assistant", "content": f"{side} {turn}: {said[turn]}"}, goes_on)
        ]
        for side in ("good", "bad")
    ]
    sides = [side[:-1] for side in sides]
    return {"prompt": prompt, "chosen": sides[0], "rejected": sides[1], "id": f"r{number}"}


def built(starter: Path, folder: Path, rows: Any, **options: Any) -> BuildResult:
    """A cache of rows, or of files, of small partitions."""
    pack = {"block_len": 256, **options.pop("pack", {})}
    given = {"tokenizer": starter / "tokenizer", "partition_bytes": 2**14, "jobs": 1, "progress": None}
    return build(rows, folder, pack=pack, **given | options)


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
    for pack, is_told in (({"mode": "none"}, False), ({"mode": "isolated", "block_len": 16}, True)):
        notes = Notes()
        built(starter, tmp_path / "cache", rows, pack=pack, dry_run=True, progress=notes)
        assert any("`pack` has no effect" in note for note in notes.notes) == is_told
    result = built(starter, tmp_path / "cache", rows, pack=pack)
    assert result.manifest is not None
    assert result.manifest.totals.rejected == {"pair_empty_side": 1, "pair_identical": 1}
    assert not result.manifest.totals.cut and result.left_out is None
    with Cache.open(tmp_path / "cache") as cache:
        assert sorted(assert_pairs_stand_together(cache)) == sorted([*range(46), *range(5)])
    assert not verify(tmp_path / "cache", level="full", sources=["/"], reencode=True, threads=1).findings
    assert not built(starter, tmp_path / "cache", rows, pack=pack).built


def test_pairs_longer_than_a_filter_lets_pass_are_left_out_whole(
    starter: Path, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    built(starter, tmp_path / "cache", rows, filters=[{"name": "long", "tokens": {"max": 200}}])
    with Cache.open(tmp_path / "cache") as cache:
        kept = assert_pairs_stand_together(cache)
        assert cache.documents("train").lengths().max() <= 200
    assert {*range(40)} - {*kept} == set() and {*range(40, 46)} - {*kept}


def test_blocks_of_preference_data_are_refused_and_built_over(
    starter: Path, tmp_path: Path, rows: list[dict[str, Any]], starter_cache: Path
) -> None:
    cache = tmp_path / "cache"
    built(starter, cache, rows)
    manifest, block = read_manifest(cache), next(s for s in read_manifest(starter_cache).shards if s.kind == "blocks")
    packed = {**manifest.recipe, "pack": {**manifest.recipe["pack"], "mode": "isolated"}}
    write_manifest(cache, msgspec.structs.replace(manifest, recipe=packed, shards=(*manifest.shards, block)))
    with pytest.raises(CheckError, match="has blocks of pairs or rated answers, which nothing reads") as caught:
        Cache.open(cache)
    assert "--force" in caught.value.hint
    result = built(starter, cache, rows, force=True)
    assert (result.built, result.num_partitions_built) == (True, 0)
    assert read_manifest(cache) == manifest


def test_rules_about_rows_take_whole_pairs(starter: Path, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    rules = {
        "deduplicate": {"exact": "bytes"},
        "split": {"shares": {"validation": 0.3}},
        "filters": [{"name": "short", "of": "answers", "chars": {"max": 400}}],
    }
    built(starter, tmp_path / "cache", rows, **rules)
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
        built(starter, tmp_path / "cache", [pairs, chats])
    with pytest.raises(RecipeError, match=r"pack\.mode=stream is not for pairs, which are compared whole") as caught:
        built(starter, tmp_path / "cache", pairs, pack={"mode": "stream"})
    assert caught.value.hint == "pack={'mode': 'none'}"
    rated = write(tmp_path / "rated.jsonl", [{"prompt": "q", "completion": "a", "label": False}])
    for path, compared in ((pairs, "pairs"), (rated, "rated answers")):
        with pytest.raises(RecipeError, match=f"trains questions, too, and of {compared} only the answers"):
            built(starter, tmp_path / "cache", path, supervision={"turns": "conversation"})


def test_rated_answers_keep_their_rating(starter: Path, tmp_path: Path) -> None:
    rated = [{"prompt": row(n)["prompt"], "completion": row(n)["chosen"], "label": n % 3 > 0} for n in range(9)]
    built(starter, tmp_path / "cache", rated)
    with Cache.open(tmp_path / "cache") as cache:
        documents = cache.documents("train")
        sides = [read_document(documents, number).side for number in range(len(documents))]
        assert sides == ["desirable" if each["label"] else "undesirable" for each in rated]
        assert not documents.is_paired
        assert cache.splits("blocks") == ()
    assert not verify(tmp_path / "cache", level="full").findings


@pytest.fixture(scope="module")
def small(starter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(starter, tmp_path_factory.mktemp("small") / "cache", [row(n) for n in range(12)]).folder


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
