"""An export holds exactly what the cache does, in the form its trainer reads, or it is refused."""

import errno
import hashlib
import json
import shutil
import signal

import pytest
from export import readers
from flipped_bits import flip
from preference_rows import built, long_pair, pair, rated, said
from processes import HANG_S, start
from task_pages import python_of

from packer.errors import BusyError, CheckError, InputError, StorageError, UsageError
from packer.export import run
from packer.export.run import Files, export
from packer.store.cache import Cache

SPLITS = ("train", "eval")


def test_datasets_documents_are_those_of_the_cache(starter_cache, tmp_path, monkeypatch):
    monkeypatch.setattr("packer.export.run._TOKENS", 64)  # documents of a window, longer ones alone
    export(starter_cache, tmp_path / "out", to="datasets")
    assert json.loads((tmp_path / "out/dataset_dict.json").read_text()) == {"splits": list(SPLITS)}
    for split in SPLITS:
        rows = readers.datasets_rows(tmp_path / "out" / split)
        expected = readers.cache_documents(starter_cache, split)
        assert [(row["input_ids"], row["labels"]) for row in rows] == expected and expected
        assert {tuple(row) for row in rows} == {("input_ids", "attention_mask", "labels")}
        assert all(row["attention_mask"] == [1] * len(row["input_ids"]) for row in rows)


def test_skyrl_documents_have_a_mask_and_nothing_else(starter_cache, tmp_path):
    """`skyrl.train.dataset.pretokenized` (commit a9564572 of SkyRL) reads both columns, the mask unshifted."""
    found = export(starter_cache, tmp_path / "out", to="skyrl")
    assert found.notes[0].startswith("name the folder of a split")
    for each in found.splits:
        rows = readers.datasets_rows(tmp_path / "out" / each.split)
        documents = readers.cache_documents(starter_cache, each.split)
        expected = [{"input_ids": ids, "loss_mask": [int(label != -100) for label in row]} for ids, row in documents]
        assert rows == expected and sum(sum(row["loss_mask"]) for row in rows) == each.num_trained > 0
    assert json.loads((tmp_path / "out/export.json").read_text())["conventions"]["loss_mask"].startswith("unshifted")


def test_the_class_of_the_page_gives_verl_the_tokens_of_documents(starter_cache, tmp_path):
    """As `SFTTensorCollator` and `sft_loss` (commit 1dda039b of verl) take them: end to end, the mask rolled by one."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("datasets")
    export(starter_cache, tmp_path / "out", to="skyrl", split="train")
    (code,) = python_of("export.md")
    names = {}
    exec(code, names)
    rows = names["Documents"](parquet_files=str(tmp_path / "out"), tokenizer=None, config={}, processor=None)
    documents = readers.cache_documents(starter_cache, "train")
    assert len(rows) == len(documents) and len(names["Documents"](str(tmp_path / "out"), max_samples=3)) == 3
    items = [rows[number] for number in range(len(rows))]
    assert all({value.dtype for value in item.values()} == {torch.int64} for item in items)
    assert [item["position_ids"].tolist() for item in items] == [[*range(len(ids))] for ids, _ in documents]
    flat = {name: torch.cat([item[name] for item in items]) for name in ("input_ids", "loss_mask")}
    trained = torch.roll(flat["input_ids"], -1)[torch.roll(flat["loss_mask"], -1).bool()]
    assert trained.tolist() == [label for _, labels in documents for label in labels if label != -100]


def test_datasets_blocks_are_those_of_the_cache(starter_cache, tmp_path):
    found = export(starter_cache, tmp_path / "out", to="datasets", unit="blocks", split="train")
    rows = readers.datasets_rows(tmp_path / "out")
    expected = readers.cache_blocks(starter_cache, "train")
    assert found.splits[0].num_tokens == sum(row["length"] for row in expected), "without padding"
    names = ("input_ids", "labels", "position_ids", "seq_lengths")
    assert rows == [{name: row[name] for name in names} for row in expected] and rows


def test_datasets_loads_the_folder_as_it_is(starter_cache, tmp_path):
    datasets = pytest.importorskip("datasets")
    export(starter_cache, tmp_path / "all", to="datasets")
    export(starter_cache, tmp_path / "one", to="datasets", unit="blocks", split="eval")
    both, one = datasets.load_from_disk(tmp_path / "all"), datasets.load_from_disk(tmp_path / "one")
    assert list(both) == list(SPLITS)
    for split in SPLITS:
        expected = readers.cache_documents(starter_cache, split)
        assert [(row["input_ids"], row["labels"]) for row in both[split]] == expected
        assert both[split].features["labels"] == datasets.List(datasets.Value("int32"))
        assert both[split].features["attention_mask"] == datasets.List(datasets.Value("int8"))
    assert one.num_rows == len(readers.cache_blocks(starter_cache, "eval"))
    assert one[0]["seq_lengths"] == readers.cache_blocks(starter_cache, "eval")[0]["seq_lengths"]
    assert str(one.split) == "eval"


def test_the_same_cache_gives_the_same_bytes_and_the_record_has_their_digests(starter_cache, tmp_path):
    for unit in ("documents", "blocks"):
        first = export(starter_cache, tmp_path / f"{unit}1", to="datasets", unit=unit)
        export(starter_cache, tmp_path / f"{unit}2", to="datasets", unit=unit)
        files = sorted(path.relative_to(first.folder) for path in first.folder.rglob("*") if path.is_file())
        assert len(files) == len(first.files) + 1
        for path in files:
            assert (tmp_path / f"{unit}1" / path).read_bytes() == (tmp_path / f"{unit}2" / path).read_bytes(), path
        record = json.loads((first.folder / "export.json").read_text())
        assert record["source"]["fingerprint"] == Cache.open(starter_cache).fingerprint
        for file in record["files"]:
            assert hashlib.sha256((first.folder / file["path"]).read_bytes()).hexdigest() == file["sha256"]


WRITES = """
import os, signal, sys
from pathlib import Path
from packer.export.run import appearing
with appearing(Path("cache"), Path(sys.argv[1])) as folder:
    (folder / "part").write_text("half")
    print("writing", flush=True)
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_is_there_already_is_never_replaced(starter_cache, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("kept")
    for place in (mine, starter_cache):
        with pytest.raises(UsageError, match=r"already exists|is inside the cache"):
            export(starter_cache, place, to="datasets")
    assert (mine / "thesis.txt").read_text() == "kept"
    export(starter_cache, tmp_path / "out", to="datasets")
    with pytest.raises(UsageError, match="already exists"):
        export(starter_cache, tmp_path / "out", to="datasets", split="eval")
    with pytest.raises(UsageError, match="is inside the cache"):
        export(starter_cache, starter_cache / "out", to="datasets")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out"]


def test_an_export_that_is_killed_leaves_nothing_at_its_place_and_a_live_one_is_alone(starter_cache, tmp_path):
    def working_folders():
        return [path.name for path in tmp_path.iterdir() if path.name.startswith(".tmp-packer-")]

    with start(WRITES, tmp_path / "out", interactive=True) as process:
        assert process.stdout.readline() == "writing\n"
        live = working_folders()
        with pytest.raises(BusyError, match="another process is writing"):
            export(starter_cache, tmp_path / "out", to="datasets")
        export(starter_cache, tmp_path / "other", to="datasets")
        assert working_folders() == live and (tmp_path / live[0] / "new" / "part").exists()
        process.communicate(timeout=HANG_S)
    assert process.returncode == -signal.SIGKILL
    assert working_folders() == live and not (tmp_path / "out").exists()
    export(starter_cache, tmp_path / "out", to="datasets", unit="blocks")
    assert working_folders() == [] and (tmp_path / "out" / "export.json").exists()


def test_what_somebody_put_at_the_place_meanwhile_is_not_lost(starter_cache, tmp_path, monkeypatch):
    def meanwhile(self, name, *rest):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "own.txt").write_text("precious")
        return write(self, name, *rest)

    write = run.Files.write
    monkeypatch.setattr(run.Files, "write", meanwhile)
    with pytest.raises(UsageError, match="already exists"):
        export(starter_cache, tmp_path / "out", to="datasets")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["own.txt"]


def test_a_damaged_row_ends_the_export_and_leaves_nothing(starter_cache, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(starter_cache, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    for kind, unit in (("documents", "documents"), ("blocks", "blocks")):
        shard = next(s for s in manifest["shards"] if s["kind"] == kind)
        flip(copy / shard["path"])
        with pytest.raises(CheckError):
            export(copy, tmp_path / "out", to="datasets", unit=unit)
        assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_a_disk_that_refuses_leaves_nothing(starter_cache, tmp_path, monkeypatch):
    def full(self):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Files, "written", full)
    with pytest.raises(StorageError, match="out: full"):
        export(starter_cache, tmp_path / "out", to="datasets")
    assert not [*tmp_path.iterdir()]


def test_what_is_not_there_is_refused_with_a_way_out(starter_cache, tmp_path):
    with pytest.raises(UsageError, match="no documents of split 'test'") as caught:
        export(starter_cache, tmp_path / "out", to="datasets", split="test")
    assert caught.value.hint
    with pytest.raises(InputError):
        export(tmp_path, tmp_path / "out", to="datasets")
    assert not (tmp_path / "out").exists()


# Preference data


@pytest.fixture(scope="module")
def pairs(starter, tmp_path_factory):
    folder, margin = tmp_path_factory.mktemp("pairs") / "cache", {"margin": {"kind": "float32"}}
    return built(folder, [pair(n) for n in range(9)], starter / "tokenizer", document_columns=margin)


@pytest.fixture(scope="module")
def answers(starter, tmp_path_factory):
    return built(tmp_path_factory.mktemp("answers") / "cache", [rated(n) for n in range(9)], starter / "tokenizer")


def test_pairs_have_the_columns_of_documents_for_each_side(pairs, tmp_path, monkeypatch):
    monkeypatch.setattr("packer.export.run._TOKENS", 64)  # windows that would end between the sides of a pair
    found = export(pairs, tmp_path / "out", to="datasets")
    rows = readers.datasets_rows(tmp_path / "out")
    expected = readers.cache_documents(pairs, "train")
    assert [(row["chosen_input_ids"], row["chosen_labels"]) for row in rows] == expected[0::2]
    assert [(row["rejected_input_ids"], row["rejected_labels"]) for row in rows] == expected[1::2]
    assert [(row["chosen_margin"], row["rejected_margin"]) for row in rows] == [(n / 2, n / 2) for n in range(9)]
    for row in rows:
        assert row["chosen_attention_mask"] == [1] * len(row["chosen_labels"])
        assert [row[name] for name in ("images", "videos", "audios")] == [None] * 3  # what LLaMA-Factory asks for
    assert found.splits[0].details["pairs"] == 9 == len(rows)


def test_rated_answers_say_whether_they_are_desirable(answers, tmp_path, monkeypatch):
    monkeypatch.setattr("packer.export.run._TOKENS", 64)  # several windows
    export(answers, tmp_path / "out", to="datasets")
    expected, labels = readers.cache_documents(answers, "train"), [n % 3 > 0 for n in range(9)]
    rows = readers.datasets_rows(tmp_path / "out")
    assert [(row["input_ids"], row["labels"], row["kto_tags"]) for row in rows] == [
        (*document, label) for document, label in zip(expected, labels, strict=True)
    ]


def test_preference_data_is_refused_where_it_would_be_imitated(pairs, starter, starter_cache, tmp_path):
    with pytest.raises(UsageError, match="has no blocks"):
        export(pairs, tmp_path / "out", to="datasets", unit="blocks")
    several = built(tmp_path / "several", [long_pair(n) for n in range(3)] + [pair(4)], starter / "tokenizer")
    export(several, tmp_path / "out", to="datasets")


@pytest.mark.parametrize("empty", ["train", "eval"])
@pytest.mark.parametrize("row", [pair, rated])
def test_a_split_without_documents_is_exported_as_what_the_cache_holds(row, empty, starter, tmp_path):
    """It has no sides that show it, and a cache whose first split is such one would be exported as examples."""
    full = next(split for split in SPLITS if split != empty)
    nothing, schema = {"chosen": [], "rejected": []}, "preference"
    if row is rated:
        nothing, schema = {"prompt": [], "completion": [], "label": True}, "rated"
    rows = {split: [row(n) for n in range(6)] if split == full else [nothing] for split in SPLITS}
    cache = built(tmp_path / "cache", rows, starter / "tokenizer", schema=schema)
    found = export(cache, tmp_path / "out", to="datasets")
    assert [each.num_rows for each in found.splits] == [12 // (1 + (row is rated)) * (each == full) for each in SPLITS]
    columns_of = [{*each.details["columns"]} for each in found.splits]
    assert columns_of[0] == columns_of[1]


@pytest.mark.parametrize("name", ["dataset_dict.json", "export.json"])
def test_a_split_with_the_name_of_a_file_of_the_export_is_named(name, starter, tmp_path):
    rows = [{"messages": [said("user", "hi"), said("assistant", "well")]}]
    built(tmp_path / "cache", {name: rows, "train": rows}, starter / "tokenizer")
    with pytest.raises(UsageError, match=f"have the same name: {name}"):
        export(tmp_path / "cache", tmp_path / "out", to="datasets")
    assert not (tmp_path / "out").exists()
