"""Other forms than save_to_disk, and files that are not what they say: an error with a name, never a traceback."""

import json
import random
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packed_again import packed_again
from train_starter_tokenizer import FILES

from packer.audit import foreign
from packer.errors import InputError
from packer.export.run import export
from packer.store.manifest import read_manifest


def audit_foreign(path, **asked):
    return foreign.audit_foreign(path, tokenizer=FILES / "tokenizer", **asked)


@pytest.fixture(scope="module")
def exported(starter_cache, tmp_path_factory):
    """A folder of save_to_disk."""
    folder = tmp_path_factory.mktemp("exported") / "out"
    export(starter_cache, folder, to="datasets", split="train")
    return folder


CACHES = {"isolated": None, "stream": {"mode": "stream", "block_len": 128}}
CASES = [("isolated", "documents"), *((mode, "blocks") for mode in CACHES)]


@pytest.fixture(scope="module")
def caches(starter_cache, tmp_path_factory):
    """The starter's documents in blocks of every mode."""
    made = {}
    for mode, changes in CACHES.items():
        made[mode] = starter_cache if changes is None else tmp_path_factory.mktemp("repacked") / "cache"
        if changes is not None:
            packed_again(starter_cache, made[mode], changes)
    return made


@pytest.mark.parametrize(("mode", "unit"), CASES)
def test_whatever_export_writes_is_taken_as_a_folder_and_has_no_finding(caches, tmp_path, mode, unit):
    out = export(caches[mode], tmp_path / "out", to="datasets", unit=unit)
    report = audit_foreign(out.folder, sample=None)
    # Blocks of one stream are cut where a block is full, and that is said; some hold the middle of an answer alone.
    cut = {(code, "warning") for code in ("no_terminator", "no_header")} if mode == "stream" else set()
    assert {(each.code, each.level) for each in report.findings if each.code != "not_checked"} == cut
    assert report.trained == sum(split.num_trained for split in out.splits) > 0
    padding = read_manifest(caches[mode]).totals.padding if unit == "blocks" else 0
    assert report.tokens_looked_at == sum(split.num_tokens for split in out.splits) + padding
    assert report.num_rows == report.rows_looked_at == sum(split.num_rows for split in out.splits)


@pytest.mark.parametrize("kind", ["parquet", "arrow stream", "arrow file", "folder of parquet", "splits of any name"])
def test_rows_of_files_are_those_of_the_folder_they_were_in(starter_cache, tmp_path, kind):
    export(starter_cache, tmp_path / "out", to="datasets", split="train")
    (stream,) = (tmp_path / "out").glob("*.arrow")
    table = pa.ipc.open_stream(stream).read_all()
    place = tmp_path / ("rows.parquet" if kind == "parquet" else "rows.arrow")
    if kind == "parquet":
        pq.write_table(table, place, row_group_size=7)
    elif kind == "arrow stream":
        write_table(table, place)
    elif kind == "arrow file":
        with pa.ipc.new_file(place, table.schema) as writer:
            writer.write_table(table)
    elif kind == "folder of parquet":
        place = tmp_path / "folder"
        (place / "data").mkdir(parents=True)
        for number, start in enumerate(range(0, len(table), 40)):
            pq.write_table(table.slice(start, 40), place / f"data/train-{number}.parquet")
    else:
        place = tmp_path / "dict"
        shutil.copytree(tmp_path / "out", place / "train-sft")
        (place / "dataset_dict.json").write_text('{"splits": ["train-sft"]}')
    whole, found = (audit_foreign(each, sample=None) for each in (tmp_path / "out", place))
    assert (found.num_rows, found.tokens_looked_at, found.trained, found.findings) == (
        len(table), whole.tokens_looked_at, whole.trained, whole.findings,
    )  # fmt: skip
    assert {each.level for each in found.findings} <= {"note"}
    some = audit_foreign(place, sample=5)
    assert some.rows_looked_at == 5 and some.columns == tuple(table.column_names)


def test_a_mask_of_weights_trains_what_has_one(tmp_path):
    pq.write_table(pa.table({"input_ids": [[5, 6, 7]], "loss_mask": [[0.0, 0.5, 1.0]]}), tmp_path / "rows.parquet")
    assert audit_foreign(tmp_path / "rows.parquet").trained == 2


def test_a_split_outside_of_its_folder_and_a_parquet_file_that_is_none_are_refused(tmp_path):
    for split in ("../other", "a\0b"):
        (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": [split]}))
        with pytest.raises(InputError, match="does not name a folder within it"):
            audit_foreign(tmp_path)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"rows\.parquet: cannot be read as Parquet"):
        audit_foreign(tmp_path / "rows.parquet")


def test_damaged_files_are_an_input_error_or_rows_as_they_are(exported, tmp_path):
    random_ = random.Random(5)
    files = sorted(p.relative_to(exported) for p in exported.rglob("*") if p.suffix in (".arrow", ".json"))
    refused = read = 0
    for number in range(24):
        copy = tmp_path / str(number)
        shutil.copytree(exported, copy)
        victim = copy / files[number % len(files)]
        content = bytearray(victim.read_bytes())
        if number % 3 == 0:
            content = content[: random_.randrange(len(content))]
        else:
            for _ in range(random_.randrange(1, 30)):
                content[random_.randrange(min(len(content), 4000))] ^= 1 << random_.randrange(8)
        victim.write_bytes(content)
        try:
            audit_foreign(copy, sample=20)
            read += 1
        except InputError as error:
            refused += 1
            assert str(copy) in error.message
        shutil.rmtree(copy)
    assert refused + read == 24 and refused > 3


def test_columns_that_are_no_lists_of_numbers_are_refused(tmp_path):
    for column, words in (
        (pa.array(["text", "text"]), "lists of numbers"),
        (pa.array([[1.5], [2.0]]), "expected whole numbers"),
        (pa.array([[1], None]), "null"),
        (pa.array([[1, None], [2]]), "null"),
    ):
        with pytest.raises(InputError, match=words):
            audit_foreign(write_table(pa.table({"input_ids": column}), tmp_path / "rows.arrow"))


def write_table(table, place):
    if place.suffix == ".parquet":
        pq.write_table(table, place)
    else:
        with pa.ipc.new_stream(place, table.schema) as writer:
            writer.write_table(table)
    return place


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("name", ["input_ids", "labels", "seq_lengths"])
def test_of_two_columns_of_one_name_none_is_read(tmp_path, ending, name):
    table = pa.Table.from_arrays([pa.array([[1, 2], [3]])] * 3, names=["input_ids", name, "text"])
    if name != "input_ids":
        table = table.append_column(name, table.column(0))
    with pytest.raises(InputError, match=rf"rows\.{ending}: has more than one column `{name}`"):
        audit_foreign(write_table(table, tmp_path / f"rows.{ending}"), sample=None)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_text_that_is_not_utf_8_in_a_column_that_is_not_read_is_no_matter(tmp_path, ending):
    offsets, content = (pa.py_buffer(data) for data in (np.array([0, 2, 3], np.int32).tobytes(), b"\xff\xfea"))
    text = pa.Array.from_buffers(pa.string(), 2, [None, offsets, content])
    table = pa.table({"text": text, "input_ids": [[1, 2], [3]]})
    report = audit_foreign(write_table(table, tmp_path / f"rows.{ending}"), sample=None)
    assert (report.tokens_looked_at, report.columns) == (3, ("text", "input_ids"))


@pytest.mark.parametrize(
    "lengths",
    [
        *([2**63 - 1, 2**63 - 1, 5], [-(2**63), -(2**63), 3], [4, -1], [-1, 4], [2**63 - 1], [3, 2**63 - 1], [0, 3]),
        *([3, 0], [4], [2, 2]),
    ],
)
def test_lengths_that_do_not_fit_their_row_are_reported_whatever_their_sum_wraps_round_to(tmp_path, lengths):
    """A trainer would take borders from them, in this row and in those after it in the batch."""
    rows = [[5, 6, 7], [8], [9, 9]]
    table = pa.table({"input_ids": rows, "seq_lengths": pa.array([lengths, [1], [1, 1]], pa.list_(pa.int64()))})
    report = audit_foreign(write_table(table, tmp_path / "rows.arrow"), sample=None)
    (finding,) = [each for each in report.findings if each.code == "columns_differ"]
    assert (finding.count, finding.examples[0].label) == (1, "row 0")


def test_a_path_with_a_nul_in_it_is_an_input_error(tmp_path):
    for path in (f"{tmp_path}/a\0b", "\0", f"{tmp_path}/\0.parquet"):
        with pytest.raises(InputError, match=r"a path cannot contain a NUL character"):
            audit_foreign(path)


def test_rows_of_more_values_than_can_be_held_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("packer.audit.foreign._MAX_BATCH_VALUES", 10)
    place = write_table(pa.table({"input_ids": [[1] * 6, [2] * 5]}), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="2 rows have 11 values"):
        audit_foreign(place, sample=None)
