"""Whole builds of rows that bring their tokens. The great test: a cache's own documents, as rows, are that cache."""

import json
from dataclasses import replace

import numpy as np
import pytest
from packed_again import packed_again
from packed_caches import check_packing, table
from token_rows import write_token_rows

from packer.audit.preview import preview
from packer.audit.verify import verify
from packer.audit.view import view_row
from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe, make_recipe, to_json
from packer.store.cache import Cache
from packer.supervise.supervisor import PretokenizedSupervisor


def manifest_of(cache):
    return json.loads((cache / "manifest.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def of_tokens(starter, starter_cache, tmp_path_factory):
    """The starter cache built again from its documents, and the folder of the rows."""
    folder = tmp_path_factory.mktemp("tokens")
    values = to_json(load_recipe(starter / "recipe.yaml"))
    files = write_token_rows(starter_cache, folder / "rows")
    values["sources"] = [{"path": path.as_posix(), "split": split} for path, split in files]
    build(make_recipe(values), folder / "cache", jobs=1)
    return folder / "cache", make_recipe(values)


def test_the_documents_of_a_cache_as_rows_of_tokens_are_the_same_cache(starter_cache, of_tokens):
    cache, _ = of_tokens
    was, now = manifest_of(starter_cache), manifest_of(cache)
    assert {entry["schema"] for entry in now["inputs"]} == {"tokens"}
    assert now["content_fingerprint"] == was["content_fingerprint"]
    same = ("rows", "kept", "documents", "tokens", "trained", "blocks", "slots", "padding")
    assert {key: now["totals"][key] for key in same} == {key: was["totals"][key] for key in same}
    for split in ("train", "eval"):
        ids = [document["doc_id"] for document in table(starter_cache, "documents", split)]
        assert len(ids) > 20 and ids == [document["doc_id"] for document in table(cache, "documents", split)]
    assert check_packing(cache)[0] == now["totals"]["blocks"]


def test_a_mask_says_what_labels_say(starter, starter_cache, of_tokens, tmp_path):
    values = to_json(load_recipe(starter / "recipe.yaml"))
    files = write_token_rows(starter_cache, tmp_path / "rows", mark="loss_mask")
    values["sources"] = [{"path": path.as_posix(), "split": split} for path, split in files]
    values["pack"]["mode"] = "none"
    build(make_recipe(values), tmp_path / "cache", jobs=1)
    for split in ("train", "eval"):
        documents = table(tmp_path / "cache", "documents", split)
        assert len(documents) > 20 and documents == table(of_tokens[0], "documents", split)


def test_such_a_cache_is_verified_read_again_and_shown(of_tokens):
    cache, recipe = of_tokens
    report = verify(cache, sources=["/"], reencode=True, threads=1)
    assert report.ok, report.findings
    with Cache.open(cache) as opened:
        row = view_row(opened, recipe.sources[0].path, 0)
        assert opened.manifest.totals.merged == 0
    assert any(run.kind == "trained" and run.message is None for run in row.documents[0].runs)
    shown = preview(recipe, rows=1)
    assert [each.schema for each in shown.inputs] == ["tokens"] * 5 and all(each.view.documents for each in shown.rows)


def test_making_documents_again_finds_a_document_that_is_not_its_row(starter, tmp_path, monkeypatch):
    rows = [{"input_ids": [5, 6, 7, 8], "labels": [-100, 6, 7, 8]}, {"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}]
    right = PretokenizedSupervisor.supervise

    def wrong(self, samples):
        documents, rejections = right(self, samples)
        return replace(documents, run_end=documents.run_end - np.array([0, 1], np.int32)), rejections

    monkeypatch.setattr(PretokenizedSupervisor, "supervise", wrong)
    build(rows, tmp_path / "cache", tokenizer=starter / "tokenizer", jobs=1, progress=None)
    monkeypatch.undo()
    assert verify(tmp_path / "cache").ok
    (finding,) = verify(tmp_path / "cache", sources=["/"], reencode=True, threads=1).findings
    assert (finding.what, finding.row) == ("re-encoded", 1) and finding.found.endswith(", with other values")


def test_chats_and_tokens_go_into_one_build_and_are_packed_again(starter, of_tokens, tmp_path):
    values = to_json(of_tokens[1])
    values["sources"] = [
        {"path": (starter / "data" / "chat.jsonl").as_posix()},
        {"path": values["sources"][1]["path"]},
        {"path": values["sources"][2]["path"], "columns": {"loss_mask": None}},
    ]
    build(make_recipe(values), tmp_path / "cache", jobs=1)
    manifest = manifest_of(tmp_path / "cache")
    assert [entry["schema"] for entry in manifest["inputs"]] == ["messages", "tokens", "tokens"]
    assert check_packing(tmp_path / "cache")[0] > 1
    packed_again(tmp_path / "cache", tmp_path / "packed", {"block_len": 1024})
    assert check_packing(tmp_path / "packed")[0] > 0


def test_a_source_of_tokens_needs_no_template(starter, tmp_path):
    tokenizer = starter / "tokenizer" / "tokenizer.json"
    rows = [{"input_ids": [5, 6, 7], "loss_mask": [0, 1, 1]}]
    build(rows, tmp_path / "cache", tokenizer=tokenizer, pack={"block_len": 8}, jobs=1, progress=None)
    (document,) = table(tmp_path / "cache", "documents", "train")
    assert (document["input_ids"], document["labels"]) == ([5, 6, 7], [-100, 6, 7])
    assert document["spans"] == [{"message": 0, "start": 1, "end": 3}]
