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

from packer.audit import diff
from packer.audit.diff.documents import DocumentComparison, InputPairs, Side
from packer.audit.diff.inputs import pair_inputs
from packer.audit.diff.meaning import meaning_of
from packer.audit.diff.model import compare_vocabularies
from packer.audit.diff.multisets import count_common, match_rows, occurrences
from packer.audit.diff.recipe import compare_recipes
from packer.audit.diff.report import Change
from packer.audit.diff.tokens import common_start, first_difference, runs_of
from packer.build import build
from packer.errors import CheckError, InputError
from packer.recipe import load_recipe, make_recipe, to_json
from packer.store.manifest import Input, read_manifest, write_manifest


def table(folder, kind, split):
    files = sorted((folder / kind).glob(f"{split}-*.arrow"))
    assert files
    return pa.concat_tables([pa.ipc.open_file(file).read_all() for file in files])


def doc_ids(folder, split):
    return Counter(table(folder, "documents", split)["doc_id"].to_pylist())


def pieces(folder, split):
    columns = [table(folder, "blocks", split)[name].to_pylist() for name in ("doc_ids", "doc_starts", "doc_lengths")]
    return Counter(piece for row in zip(*columns, strict=True) for piece in zip(*row, strict=True))


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


def test_a_cache_and_its_copy_are_the_same_bytes_and_nothing_is_told(starter_cache, tmp_path):
    copy = Path(shutil.copytree(starter_cache, tmp_path / "copy"))
    found = diff(starter_cache, copy)
    assert found.same and found.same_bytes
    assert found.identity.meaning == "the same bytes"
    assert (found.identity.manifest, found.identity.causes) == ((), ())
    assert (found.recipe, found.inputs, found.model, found.numbers, found.software) == (None,) * 5
    assert (found.documents, found.examples, found.blocks) == ((), (), ())


def test_the_same_files_in_another_folder_are_the_same_data_under_other_names(starter, starter_cache, variant):
    new = variant(edit=lambda _: None)
    found = diff(starter_cache, new)
    assert found.same and not found.same_bytes
    assert found.identity.meaning.startswith("the same data by the same recipe")
    assert set(found.identity.manifest) == {"recipe", "inputs", "rejected_sha256"}
    assert found.recipe.rules == ()
    assert {change.key for change in found.recipe.places} == {"tokenizer", *(f"sources[{i}].path" for i in range(5))}
    assert [entry.kind for entry in found.inputs.changed] == ["renamed"] * 5
    assert found.inputs.changed[0].changes == (
        Change(
            key="path",
            old=f"{starter.as_posix()}/data/chat.jsonl",
            new=f"{new.parent.as_posix()}/other/data/chat.jsonl",
        ),
    )
    assert (found.documents, found.blocks, found.numbers, found.model) == ((), (), None, None)


def test_another_seed_is_the_same_documents_in_other_blocks(starter_cache, variant):
    new = variant("pack.seed=3")
    found = diff(starter_cache, new)
    assert not found.same
    assert found.identity.meaning == "the same documents in other blocks by another recipe: other rules"
    assert found.recipe.rules == (Change(key="pack.seed", old=0, new=3),)
    assert (found.recipe.places, found.inputs, found.documents, found.examples) == ((), None, (), ())
    assert [entry.split for entry in found.blocks] == ["train", "eval"]
    for entry in found.blocks:
        expected = counts(pieces(starter_cache, entry.split), pieces(new, entry.split))
        assert (entry.pieces_only_old, entry.pieces_only_new, entry.pieces_both) == expected
        assert expected[:2] == (0, 0)
        digests = [
            sorted(table(folder, "blocks", entry.split)["digest"].to_pylist()) for folder in (starter_cache, new)
        ]
        assert entry.same_blocks == (digests[0] == digests[1])
    assert {entry.same_blocks for entry in found.blocks} == {True, False}


def test_shorter_blocks_change_pieces_totals_and_what_is_cut_but_no_document(starter_cache, variant):
    new = variant("pack.block_len=64", "pack.overlong=split")
    found = diff(starter_cache, new)
    assert found.documents == ()
    assert [(change.key, change.old, change.new) for change in found.recipe.rules] == [
        ("pack.block_len", 512, 64),
        ("pack.overlong", "reject", "split"),
    ]
    for entry in found.blocks:
        expected = counts(pieces(starter_cache, entry.split), pieces(new, entry.split))
        assert (entry.pieces_only_old, entry.pieces_only_new, entry.pieces_both) == expected
        for folder, blocks, fill, block_len in (
            (starter_cache, entry.old_blocks, entry.old_fill, 512),
            (new, entry.new_blocks, entry.new_fill, 64),
        ):
            lengths = table(folder, "blocks", entry.split)["length"].to_pylist()
            assert (blocks, fill) == (len(lengths), sum(lengths) / (block_len * len(lengths)))
        assert not entry.same_blocks
    before, after = read_manifest(starter_cache).totals, read_manifest(new).totals
    assert before.cut == {}
    assert {change.key: (change.old, change.new) for change in found.numbers.cut} == {
        code: (None, to_json(cut)) for code, cut in after.cut.items()
    }
    told = {change.key: (change.old, change.new) for change in found.numbers.totals}
    assert told.pop("fill") == tuple(1 - totals.padding / totals.slots for totals in (before, after))
    assert told == {
        name: (getattr(before, name), getattr(after, name))
        for name in ("packed", "piece_starts", "blocks", "slots", "padding")
        if getattr(before, name) != getattr(after, name)
    }
    assert found.numbers.lengths == ()


def test_no_blocks_at_all_are_told(starter_cache, variant):
    found = diff(starter_cache, variant("pack.mode=none"))
    assert [(entry.split, entry.new_blocks, entry.new_fill) for entry in found.blocks] == [
        ("train", 0, 0.0),
        ("eval", 0, 0.0),
    ]
    assert all(entry.old_blocks > 0 == entry.pieces_both for entry in found.blocks)


def test_fewer_trained_turns_are_told_label_by_label(starter_cache, last_cache):
    new = last_cache
    found = diff(starter_cache, new, documents=4)
    assert found.identity.meaning == "other documents by another recipe: other rules"
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
        tokens = example.tokens
        old, other = (
            document(folder, "train", side.doc_id) for folder, side in ((starter_cache, tokens.old), (new, tokens.new))
        )
        assert old["input_ids"] == other["input_ids"]
        only = [i for i, pair in enumerate(zip(old["labels"], other["labels"], strict=True)) if pair[0] != pair[1]]
        assert all(other["labels"][i] == -100 for i in only)
        assert (tokens.what, tokens.at, tokens.same_text) == ("labels", only[0], True)
        assert (tokens.num_trained_old, tokens.num_trained_new, tokens.trained_new) == (len(only), 0, ())
        listed = [i for run in tokens.trained_old for i in range(run.start, run.start + run.num_tokens)]
        assert listed == only[: len(listed)] and listed
        assert (tokens.old.num_trained, tokens.new.num_trained) == (old["num_trained"], other["num_trained"])
        assert (tokens.old.length, tokens.old.num_differing, tokens.old.input_ids) == (old["length"], 0, ())


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
    tokens = example.tokens
    old, other = (
        document(folder, "train", side.doc_id) for folder, side in ((starter_cache, tokens.old), (new, tokens.new))
    )
    at = next(i for i, pair in enumerate(zip(old["input_ids"], other["input_ids"], strict=False)) if pair[0] != pair[1])
    assert (tokens.what, tokens.at, tokens.same_text) == ("ids", at, False)
    assert (tokens.old.num_differing, tokens.old.text, tokens.old.behind) == (0, "", "<|im_end|>")
    assert (tokens.new.text, tokens.new.behind, tokens.new.before) == (" And so on.", "<|im_end|>", tokens.old.before)
    assert list(tokens.new.input_ids) == other["input_ids"][at : at + tokens.new.num_differing]
    assert tokens.new.length == tokens.old.length + tokens.new.num_differing
    (changed,) = (entry for entry in found.inputs.changed if entry.kind == "changed")
    assert {change.key for change in changed.changes} == {"path", "sha256", "num_bytes"}
    assert found.identity.causes == ("inputs",)


def test_rows_that_moved_are_found_again(starter_cache, variant):
    def change(lines):
        longer_answer(9)(lines)
        del lines[4]
        lines.insert(1, chat("A row of its own?", "Yes, this one."))
        lines.insert(1, chat("Another row?", "Yes, two rows."))

    new = variant(edit=edited("chat.jsonl", change))
    found = diff(starter_cache, new, documents=10)
    (train,) = found.documents
    assert (train.only_old, train.only_new, train.both) == counts(
        doc_ids(starter_cache, "train"), doc_ids(new, "train")
    )
    assert (train.rows_changed, train.rows_only_old, train.rows_only_new) == (1, 1, 2)
    places = [tuple(side and side.row for side in (example.old, example.new)) for example in found.examples]
    assert places == [(9, 10), (4, None), (None, 1), (None, 2)]
    assert found.examples[0].tokens.new.text == " And so on."
    assert all(example.tokens is None for example in found.examples[1:])


def test_rows_rejected_in_one_cache_say_why(starter_cache, variant):
    new = variant(edit=edited("chat.jsonl", lambda lines: lines.__setitem__(7, "not json")))
    found = diff(starter_cache, new)
    (train,) = found.documents
    assert (train.only_old, train.only_new, train.rows_only_old) == (1, 0, 1)
    (example,) = found.examples
    assert (example.old.row, example.old.documents, example.old.code, example.tokens) == (7, 1, None, None)
    line = next(line for line in map(json.loads, (new / "rejected.jsonl").read_text().splitlines()) if line["row"] == 7)
    assert (example.new.documents, example.new.code, example.new.reason) == (0, "not_json", line["reason"])
    back = diff(new, starter_cache).examples
    assert [(example.old.code, example.new.code, example.new.row) for example in back] == [("not_json", None, 7)]
    before, after = (read_manifest(folder).totals.rejected["not_json"] for folder in (starter_cache, new))
    assert found.numbers.rejected == (Change(key="not_json", old=before, new=after),)
    assert after == before + 1


def test_an_appended_file_only_adds(starter, starter_cache, tmp_path):
    rows = tmp_path / "more.jsonl"
    rows.write_text("".join(f"{chat(f'What is {i}?', f'It is {i}.')}\n" for i in range(12)))
    recipe = to_json(load_recipe(starter / "recipe.yaml"))
    recipe["sources"].append({"path": rows.as_posix()})
    new = tmp_path / "cache"
    build(make_recipe(recipe), new, jobs=1)
    found = diff(starter_cache, new)
    assert (found.inputs.num_same, found.inputs.reordered) == (5, False)
    assert [(entry.kind, entry.path, entry.num_rows) for entry in found.inputs.changed] == [
        ("added", rows.as_posix(), 12)
    ]
    (train,) = found.documents
    assert (train.only_old, train.only_new, train.both) == (0, 12, doc_ids(starter_cache, "train").total())
    assert [(example.old, example.new.row) for example in found.examples] == [(None, 0), (None, 1), (None, 2)]
    assert [change.key for change in found.recipe.rules] == ["sources[5]"]
    assert found.identity.causes == ("inputs",)
    removed = diff(new, starter_cache)
    assert [(entry.kind, entry.path) for entry in removed.inputs.changed] == [("removed", rows.as_posix())]
    assert (removed.documents[0].only_old, removed.documents[0].only_new) == (12, 0)


def test_inputs_in_another_order_hold_the_same_documents(starter, starter_cache, tmp_path):
    recipe = to_json(load_recipe(starter / "recipe.yaml"))
    recipe["sources"].insert(0, recipe["sources"].pop(2))
    build(make_recipe(recipe), tmp_path / "cache", jobs=1)
    found = diff(starter_cache, tmp_path / "cache")
    assert (found.inputs.reordered, found.inputs.num_same, found.inputs.changed) == (True, 5, ())
    (train,) = found.documents
    assert (train.only_old, train.only_new, train.both) == (0, 0, doc_ids(starter_cache, "train").total())
    assert found.examples == ()
    assert found.identity.meaning.startswith("the same documents in another order")
    assert found.recipe is None


def test_a_split_that_only_one_cache_has_is_counted(starter_cache, variant):
    new = variant("sources.split=train")
    found = diff(starter_cache, new, documents=1)
    by_split = {entry.split: entry for entry in found.documents}
    eval_ids, train_ids = doc_ids(starter_cache, "eval"), doc_ids(starter_cache, "train")
    assert (by_split["eval"].only_old, by_split["eval"].only_new, by_split["eval"].both) == (eval_ids.total(), 0, 0)
    train = by_split["train"]
    assert (train.only_old, train.only_new, train.both) == counts(train_ids, doc_ids(new, "train"))
    (changed,) = found.inputs.changed
    assert changed.changes == (Change(key="split", old="eval", new="train"),)
    assert [(entry.split, entry.new) for entry in found.numbers.lengths if entry.new is None] == [("eval", None)]
    assert len(found.examples) == 1


def test_other_partitions_are_the_same_data_by_another_recipe(starter_cache, variant):
    found = diff(starter_cache, variant("partition_bytes=10KiB"))
    assert not found.same
    assert found.identity.meaning == "the same data by another recipe: other rules"
    assert (found.documents, found.blocks, found.numbers) == ((), (), None)


def test_a_changed_template_is_shown_line_by_line(starter, starter_cache, variant):
    def edit(place):
        path = place / "tokenizer" / "chat_template.jinja"
        path.write_text(
            path.read_text().replace(r"'<think>\n'", "'<think>'").replace("\n{%- if add_gen", "\n\n{%- if add_gen")
        )

    new = variant(edit=edit)
    found = diff(starter_cache, new)
    (template,) = found.model.templates
    old, other = (
        (folder / "tokenizer" / "chat_template.jinja").read_text().split("\n")
        for folder in (starter, new.parent / "other")
    )
    assert list(template.lines) == [line.rstrip("\n") for line in difflib.unified_diff(old, other, n=2)][2:]
    assert (template.name, template.num_added, template.num_removed) == ("chat_template.jinja", 2, 1)
    assert [change.key for change in found.model.files] == ["chat_template.jinja"]
    assert (found.model.vocabulary, found.model.added_tokens, found.model.settings, found.model.ids) == (
        None,
        (),
        (),
        (),
    )
    assert found.identity.causes == ("model",)
    (train,) = found.documents
    assert (train.only_old, train.only_new, train.both) == counts(
        doc_ids(starter_cache, "train"), doc_ids(new, "train")
    )
    assert {example.old.input.rsplit("/", 1)[1] for example in found.examples} == {"reasoning.jsonl"}
    for example in found.examples:
        tokens = example.tokens
        before, after = (
            document(folder, "train", side.doc_id)["input_ids"]
            for folder, side in ((starter_cache, tokens.old), (new, tokens.new))
        )
        end, other_end = tokens.at + tokens.old.num_differing, tokens.at + tokens.new.num_differing
        assert before[: tokens.at] == after[: tokens.at] and before[tokens.at] != after[tokens.at]
        assert before[end : end + 4] == after[other_end : other_end + 4]
        assert tokens.differs_again == (before[end:] != after[other_end:])
        assert list(tokens.old.input_ids) == before[tokens.at : end][:24]
        assert tokens.old.before.endswith("assistant\n<think>") and tokens.old.text == "\n"
    assert {example.tokens.differs_again for example in found.examples} == {True, False}


def test_every_change_of_a_tokenizer_is_named(starter, starter_cache, variant):
    seen = {}

    def edit(place):
        path = place / "tokenizer" / "tokenizer.json"
        definition = json.loads(path.read_text("utf-8"))
        vocabulary = definition["model"]["vocab"]
        seen["pieces"] = first, second = "Ġthe", "Ġof"
        seen["ids"] = vocabulary[first], vocabulary[second]
        vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
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
    model = found.model
    assert [change.key for change in model.files] == [
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert model.templates == ()
    words = model.vocabulary
    assert (words.old_size, words.new_size) == (4089, 4089)
    assert (words.num_added, words.num_removed, words.num_moved, words.num_scores) == (0, 0, 2, 0)
    ids, names = seen["ids"], seen["pieces"]
    moved = sorted([(ids[0], names[0], ids[1]), (ids[1], names[1], ids[0])])
    assert [(entry.old_id, entry.piece, entry.new_id) for entry in words.entries] == moved
    assert (words.merges_added, words.merges_removed, words.first_merge) == (0, 1, seen["merges"] - 1)
    assert {
        change.key: (change.old and change.old["lstrip"], change.new["lstrip"]) for change in model.added_tokens
    } == {
        "<|endoftext|>": (False, True),
        "<|extra|>": (None, False),
    }
    assert {change.key: (change.old, change.new) for change in model.settings} == {
        "tokenizer.json normalizer": (None, {"type": "NFC"}),
        "generation_config.json eos_token_id": ([4091, 4089], [4091]),
        "tokenizer_config.json pad_token": ("<|endoftext|>", "<|extra|>"),
    }
    assert {change.key: (change.old, change.new) for change in model.ids} == {
        "vocab_size": (4096, 4097),
        "pad_id": (4089, 4096),
        "stop_ids": ([4089, 4091], [4091]),
        "control_ids": ([4089, 4090, 4091], [4089, 4090, 4091, 4096]),
    }
    assert found.examples
    assert all(example.tokens.same_text for example in found.examples)


def test_other_weights_are_told_where_ids_and_labels_are_the_same(starter, tmp_path):
    for name, weight in (("old", 0.5), ("new", 0.25)):
        rows = tmp_path / name / "rows.jsonl"
        rows.parent.mkdir()
        rows.write_text(f"{chat('One?', 'Two.', weight=weight)}\n{chat('Three?', 'Four.')}\n")
        recipe = {"sources": [{"path": str(rows)}], "tokenizer": str(starter / "tokenizer"), "pack": {"block_len": 64}}
        build(make_recipe(recipe), tmp_path / f"{name}-cache", jobs=1)
    found = diff(tmp_path / "old-cache", tmp_path / "new-cache")
    (example,) = found.examples
    row = document(tmp_path / "old-cache", "train", example.tokens.old.doc_id)
    assert (example.tokens.what, example.tokens.at) == ("weights", row["loss_weights"].index(0.5))
    assert (example.tokens.trained_old, example.tokens.trained_new) == ((), ())


def test_versions_are_told_apart_from_what_decides_documents(starter_cache, tmp_path):
    copy = Path(shutil.copytree(starter_cache, tmp_path / "copy"))
    manifest = read_manifest(copy)
    versions = {**manifest.versions, "pyarrow": "0"}
    write_manifest(copy, msgspec.structs.replace(manifest, versions=versions, rules_version=99))
    found = diff(starter_cache, copy)
    assert found.software.engine == (Change(key="rules_version", old=manifest.rules_version, new=99),)
    assert found.software.versions == (Change(key="pyarrow", old=manifest.versions["pyarrow"], new="0"),)
    assert (found.same, found.identity.causes) == (True, ("engine",))  # the manifest's word for its fingerprints counts


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


def test_damage_of_what_is_shown_is_told_with_the_file(starter_cache, variant):
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
    ids = np.array(document(new, "train", example.tokens.new.doc_id)["input_ids"], np.int32).tobytes()
    content = (new / shard.path).read_bytes()
    place = content.index(ids)
    (new / shard.path).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(CheckError, match="expected digest"):
        diff(starter_cache, new, documents=1)


# The parts by themselves


@given(st.lists(st.integers(-3, 3)), st.lists(st.integers(-3, 3)))
def test_multisets_are_counted_as_a_counter_counts_them(old, new):
    arrays = [np.array(old, np.int64)], [np.array(new, np.int64)]
    assert count_common(*arrays) == counts(Counter(old), Counter(new))
    matched_old, matched_new = match_rows(*arrays)
    assert Counter(np.array(old)[matched_old].tolist()) == Counter(np.array(new)[matched_new].tolist())
    assert Counter(np.array(old)[~matched_old].tolist()) == Counter(old) - Counter(new)
    assert Counter(np.array(new)[~matched_new].tolist()) == Counter(new) - Counter(old)
    assert occurrences(arrays[0][0]).tolist() == [old[:i].count(value) for i, value in enumerate(old)]


ROWS = st.lists(st.tuples(st.sampled_from([-(2**63), 0, 2**63 - 1]), st.integers(0, 2), st.integers(0, 2)))


@given(ROWS, ROWS)
def test_rows_of_several_columns_are_equal_only_as_a_whole(old, new):
    columns = [[np.array([row[i] for row in rows], np.int64) for i in range(3)] for rows in (old, new)]
    assert count_common(*columns) == counts(Counter(old), Counter(new))


DOCUMENTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 5)), max_size=20, unique_by=lambda entry: entry[:2]
).map(sorted)
"""(input, row, doc_id)"""


@given(
    DOCUMENTS, DOCUMENTS, st.permutations([0, 1, 2]), st.lists(st.booleans(), min_size=3, max_size=3), st.integers(0, 3)
)
def test_rows_that_differ_are_told_once_and_only_they(old, new, order, unchanged, num_pairs):
    pairs = InputPairs(
        old=np.arange(num_pairs),
        new=np.array(order[:num_pairs], np.int64),
        unchanged=np.array(unchanged[:num_pairs], np.bool_),
    )
    sides = []
    for rows, inputs in ((old, pairs.old), (new, pairs.new)):
        pair_of = {int(number): place for place, number in enumerate(inputs)}
        columns = [np.array([row[i] for row in rows], np.int64) for i in range(3)]
        pair = np.array([pair_of.get(row[0], -1) for row in rows], np.int64)
        sides.append(Side(source=columns[0], row=columns[1], doc_id=columns[2], pair=pair))
    comparison = DocumentComparison("train", *sides, pairs)
    report = comparison.report()
    ids = [[entry[2] for entry in rows] for rows in (old, new)]
    if report is None:
        assert [entry[1:] for entry in old] == [entry[1:] for entry in new]
        return
    assert (report.only_old, report.only_new, report.both) == counts(*map(Counter, ids))
    shown = comparison.rows(100)
    assert len(shown) == report.rows_changed + report.rows_only_old + report.rows_only_new
    assert sum(row.num_old for row in shown) == report.only_old
    assert sum(row.num_new for row in shown) == report.only_new
    for row in shown:
        assert row.num_old or row.num_new
        for number, rows, place in (
            (row.document_old, old, (row.source_old, row.row_old)),
            (row.document_new, new, (row.source_new, row.row_new)),
        ):
            assert number is None or rows[number][:2] == place
    assert comparison.rows(1) == shown[:1]


def test_vocabularies_of_all_kinds_are_compared():
    old = {"vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.0], ["c", -3.0]]}
    new = {"vocab": [["<unk>", 0.0], ["a", -1.5], ["d", -2.0], ["b", -2.0], ["e", -9.0]]}
    found = compare_vocabularies(old, new)
    assert (found.old_size, found.new_size, found.num_scores, found.first_merge) == (4, 5, 1, None)
    assert (found.num_added, found.num_removed, found.num_moved) == (2, 1, 1)
    assert [(entry.piece, entry.old_id, entry.new_id) for entry in found.entries] == [
        ("d", None, 2),
        ("e", None, 4),
        ("c", 3, None),
        ("b", 2, 3),
    ]
    assert compare_vocabularies(old, old) is None
    as_text = {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b", "ab a"]}
    as_pairs = {"vocab": {"ab": 2, "a": 0, "b": 1}, "merges": [["a", "b"], ["ab", "a"]]}
    assert compare_vocabularies(as_text, as_pairs) is None
    turned = compare_vocabularies(as_text, {**as_text, "merges": ["ab a", "a b"]})
    assert (turned.merges_added, turned.merges_removed, turned.first_merge, turned.entries) == (0, 0, 0, ())
    longer = compare_vocabularies(as_text, {**as_text, "merges": ["a b", "ab a", "b b"]})
    assert (longer.merges_added, longer.merges_removed, longer.first_merge) == (1, 0, 2)


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


def test_recipes_are_compared_with_their_defaults_and_sources_by_path():
    old = {"sources": [{"path": "a", "limit": 5}, {"path": "b"}, {"path": "c"}], "template": {"kwargs": {}}}
    new = {
        "sources": [{"path": "b", "split": "train"}, {"path": "a"}],
        "template": {"kwargs": {"think": True}},
        "pack": {"seed": 0},
        "tokenizer": "there",
    }
    found = compare_recipes(old, new)
    assert found.rules == (
        Change(key="template.kwargs.think", old=None, new=True),
        Change(key="sources[1].limit", old=5, new=None),
        Change(key="sources[2]", old={"path": "c"}, new=None),
    )
    assert found.places == (Change(key="tokenizer", old=None, new="there"),)
    moved = compare_recipes({"sources": [{"path": "x/a"}]}, {"sources": [{"path": "y/a", "limit": 1}]})
    assert moved.places == (Change(key="sources[0].path", old="x/a", new="y/a"),)
    assert moved.rules == (Change(key="sources[0].limit", old=None, new=1),)
    assert compare_recipes({}, to_json(make_recipe({}))) is None


@given(st.lists(st.booleans()))
def test_runs_cover_what_is_marked(mask):
    runs = runs_of(np.array(mask, np.bool_))
    assert [i for start, end in runs for i in range(start, end)] == [i for i, marked in enumerate(mask) if marked]
    assert all(a[1] < b[0] for a, b in pairwise(runs))


@given(st.lists(st.integers(0, 2), max_size=30), st.lists(st.integers(0, 2), max_size=30))
def test_a_difference_ends_where_four_tokens_or_all_the_rest_are_the_same(old, new):
    common = common_start(np.array(old, np.int32), np.array(new, np.int32))
    old, new = old[common:], new[common:]
    a, b = first_difference(np.array(old, np.int32), np.array(new, np.int32))
    assert old[a : a + 4] == new[b : b + 4]
    assert old[a:] == new[b:] or len(old[a : a + 4]) == 4
    assert (a or b) or old == new == []


def test_known_differences():
    known = (([1, 2, 3, 4, 5, 6], [7, 3, 4, 5, 6, 8], (2, 1)), ([3, 4, 9], [7, 9], (2, 1)), ([], [5, 6], (0, 2)))
    for old, new, expected in known:
        assert first_difference(np.array(old, np.int32), np.array(new, np.int32)) == expected


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)))
def test_common_starts_are_the_longest(old, new):
    common = common_start(np.array(old, np.int32), np.array(new, np.int32))
    assert old[:common] == new[:common]
    assert common == min(len(old), len(new)) or old[common] != new[common]
