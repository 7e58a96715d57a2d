"""Diff: every number equals one counted literally from the Arrow files, and every cause is named."""

import difflib
import json
import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import packer
from packer.audit import diff
from packer.audit.diff.compare import meaning_of
from packer.audit.diff.documents import CommonInputs, DocumentComparison, Documents, match_rows, occurrences
from packer.audit.diff.settings import Change, compare_recipes, pair_inputs
from packer.audit.text_runs import common_start, spans_of
from packer.errors import CheckError, InputError
from packer.pipeline.from_python import build
from packer.recipe import load_recipe, make_recipe, to_json
from packer.store.manifest import Input, read_manifest, write_manifest


def table(folder, kind, split):
    files = sorted((folder / kind).glob(f"{split}-*.arrow"))
    assert files
    return pa.concat_tables([pa.ipc.open_file(file).read_all() for file in files])


def doc_ids(folder, split):
    return Counter(table(folder, "documents", split)["doc_id"].to_pylist())


def counts(old, new):
    """Only in the first, only in the second, in both."""
    return (old - new).total(), (new - old).total(), (old & new).total()


def document(folder, split, doc_id):
    rows = table(folder, "documents", split)
    return rows.slice(rows["doc_id"].to_pylist().index(doc_id), 1).to_pylist()[0]


def files_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def variant(starter, tmp_path):
    """Builds the starter's recipe with other keys, or a copy of the starter that a function has edited."""

    def make(*overrides, edit=None, name="other"):
        place = starter
        if edit is not None:
            place = Path(shutil.copytree(starter, tmp_path / name))
            edit(place)
        build(load_recipe(place / "recipe.yaml", overrides), tmp_path / f"{name}-cache", jobs=1)
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


def chat(question, answer, **fields):
    return json.dumps(
        {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer, **fields}]}
    )


def longer_answer(number):
    def change(lines):
        row = json.loads(lines[number])
        row["messages"][-1]["content"] += " And so on."
        lines[number] = json.dumps(row)

    return change


def test_a_cache_and_its_copy_are_the_same_bytes_and_nothing_is_reported(starter_cache, tmp_path):
    copy = Path(shutil.copytree(starter_cache, tmp_path / "copy"))
    found = diff(starter_cache, copy)
    assert found.same and found.same_bytes
    assert found.meaning == "the same bytes"
    assert found.causes == ()
    assert not any((found.recipe, found.inputs, found.inputs_reordered, found.model, found.totals, found.software))
    assert (found.documents, found.examples) == ((), ())


def test_the_same_files_in_another_folder_are_the_same_data_under_other_names(starter, starter_cache, variant):
    new = variant(edit=lambda _: None)
    found = diff(starter_cache, new)
    assert found.same and not found.same_bytes
    assert found.meaning.startswith("the same data by the same recipe")
    assert found.recipe == ()
    assert [entry.kind for entry in found.inputs] == ["renamed"] * 5
    assert found.inputs[0].changes == (
        Change(
            key="path",
            old=f"{starter.as_posix()}/data/chat.jsonl",
            new=f"{new.parent.as_posix()}/other/data/chat.jsonl",
        ),
    )
    assert (found.documents, found.totals, found.model) == ((), (), ())


def test_another_seed_is_the_same_documents_in_other_blocks(starter_cache, variant):
    new = variant("pack.seed=3")
    found = diff(starter_cache, new)
    assert not found.same
    assert found.meaning == "the same documents in other blocks by another recipe: other rules"
    assert found.recipe == (Change(key="pack.seed", old=0, new=3),)
    assert (found.inputs, found.documents, found.examples) == ((), (), ())


def test_shorter_blocks_change_totals_and_what_is_cut_but_no_document(starter_cache, variant):
    new = variant("pack.block_len=64", "pack.overlong=split")
    found = diff(starter_cache, new)
    assert found.documents == ()
    assert [(change.key, change.old, change.new) for change in found.recipe] == [
        ("pack.block_len", 512, 64),
        ("pack.overlong", "reject", "split"),
    ]
    before, after = read_manifest(starter_cache).totals, read_manifest(new).totals
    assert before.cut == {} and after.cut
    told = {change.key: (change.old, change.new) for change in found.totals}
    assert {key: told.pop(key) for key in [*told] if key.startswith("cut.")} == {
        f"cut.{code}": (None, cut.tokens) for code, cut in after.cut.items()
    }
    assert told == {
        name: (getattr(before, name), getattr(after, name))
        for name in ("packed", "piece_starts", "blocks", "slots", "padding")
        if getattr(before, name) != getattr(after, name)
    }


def test_fewer_trained_turns_are_reported_label_by_label(starter_cache, last_cache):
    new = last_cache
    found = diff(starter_cache, new, documents=4)
    assert found.meaning == "other documents by another recipe: other rules"
    (train,) = found.documents
    assert (train.only_old, train.only_new, train.both) == counts(
        doc_ids(starter_cache, "train"), doc_ids(new, "train")
    )
    assert (train.rows_changed, train.rows_only_old, train.rows_only_new) == (train.only_old, 0, 0)
    assert len(found.examples) == 4
    # One row of each input before a second one of any.
    assert len({example.old.input for example in found.examples}) == 4
    for example in found.examples:
        assert (example.old.input, example.old.row) == (example.new.input, example.new.row)
        old, other = (
            document(folder, "train", side.doc_id)
            for folder, side in ((starter_cache, example.old), (new, example.new))
        )
        assert old["input_ids"] == other["input_ids"]
        only = [i for i, pair in enumerate(zip(old["labels"], other["labels"], strict=True)) if pair[0] != pair[1]]
        assert all(other["labels"][i] == -100 for i in only)
        assert (example.what, example.at, example.same_text) == ("labels", only[0], True)
        assert (example.old.num_only_trained, example.new.num_only_trained) == (len(only), 0)
        assert example.new.only_trained == ()
        listed = [i for start, end, _ in example.old.only_trained for i in range(start, end)]
        assert listed == only[: len(listed)] and listed
        assert (example.old.num_trained, example.new.num_trained) == (old["num_trained"], other["num_trained"])
        assert (example.old.num_tokens, example.old.num_differing, example.old.input_ids) == (old["length"], 0, ())


def test_a_changed_row_is_shown_from_its_first_other_token(starter_cache, variant):
    new = variant(edit=edited("chat.jsonl", longer_answer(3)))
    found = diff(starter_cache, new)
    (train,) = found.documents
    assert (train.only_old, train.only_new) == (1, 1)
    assert (train.only_old, train.only_new, train.both) == counts(
        doc_ids(starter_cache, "train"), doc_ids(new, "train")
    )
    (example,) = found.examples
    assert (example.old.row, example.new.row, example.old.documents, example.new.documents) == (3, 3, 1, 1)
    old, other = (
        document(folder, "train", side.doc_id) for folder, side in ((starter_cache, example.old), (new, example.new))
    )
    at = next(i for i, pair in enumerate(zip(old["input_ids"], other["input_ids"], strict=False)) if pair[0] != pair[1])
    assert (example.what, example.at, example.same_text) == ("ids", at, False)
    assert (example.old.num_differing, example.old.text) == (0, "")
    assert (example.new.text, example.new.before) == (" And so on.", example.old.before)
    assert list(example.new.input_ids) == other["input_ids"][at : at + example.new.num_differing]
    assert example.new.num_tokens == example.old.num_tokens + example.new.num_differing
    (changed,) = (entry for entry in found.inputs if entry.kind == "changed")
    assert {change.key for change in changed.changes} == {"path", "sha256", "num_bytes"}
    assert found.causes == ("inputs",)


def test_rows_that_moved_are_the_same_documents(starter_cache, variant):
    def change(lines):
        del lines[4]
        lines.insert(1, chat("A row of its own?", "Yes, this one."))
        lines.insert(1, chat("Another row?", "Yes, two rows."))

    new = variant(edit=edited("chat.jsonl", change))
    found = diff(starter_cache, new, documents=10)
    (train,) = found.documents
    assert (train.only_old, train.only_new, train.both) == counts(
        doc_ids(starter_cache, "train"), doc_ids(new, "train")
    )
    assert (train.rows_changed, train.rows_only_old, train.rows_only_new) == (0, 1, 2)
    places = [tuple(side and side.row for side in (example.old, example.new)) for example in found.examples]
    assert places == [(4, None), (None, 1), (None, 2)]


def test_rows_rejected_in_one_cache_say_why(starter_cache, variant):
    new = variant(edit=edited("chat.jsonl", lambda lines: lines.__setitem__(7, "not json")))
    found = diff(starter_cache, new)
    (train,) = found.documents
    assert (train.only_old, train.only_new, train.rows_only_old) == (1, 0, 1)
    (example,) = found.examples
    assert (example.old.row, example.old.documents, example.old.code, example.what) == (7, 1, None, None)
    line = next(line for line in map(json.loads, (new / "rejected.jsonl").read_text().splitlines()) if line["row"] == 7)
    assert (example.new.documents, example.new.code, example.new.reason) == (0, "not_json", line["reason"])
    back = diff(new, starter_cache).examples
    assert [(example.old.code, example.new.code, example.new.row) for example in back] == [("not_json", None, 7)]
    before, after = (read_manifest(folder).totals.rejected["not_json"] for folder in (starter_cache, new))
    assert Change(key="rejected.not_json", old=before, new=after) in found.totals
    assert after == before + 1


def test_a_rejected_row_of_a_file_for_two_splits_is_explained_in_each(starter, tmp_path):
    for name, last in (("old", chat("Three?", "Four.")), ("new", "not json")):
        rows = tmp_path / name / "rows.jsonl"
        rows.parent.mkdir()
        rows.write_text(f"{chat('One?', 'Two.')}\n{last}\n")
        sources = [{"path": str(rows), "split": split} for split in ("train", "held")]
        recipe = {"sources": sources, "tokenizer": str(starter / "tokenizer"), "pack": {"mode": "none"}}
        build(make_recipe(recipe), tmp_path / f"{name}-cache", jobs=1)
    examples = diff(tmp_path / "old-cache", tmp_path / "new-cache").examples
    assert [(example.split, example.new.code) for example in examples] == [("train", "not_json"), ("held", "not_json")]


def test_an_appended_file_only_adds(starter, starter_cache, tmp_path):
    rows = tmp_path / "more.jsonl"
    rows.write_text("".join(f"{chat(f'What is {i}?', f'It is {i}.')}\n" for i in range(12)))
    recipe = to_json(load_recipe(starter / "recipe.yaml"))
    recipe["sources"].append({"path": rows.as_posix()})
    new = tmp_path / "cache"
    build(make_recipe(recipe), new, jobs=1)
    found = diff(starter_cache, new)
    assert not found.inputs_reordered
    assert [(entry.kind, entry.path, entry.num_rows) for entry in found.inputs] == [("added", rows.as_posix(), 12)]
    (train,) = found.documents
    assert (train.only_old, train.only_new, train.both) == (0, 12, doc_ids(starter_cache, "train").total())
    assert [(example.old, example.new.row) for example in found.examples] == [(None, 0), (None, 1), (None, 2)]
    assert found.recipe == ()
    assert found.causes == ("inputs",)
    removed = diff(new, starter_cache)
    assert [(entry.kind, entry.path) for entry in removed.inputs] == [("removed", rows.as_posix())]
    assert (removed.documents[0].only_old, removed.documents[0].only_new) == (12, 0)


def test_inputs_in_another_order_hold_the_same_documents(starter, starter_cache, tmp_path):
    recipe = to_json(load_recipe(starter / "recipe.yaml"))
    recipe["sources"].insert(0, recipe["sources"].pop(2))
    build(make_recipe(recipe), tmp_path / "cache", jobs=1)
    found = diff(starter_cache, tmp_path / "cache")
    assert (found.inputs_reordered, found.inputs) == (True, ())
    (train,) = found.documents
    assert (train.only_old, train.only_new, train.both) == (0, 0, doc_ids(starter_cache, "train").total())
    assert found.examples == ()
    assert found.meaning.startswith("the same documents in another order")
    assert found.recipe == ()


def test_a_split_that_only_one_cache_has_is_counted(starter_cache, variant):
    new = variant("sources.split=train")
    found = diff(starter_cache, new, documents=1)
    by_split = {entry.split: entry for entry in found.documents}
    eval_ids, train_ids = doc_ids(starter_cache, "eval"), doc_ids(starter_cache, "train")
    assert (by_split["eval"].only_old, by_split["eval"].only_new, by_split["eval"].both) == (eval_ids.total(), 0, 0)
    train = by_split["train"]
    assert (train.only_old, train.only_new, train.both) == counts(train_ids, doc_ids(new, "train"))
    (changed,) = found.inputs
    assert changed.changes == (Change(key="split", old="eval", new="train"),)
    assert len(found.examples) == 1


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [("limit", None, 20), ("take", None, {"rows": 20})],
)
def test_another_choice_of_rows_is_named_with_its_source(key, old, new, starter_cache, variant):
    found = diff(starter_cache, variant(f"sources.{key}={json.dumps(new)}"))
    sources = [source["path"] for source in read_manifest(starter_cache).recipe["sources"]]
    named = [change for change in found.recipe if change.key.startswith("sources[")]
    assert [change.key for change in named] == [f"sources[{path}].{key}" for path in sources]
    assert all((change.old, change.new) == (old, new) for change in named)
    assert found.causes[0] == "rules" and "inputs" not in found.causes


def test_sources_are_paired_by_path_and_then_by_their_order():
    old, new = (
        {"sources": [{"path": path, "where": {"n": {"min": least}}} for path, least in named]}
        for named in ([("a", 1), ("b", 2), ("old", 3)], [("b", 2), ("new", 4), ("a", 5)])
    )
    assert compare_recipes(old, new) == (
        Change(key="sources[a].where", old={"n": {"min": 1}}, new={"n": {"min": 5}}),
        Change(key="sources[new].where", old={"n": {"min": 3}}, new={"n": {"min": 4}}),
    )


def test_other_partitions_are_the_same_data_by_another_recipe(starter_cache, variant):
    found = diff(starter_cache, variant("partition_bytes=40KiB"))
    assert not found.same
    assert found.meaning == "the same data by another recipe: other rules"
    assert (found.documents, found.totals) == ((), ())


def test_a_changed_template_is_shown_line_by_line(starter, starter_cache, variant):
    def edit(place):
        path = place / "tokenizer" / "chat_template.jinja"
        path.write_text(
            path.read_text().replace(r"'<think>\n'", "'<think>'").replace("\n{%- if add_gen", "\n\n{%- if add_gen")
        )

    new = variant(edit=edit)
    found = diff(starter_cache, new)
    (template,) = found.templates
    old, other = (
        (folder / "tokenizer" / "chat_template.jinja").read_text().split("\n")
        for folder in (starter, new.parent / "other")
    )
    assert list(template.lines) == [line.rstrip("\n") for line in difflib.unified_diff(old, other, n=2)][2:]
    assert template.name == "chat_template.jinja"
    assert [change.key for change in found.model] == ["chat_template.jinja"]
    assert found.causes == ("model",)
    (train,) = found.documents
    assert (train.only_old, train.only_new, train.both) == counts(
        doc_ids(starter_cache, "train"), doc_ids(new, "train")
    )
    assert {example.old.input.rsplit("/", 1)[1] for example in found.examples} == {"reasoning.jsonl"}
    for example in found.examples:
        before, after = (
            document(folder, "train", side.doc_id)["input_ids"]
            for folder, side in ((starter_cache, example.old), (new, example.new))
        )
        end, other_end = example.at + example.old.num_differing, example.at + example.new.num_differing
        assert before[: example.at] == after[: example.at] and before[example.at] != after[example.at]
        assert before[end:] == after[other_end:]
        assert list(example.old.input_ids) == before[example.at : end][:24]
        assert example.old.before.endswith("assistant\n<think>") and example.old.text.startswith("\n")


def test_every_change_of_a_tokenizer_is_named(starter, starter_cache, variant):
    seen = {}

    def edit(place):
        path = place / "tokenizer" / "tokenizer.json"
        definition = json.loads(path.read_text("utf-8"))
        vocabulary = definition["model"]["vocab"]
        vocabulary["Ġthe"], vocabulary["Ġof"] = vocabulary["Ġof"], vocabulary["Ġthe"]
        seen["merges"] = len(definition["model"]["merges"])
        definition["model"]["merges"].pop()
        definition["normalizer"] = {"type": "NFC"}
        definition["added_tokens"][0]["lstrip"] = True
        definition["added_tokens"].append(
            {**definition["added_tokens"][-1], "id": 4096, "content": "<|extra|>", "special": True}
        )
        path.write_text(json.dumps(definition), "utf-8")
        generation = place / "tokenizer" / "generation_config.json"
        generation.write_text(json.dumps({"eos_token_id": [4091], "pad_token_id": 4089}))
        config = place / "tokenizer" / "tokenizer_config.json"
        config.write_text(config.read_text().replace('"pad_token": "<|endoftext|>"', '"pad_token": "<|extra|>"'))

    found = diff(starter_cache, variant(edit=edit))
    changed = {change.key: (change.old, change.new) for change in found.model}
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        old, new = changed.pop(name)
        assert old != new
    for token, old, new in (("<|endoftext|>", False, True), ("<|extra|>", None, False)):
        pair = changed.pop(f"added token {token}")
        assert (pair[0] and pair[0]["lstrip"], pair[1]["lstrip"]) == (old, new)
    old, new = changed.pop("tokenizer.json model.merges")
    assert (old.split()[0], new.split()[0]) == (f"{seen['merges']:,}", f"{seen['merges'] - 1:,}")
    old, new = changed.pop("tokenizer.json model.vocab")
    assert old != new and old.split()[0] == new.split()[0]
    assert changed == {
        "tokenizer.json normalizer": (None, {"type": "NFC"}),
        "generation_config.json eos_token_id": ([4091, 4089], [4091]),
        "tokenizer_config.json pad_token": ("<|endoftext|>", "<|extra|>"),
        "vocab_size": (4096, 4097),
        "pad_id": (4089, 4096),
        "stop_ids": ([4089, 4091], [4091]),
        "control_ids": ([4089, 4090, 4091], [4089, 4090, 4091, 4096]),
    }
    assert found.templates == ()
    assert found.examples
    assert all(example.same_text for example in found.examples)


def test_other_weights_are_reported_where_ids_and_labels_are_the_same(starter, tmp_path):
    for name, weight in (("old", 0.5), ("new", 0.25)):
        rows = tmp_path / name / "rows.jsonl"
        rows.parent.mkdir()
        rows.write_text(f"{chat('One?', 'Two.', weight=weight)}\n{chat('Three?', 'Four.')}\n")
        recipe = {"sources": [{"path": str(rows)}], "tokenizer": str(starter / "tokenizer"), "pack": {"block_len": 64}}
        build(make_recipe(recipe), tmp_path / f"{name}-cache", jobs=1)
    found = diff(tmp_path / "old-cache", tmp_path / "new-cache")
    (example,) = found.examples
    row = document(tmp_path / "old-cache", "train", example.old.doc_id)
    assert (example.what, example.at) == ("weights", row["loss_weights"].index(0.5))
    assert (example.old.only_trained, example.new.only_trained) == ((), ())


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
    assert (found.same, found.causes) == (True, ("engine",))  # the manifest's word for its fingerprints counts


def test_other_data_by_the_same_recipe_is_called_what_it_is():
    told = meaning_of(same_bytes=False, same_content=False, same_recipe=True, documents=(), causes=())
    assert told.startswith("the same documents in other blocks by the same recipe, which should not be")
    unknown = meaning_of(same_bytes=False, same_content=True, same_recipe=False, documents=(), causes=())
    assert unknown == "the same data by another recipe: nothing in it differs that this version of packer knows of"


def test_as_many_rows_are_shown_as_were_asked_for(starter_cache, last_cache):
    assert diff(starter_cache, last_cache, documents=0).examples == ()
    assert len(diff(starter_cache, last_cache, documents=1).examples) == 1
    with pytest.raises(ValueError, match="from 0 on, found -1"):
        diff(starter_cache, last_cache, documents=-1)


def test_nothing_is_written(starter_cache, last_cache):
    before = files_of(starter_cache), files_of(last_cache)
    assert not diff(starter_cache, last_cache).same
    assert (files_of(starter_cache), files_of(last_cache)) == before


def test_what_is_no_cache_is_refused(starter_cache, tmp_path):
    for pair in ((tmp_path, starter_cache), (starter_cache, tmp_path)):
        with pytest.raises(InputError, match="is not a cache"):
            diff(*pair)


@pytest.mark.parametrize(("kind", "column"), [("documents", "doc_id"), ("documents", "row"), ("blocks", "digest")])
def test_a_flipped_bit_of_an_identity_is_damage_and_no_difference(starter_cache, tmp_path, kind, column):
    copy = Path(shutil.copytree(starter_cache, tmp_path / "copy"))
    shard = next(shard for shard in read_manifest(copy).shards if shard.kind == kind)
    content = bytearray((copy / shard.path).read_bytes())
    content[shard.places[0].columns[column] + 4] ^= 1
    (copy / shard.path).write_bytes(content)
    for pair in ((starter_cache, copy), (copy, starter_cache)):
        with pytest.raises(CheckError, match="copy is damaged"):
            diff(*pair)


def test_damage_of_what_is_shown_is_reported_with_the_file(starter_cache, variant):
    def edit(place):
        edited("chat.jsonl", lambda lines: lines.__setitem__(7, "not json"))(place)
        template = place / "tokenizer" / "chat_template.jinja"
        template.write_text(template.read_text() + "{# the same #}")

    new = variant(edit=edit)
    assert diff(starter_cache, new).examples
    manifest = read_manifest(new)
    tried = 0
    for name in ("rejected.jsonl", *(f"model/{file.path}" for file in manifest.model.files)):
        whole = (new / name).read_bytes()
        (new / name).write_bytes(whole[:-1] + b"?")
        with pytest.raises(CheckError, match=f"{new}/{name} is damaged"):
            diff(starter_cache, new)
        (new / name).unlink()
        with pytest.raises(CheckError, match=f"{new}/{name} is missing"):
            diff(starter_cache, new)
        (new / name).write_bytes(whole)
        tried += 1
    assert tried == 5
    assert diff(starter_cache, new).examples


def test_a_flipped_token_of_a_shown_document_is_damage(starter_cache, last_cache, tmp_path):
    new = Path(shutil.copytree(last_cache, tmp_path / "copy"))
    (example,) = diff(starter_cache, new, documents=1).examples
    shard = next(shard for shard in read_manifest(new).shards if shard.kind == "documents")
    ids = np.array(document(new, "train", example.new.doc_id)["input_ids"], np.int32).tobytes()
    content = (new / shard.path).read_bytes()
    place = content.index(ids)
    (new / shard.path).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(CheckError, match="expected digest"):
        diff(starter_cache, new, documents=1)


# The parts by themselves


@given(st.lists(st.integers(-3, 3)), st.lists(st.integers(-3, 3)))
def test_multisets_are_counted_as_a_counter_counts_them(old, new):
    arrays = [np.array(old, np.int64)], [np.array(new, np.int64)]
    matched_old, matched_new = match_rows(*arrays)
    assert Counter(np.array(old)[matched_old].tolist()) == Counter(np.array(new)[matched_new].tolist())
    assert Counter(np.array(old)[~matched_old].tolist()) == Counter(old) - Counter(new)
    assert Counter(np.array(new)[~matched_new].tolist()) == Counter(new) - Counter(old)
    assert occurrences(arrays[0][0]).tolist() == [old[:i].count(value) for i, value in enumerate(old)]


ROWS = st.lists(st.tuples(st.sampled_from([-(2**63), 0, 2**63 - 1]), st.integers(0, 2), st.integers(0, 2)))


@given(ROWS, ROWS)
def test_rows_of_several_columns_are_equal_only_as_a_whole(old, new):
    columns = [[np.array([row[i] for row in rows], np.int64) for i in range(3)] for rows in (old, new)]
    matched_old, matched_new = match_rows(*columns)
    assert matched_old.sum() == matched_new.sum() == (Counter(old) & Counter(new)).total()


DOCUMENTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 5)), max_size=20, unique_by=lambda entry: entry[:2]
).map(sorted)
"""(input, row, doc_id)"""


@given(DOCUMENTS, DOCUMENTS, st.permutations([0, 1, 2]), st.integers(0, 3))
def test_rows_that_differ_are_reported_once_and_only_they(old, new, order, num_pairs):
    inputs = CommonInputs(dict(enumerate(order[:num_pairs])), 3, 3)
    sides = []
    for is_new, rows in enumerate((old, new)):
        source, row, doc_id = (np.array([entry[i] for entry in rows], np.int64) for i in range(3))
        sides.append(Documents(doc_id, row, inputs.keys(source, row, is_new=bool(is_new))))
    comparison = DocumentComparison("train", inputs, *sides)
    report = comparison.report()
    ids = [[entry[2] for entry in rows] for rows in (old, new)]
    if report is None:
        assert [entry[1:] for entry in old] == [entry[1:] for entry in new]
        return
    assert (report.only_old, report.only_new, report.both) == counts(*map(Counter, ids))
    shown = comparison.rows(100)
    assert len(shown) == report.rows_changed + report.rows_only_old + report.rows_only_new
    assert sum(len(row.old) for row in shown) == report.only_old
    assert sum(len(row.new) for row in shown) == report.only_new
    for row in shown:
        assert len(row.old) or len(row.new)
        for numbers, rows, place in ((row.old, old, row.place_old), (row.new, new, row.place_new)):
            assert not len(numbers) or rows[numbers[0]][:2] == place
    assert len(comparison.rows(1)) == min(1, len(shown))


def entry(path, content, split="train"):
    return Input(
        path=path, split=split, format="jsonl", schema="messages", columns={}, num_bytes=1, sha256=content, num_rows=1
    )


@pytest.mark.parametrize(
    ("old", "new", "pairs"),
    [
        ([entry("a", "1"), entry("b", "2")], [entry("b", "1"), entry("a", "2")], {0: 0, 1: 1}),
        ([entry("a", "1")], [entry("a", "2"), entry("b", "1")], {0: 1}),
        ([entry("a", "1")], [entry("a", "2")], {0: 0}),
        ([entry("a", "1"), entry("a", "1", "eval")], [entry("a", "2", "eval"), entry("a", "2")], {0: 1, 1: 0}),
        ([entry("a", "1", "eval")], [entry("a", "1")], {0: 0}),
        ([entry("x/a", "1")], [entry("y/a", "2")], {0: 0}),
        ([entry("x/a", "1"), entry("z/a", "3")], [entry("y/a", "2")], {}),
        ([entry("a", "1"), entry("b", "1")], [entry("c", "1")], {0: 0}),
        ([entry("a", "1")], [entry("b", "2")], {}),
        ([], [entry("b", "2")], {}),
    ],
)
def test_inputs_are_paired_by_what_says_most(old, new, pairs):
    assert pair_inputs(old, new) == pairs


def test_recipes_are_compared_with_their_defaults_and_without_places():
    old = {"sources": [{"path": "a", "limit": 5}], "template": {"kwargs": {}}, "pack": {"block_len": 64}}
    new = {
        "sources": [],
        "template": {"kwargs": {"think": True}},
        "pack": {"seed": 0, "block_len": 32},
        "tokenizer": "there",
    }
    assert compare_recipes(old, new) == (
        Change(key="pack.block_len", old=64, new=32),
        Change(key="template.kwargs.think", old=None, new=True),
    )
    assert compare_recipes({}, to_json(make_recipe({}))) == ()


@given(st.lists(st.booleans()))
def test_spans_cover_what_is_marked(mask):
    spans = spans_of(np.array(mask, np.bool_))
    assert [i for start, end in spans for i in range(start, end)] == [i for i, marked in enumerate(mask) if marked]
    assert all(a[1] < b[0] for a, b in pairwise(spans))


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)))
def test_common_starts_are_the_longest(old, new):
    common = common_start(np.array(old, np.int32), np.array(new, np.int32))
    assert old[:common] == new[:common]
    assert common == min(len(old), len(new)) or old[common] != new[common]


@pytest.mark.parametrize("what", ["side", "margin"])
def test_answers_that_are_rated_otherwise_are_other_documents(starter, tmp_path, what):
    for name, value in (("old", 1), ("new", 0)):
        said = [{"role": "assistant", "content": text} for text in ("yes", "no")]
        row = {"prompt": [{"role": "user", "content": "well?"}]}
        if what == "side":
            row |= {"completion": said[:1], "label": bool(value)}
        else:
            row |= {"chosen": said[:1], "rejected": said[1:], "margin": value}
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.jsonl").write_text(json.dumps(row))
        source = str(tmp_path / name / "rows.jsonl")
        packer.build(source, tmp_path / name / "cache", tokenizer=str(starter / "tokenizer"), pack={"block_len": 64})
    found = diff(tmp_path / "old/cache", tmp_path / "new/cache")
    (train,) = found.documents
    num_answers = {"side": 1, "margin": 2}[what]
    assert (train.only_old, train.only_new, train.both, train.rows_changed) == (num_answers, num_answers, 0, 1)
    became = {"side": "desirable became undesirable", "margin": "1 became 0"}[what]
    assert [each.difference for each in found.examples] == [f"the same ids and labels, another {what}: {became}"]
    assert found.meaning.startswith("other documents")


def test_many_sources_in_another_order_are_paired_in_linear_time():
    """Searching all others for each source would take minutes."""
    sources = [{"path": f"data/part-{number}.jsonl", "limit": number} for number in range(60_000)]
    assert compare_recipes({"sources": sources}, {"sources": [dict(source) for source in sources[::-1]]}) == ()
