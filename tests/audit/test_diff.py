"""Diff: every number equals one counted literally from the Arrow files, and every cause is named."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from chats import chat
from flipped_bits import flip
from followed_steps import write
from hypothesis import given
from hypothesis import strategies as st
from packed_caches import table
from shorter_starter import shortened

import packer
from packer.audit.diff import compare_inputs, diff, unmatched
from packer.errors import CheckError
from packer.pipeline.from_python import build
from packer.pipeline.messages.changes import Change, compare_recipes
from packer.recipe.recipe import load_recipe, make_recipe, to_json
from packer.store.manifest import Input, read_manifest, write_manifest


def doc_ids(folder, split):
    return Counter(row["doc_id"] for row in table(folder, "documents", split))


def counts(old, new):
    """Only in the first, only in the second, in both."""
    return (old - new).total(), (new - old).total(), (old & new).total()


def files_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def starter(starter, tmp_path_factory):
    return shortened(starter, tmp_path_factory.mktemp("shorter") / "starter", 22)


@pytest.fixture(scope="module")
def starter_cache(starter, tmp_path_factory):
    """The cache of its recipe. Shared: tests that change something copy it."""
    folder = tmp_path_factory.mktemp("built") / "cache"
    build(load_recipe(starter / "recipe.yaml"), folder, jobs=1, fail_above=1)
    return folder


@pytest.fixture
def variant(starter, tmp_path):
    """Builds the starter's recipe with other keys, or a copy of the starter that a function has edited."""

    def make(*overrides, edit=None, name="other"):
        place = starter
        if edit is not None:
            place = Path(shutil.copytree(starter, tmp_path / name))
            edit(place)
        build(load_recipe(place / "recipe.yaml", overrides), tmp_path / f"{name}-cache", jobs=1, fail_above=1)
        return tmp_path / f"{name}-cache"

    return make


@pytest.fixture(scope="module")
def last_cache(starter, tmp_path_factory):
    """The starter's recipe where only last turns are trained. Shared: tests that change something copy it."""
    folder = tmp_path_factory.mktemp("last") / "cache"
    build(load_recipe(starter / "recipe.yaml", ["supervision.turns=last"]), folder, jobs=1)
    return folder


def edited(file, change):
    """An edit of one input, as a list of lines."""

    def edit(place):
        path = place / "data" / file
        lines = path.read_text("utf-8").splitlines()
        change(lines)
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")

    return edit


def test_a_cache_and_its_copy_are_the_same_bytes_and_nothing_is_reported(starter_cache, tmp_path):
    copy = Path(shutil.copytree(starter_cache, tmp_path / "copy"))
    found = diff(starter_cache, copy)
    assert found.same and found.same_bytes
    assert found.meaning == "the same bytes"
    assert not any((found.recipe, found.inputs, found.model, found.totals, found.software))
    assert found.documents == ()


def test_the_same_files_in_another_folder_are_the_same_data_under_other_names(starter, starter_cache, variant):
    new = variant(edit=lambda _: None)
    found = diff(starter_cache, new)
    assert found.same and not found.same_bytes
    told = "the same data by the same recipe; names, places, engine or versions in the manifest differ"
    assert found.meaning == told
    assert not any((found.recipe, found.inputs, found.documents, found.totals, found.model))


def test_shorter_blocks_change_totals_and_what_is_cut_but_no_document(starter_cache, variant):
    new = variant("pack.block_len=64", "pack.overlong=split")
    found = diff(starter_cache, new)
    assert not found.same and found.meaning == "the same documents in other blocks: different rules"
    assert (found.inputs, found.documents) == ((), ())
    rules = [(change.key, change.old, change.new) for change in found.recipe]
    assert rules == [("pack.block_len", 512, 64), ("pack.overlong", "reject", "split")]
    before, after = read_manifest(starter_cache).totals, read_manifest(new).totals
    assert before.cut == {} and after.cut
    told = {change.key: (change.old, change.new) for change in found.totals}
    assert {key: told.pop(key) for key in [*told] if key.startswith("cut.")} == {
        f"cut.{code}": (None, cut.tokens) for code, cut in after.cut.items()
    }
    names = ("packed", "piece_starts", "blocks", "slots", "padding")
    both = {name: (getattr(before, name), getattr(after, name)) for name in names}
    assert told == {name: (was, now) for name, (was, now) in both.items() if was != now}


def test_rows_that_moved_are_the_same_documents(starter_cache, variant):
    def change(lines):
        del lines[4]
        lines.insert(1, json.dumps(chat("A row of its own?", "Yes, this one.")))
        lines.insert(1, json.dumps(chat("Another row?", "Yes, two rows.")))

    new = variant(edit=edited("chat.jsonl", change))
    found = diff(starter_cache, new)
    (train,) = found.documents
    both = (doc_ids(folder, "train") for folder in (starter_cache, new))
    assert (train.only_old, train.only_new, train.both) == counts(*both)
    old, other = (f"{read_manifest(folder).inputs[0].path} row" for folder in (starter_cache, new))
    assert (train.first_old, train.first_new) == ((f"{old} 4",), (f"{other} 1", f"{other} 2"))


def test_an_appended_file_only_adds(starter, starter_cache, tmp_path):
    rows = write(tmp_path / "more.jsonl", [chat(f"What is {i}?", f"It is {i}.") for i in range(12)])
    recipe = to_json(load_recipe(starter / "recipe.yaml"))
    recipe["sources"].append({"path": rows.as_posix()})
    new = tmp_path / "cache"
    build(make_recipe(recipe), new, jobs=1)
    found = diff(starter_cache, new)
    (added,) = found.inputs
    assert (added.key, added.old) == (f"{rows.as_posix()} (train)", None) and added.new.startswith("12 rows, sha256 ")
    (train,) = found.documents
    assert (train.only_old, train.only_new, train.both) == (0, 12, doc_ids(starter_cache, "train").total())
    assert (train.first_old, train.first_new) == ((), tuple(f"{rows.as_posix()} row {row}" for row in range(3)))
    assert found.recipe == ()
    assert found.meaning.endswith(": different inputs")
    removed = diff(new, starter_cache)
    assert removed.inputs == (Change(key=added.key, old=added.new, new=None),)
    assert (removed.documents[0].only_old, removed.documents[0].only_new) == (12, 0)


def test_inputs_in_another_order_hold_the_same_documents(starter, starter_cache, tmp_path):
    recipe = to_json(load_recipe(starter / "recipe.yaml"))
    recipe["sources"].insert(0, recipe["sources"].pop(2))
    build(make_recipe(recipe), tmp_path / "cache", jobs=1)
    found = diff(starter_cache, tmp_path / "cache")
    assert [change.key for change in found.inputs] == ["order"]
    (train,) = found.documents
    assert (train.only_old, train.only_new, train.both) == (0, 0, doc_ids(starter_cache, "train").total())
    assert found.meaning.startswith("the same documents in another order")
    assert found.recipe == ()


def test_a_split_that_only_one_cache_has_is_counted(starter_cache, variant):
    new = variant("sources.split=train")
    found = diff(starter_cache, new)
    by_split = {entry.split: entry for entry in found.documents}
    eval_ids, train_ids = doc_ids(starter_cache, "eval"), doc_ids(starter_cache, "train")
    assert (by_split["eval"].only_old, by_split["eval"].only_new, by_split["eval"].both) == (eval_ids.total(), 0, 0)
    train = by_split["train"]
    assert (train.only_old, train.only_new, train.both) == counts(train_ids, doc_ids(new, "train"))
    gone, come = found.inputs
    assert gone.key.endswith(" (eval)") and come.key == gone.key.replace("(eval)", "(train)")
    assert (gone.new, come.old) == (None, None) and gone.old == come.new


def test_another_choice_of_rows_is_named_with_its_source(starter_cache, variant):
    found = diff(starter_cache, variant("sources.limit=20", "sources.take={rows: 20}"))
    sources = [source["path"] for source in read_manifest(starter_cache).recipe["sources"]]
    named = [change for change in found.recipe if change.key.startswith("sources[")]
    expected = {(f"sources[{path}].{key}", None) for path in sources for key in ("limit", "take")}
    assert {(change.key, change.old) for change in named} == expected and len(named) == len(expected)
    assert all(change.new == ({"rows": 20} if change.key.endswith("take") else 20) for change in named)
    assert ": different rules" in found.meaning and "inputs" not in found.meaning


def test_sources_are_compared_by_their_paths():
    both = {"a": 1, "b": 2, "old": 3}, {"b": 2, "new": 4, "a": 5}
    old, new = ({"sources": [{"path": path, "where": {"n": {"min": n}}} for path, n in each.items()]} for each in both)
    assert compare_recipes(old, new) == (Change(key="sources[a].where", old={"n": {"min": 1}}, new={"n": {"min": 5}}),)


def test_other_partitions_are_the_same_data_by_another_recipe(starter_cache, variant):
    found = diff(starter_cache, variant("partition_bytes=16KiB", "shard_bytes=60KiB"))
    assert not found.same
    assert found.meaning == "the same data: different rules"
    assert (found.documents, found.totals) == ((), ())


def test_every_file_of_a_tokenizer_that_changed_is_named_and_every_id(starter_cache, variant):
    def edit(place):
        template = place / "tokenizer" / "chat_template.jinja"
        template.write_text(template.read_text().replace(r"'<think>\n'", "'<think>'"))
        generation = place / "tokenizer" / "generation_config.json"
        generation.write_text(json.dumps({"eos_token_id": [4091], "pad_token_id": 4089}))

    found = diff(starter_cache, variant(edit=edit))
    changed = {change.key: (change.old, change.new) for change in found.model}
    for name in ("chat_template.jinja", "generation_config.json"):
        old, new = changed.pop(name)
        assert old != new
    assert changed == {"stop_ids": ([4089, 4091], [4091])}
    assert found.meaning.endswith(": different tokenizer or template")


@pytest.mark.parametrize(
    "rows",
    [
        {"labels": [{"input_ids": [5, 6, 7], "loss_mask": mask} for mask in ([0, 1, 1], [0, 0, 1])]},
        {"side": [{"prompt": [{"role": "user", "content": "1?"}], "completion": [{"role": "assistant", "content": "2"}], "label": label} for label in (True, False)]},
        {"margin": [{"chosen": [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "2"}], "rejected": [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "3"}], "margin": margin} for margin in (1, 0)]},
    ],
    ids=lambda rows: next(iter(rows)),
)  # fmt: skip
def test_documents_of_the_same_ids_are_others_if_they_train_otherwise(starter, tmp_path, rows):
    ((what, pair),) = rows.items()
    for name, row in zip(("old", "new"), pair, strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.jsonl").write_text(json.dumps(row))
        source = str(tmp_path / name / "rows.jsonl")
        columns = {"document_columns": {"margin": {"kind": "float32"}}} if what == "margin" else {}
        options = {"tokenizer": str(starter / "tokenizer"), "pack": {"block_len": 64}}
        packer.build(source, tmp_path / name / "cache", **options, **columns)
    found = diff(tmp_path / "old/cache", tmp_path / "new/cache")
    (train,) = found.documents
    num_answers = 2 if what == "margin" else 1
    assert (train.only_old, train.only_new, train.both) == (num_answers, num_answers, 0)
    assert found.meaning.startswith("other documents")


def test_other_data_by_the_same_recipe_is_called_what_it_is(starter_cache, last_cache):
    before = files_of(starter_cache), files_of(last_cache)
    found = diff(starter_cache, last_cache)
    assert (files_of(starter_cache), files_of(last_cache)) == before, "nothing is written"
    same = replace(found, recipe_fingerprint=(found.old, found.old), documents=())
    assert same.meaning.startswith("the same documents in other blocks by the same recipe, which should not be")
    unknown = replace(found, content_fingerprint=("0", "0"), recipe=(), inputs=(), model=(), software=())
    assert unknown.meaning == "the same data: nothing differs that packer knows of"


def test_versions_are_distinguished_from_what_decides_documents(starter_cache, tmp_path):
    copy = Path(shutil.copytree(starter_cache, tmp_path / "copy"))
    manifest = read_manifest(copy)
    versions = {**manifest.versions, "pyarrow": "0"}
    write_manifest(copy, msgspec.structs.replace(manifest, versions=versions, rules_version=99))
    found = diff(starter_cache, copy)
    assert found.software == (
        Change(key="rules_version", old=manifest.rules_version, new=99),
        Change(key="pyarrow", old=manifest.versions["pyarrow"], new="0"),
    )
    assert found.same  # the manifest's word for its fingerprints counts


@pytest.mark.parametrize(("kind", "column"), [("documents", "doc_id"), ("documents", "row"), ("blocks", "digest")])
def test_a_flipped_bit_of_an_identity_is_damage_and_no_difference(starter_cache, tmp_path, kind, column):
    copy = Path(shutil.copytree(starter_cache, tmp_path / "copy"))
    shard = next(shard for shard in read_manifest(copy).shards if shard.kind == kind)
    flip(copy / shard.path, shard.places[0].columns[column] + 4)
    for pair in ((starter_cache, copy), (copy, starter_cache)):
        with pytest.raises(CheckError, match="copy is damaged"):
            diff(*pair)


@given(st.lists(st.integers(-3, 3)), st.lists(st.integers(-3, 3)))
def test_multisets_are_counted_as_a_counter_counts_them(old, new):
    left = unmatched(np.array(old, np.int64), np.array(new, np.int64))
    assert Counter(np.array(old)[left].tolist()) == Counter(old) - Counter(new)
    assert left.tolist() == [old[:i].count(value) >= new.count(value) for i, value in enumerate(old)]


def entry(path, content, split="train"):
    read = {"format": "jsonl", "schema": "messages", "columns": {}}
    return Input(path=path, split=split, **read, num_bytes=1, sha256=content, num_rows=1)


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ([entry("a", "1"), entry("b", "2")], [entry("b", "1"), entry("a", "2")], []),
        ([entry("a", "1"), entry("b", "2")], [entry("b", "2"), entry("a", "1")], ["order"]),
        ([entry("a", "1")], [entry("a", "2"), entry("b", "1")], ["a (train)"]),
        ([entry("a", "1")], [entry("a", "2")], ["a (train): sha256"]),
        ([entry("a", "1", "eval")], [entry("a", "1")], ["a (eval)", "a (train)"]),
        ([entry("a", "1"), entry("b", "1")], [entry("c", "1")], ["a (train)", "b (train)"]),
        ([entry("a", "1")], [entry("b", "2")], ["a (train)", "b (train)"]),
        ([], [entry("b", "2")], ["b (train)"]),
    ],
)
def test_inputs_are_the_same_if_their_bytes_are_whatever_their_names(old, new, keys):
    assert [change.key for change in compare_inputs(old, new)] == keys


def test_recipes_are_compared_with_their_defaults_and_without_places():
    old = {"sources": [{"path": "a", "limit": 5}], "template": {"kwargs": {}}, "pack": {"block_len": 64}}
    new = {"template": {"kwargs": {"think": True}}, "pack": {"seed": 0, "block_len": 32}, "tokenizer": "there"}
    new["sources"] = []
    assert compare_recipes(old, new) == (
        Change(key="pack.block_len", old=64, new=32),
        Change(key="template.kwargs.think", old=None, new=True),
    )
    assert compare_recipes({}, to_json(make_recipe({}))) == ()


def test_many_sources_in_another_order_are_paired_in_linear_time():
    """Searching all others for each source would take minutes."""
    sources = [{"path": f"data/part-{number}.jsonl", "limit": number} for number in range(60_000)]
    assert compare_recipes({"sources": sources}, {"sources": [dict(source) for source in sources[::-1]]}) == ()
