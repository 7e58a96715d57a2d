"""`check` of rows that no cache was built from: the same findings, whatever holds the rows."""

import json
import random
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compared_rows import counts, levels, prompt, some_rows, with_copies

from packer.audit import check_files
from packer.audit.check.row_parts import find_files
from packer.errors import InputError
from packer.pipeline.benchmarks import read_benchmark


@pytest.fixture(scope="module")
def rows():
    found = with_copies(some_rows(130))
    return {"train": found[50:], "validation": found[:50]}


def write(folder, rows):
    folder.mkdir()
    for split, own in rows.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own), "utf-8")
    return folder


def asked(*paths):
    return [(None, path) for path in paths]


def test_files_folders_and_data_sets_of_one_content_give_the_same_counts(rows, tmp_path):
    """And those of a literal count of copies."""
    datasets = pytest.importorskip("datasets")
    folder = write(tmp_path / "lines", rows)
    expected = check_files(asked(folder), near=True)
    assert counts(expected)["copies_between_splits"] == sum(row in rows["train"] for row in rows["validation"]) > 0
    assert levels(expected)["copies_between_splits"] == "failure" and not expected.ok
    saved = {split: datasets.Dataset.from_list(own) for split, own in rows.items()}
    datasets.DatasetDict(saved).save_to_disk(tmp_path / "saved")
    hub = tmp_path / "hub" / "data"
    hub.mkdir(parents=True)
    for split, own in rows.items():
        pq.write_table(pa.Table.from_pylist(own), hub / f"{split}-00000-of-00001.parquet")
    others = [
        asked(tmp_path / "saved"),
        asked(tmp_path / "hub"),
        asked(folder / "train.jsonl", folder / "validation.jsonl"),
        [("train", tmp_path / "saved" / "train"), ("held", folder / "validation.jsonl")],
    ]
    for other in others:
        assert counts(check_files(other, near=True)) == counts(expected)


def test_rows_that_cannot_be_read_are_counted(rows, tmp_path):
    folder = write(tmp_path / "lines", rows)
    with (folder / "train.jsonl").open("a") as file:
        file.write('{"messages": 7}\nno json\n')
    assert counts(check_files(asked(folder)))["rejected"] == 2


def test_questions_of_benchmarks_are_found(rows, tmp_path):
    folder = write(tmp_path / "lines", rows)
    (tmp_path / "bench.jsonl").write_text(json.dumps({"question": prompt(rows["train"][3])}), "utf-8")
    report = check_files(asked(folder), against=[read_benchmark(str(tmp_path / "bench.jsonl"))])
    assert levels(report)["benchmark"] == "failure"


def token_rows(number, seed):
    chance = random.Random(seed)
    return [([chance.randrange(10, 900) for _ in range(8)], [chance.randrange(10, 900)] * 3) for _ in range(number)]


def tokens_of(asked_ids, said):
    return {"input_ids": [1, 2, *asked_ids, 3, *said], "labels": [-100] * (len(asked_ids) + 3) + said}


def packed(rows, most):
    """Rows of up to `most` sequences, as position_ids say."""
    for first, last in pairwise([*range(0, len(rows), most), len(rows)]):
        own = rows[first:last]
        yield {
            "input_ids": [i for row in own for i in row["input_ids"]],
            "labels": [i for row in own for i in row["labels"]],
            "position_ids": [i for row in own for i in range(len(row["input_ids"]))],
        }


def test_rows_of_ids_are_compared_packed_or_not(tmp_path):
    train, held = token_rows(130, 1), token_rows(110, 2)
    held += [train[5], (train[9][0], [7, 7, 7]), ([11], [12])]
    train += [([11], [13]), train[4]]
    found = []
    for most in (1, 4):
        folder = tmp_path / f"packed by {most}"
        folder.mkdir()
        for name, rows in (("train", train), ("validation", held)):
            table = pa.Table.from_pylist(list(packed([tokens_of(*row) for row in rows], most)))
            pq.write_table(table, folder / f"{name}.parquet", row_group_size=20)
        found.append(check_files(asked(folder), near=True))
    assert counts(found[0]) == counts(found[1])
    assert counts(found[1])["copies_between_splits"] == 1 and counts(found[1])["prompts_between_splits"] == 2
    assert counts(found[1])["copies_within_splits"] == 1 and levels(found[1])["near_copies"] == "skipped"
    shown = [pair.second.text for each in found[0].checks for pair in each.pairs]
    assert " ".join(map(str, [1, 2, *train[5][0], 3, *train[5][1]])) in shown


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("validation-00000-of-00001.parquet", "validation"),
        ("chats_test.jsonl", "test"),
        ("my.eval.jsonl.gz", "eval"),
        ("Evaluation.jsonl", "evaluation"),
        ("dev/0.jsonl", "dev"),
        ("test/train2.jsonl", "train"),
        ("latest contests.jsonl", "train"),
        ("testament.jsonl", "train"),
    ],
)
def test_a_word_in_a_name_tells_the_split(tmp_path, name, split):
    file = tmp_path / "rows" / name
    file.parent.mkdir(parents=True)
    file.touch()
    assert find_files([(None, tmp_path / "rows")]) == [(split, file)]


def test_what_holds_no_rows_is_refused(tmp_path, starter_cache):
    (tmp_path / "empty").mkdir()
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "state.json").write_text('{"_data_files": []}')
    (tmp_path / "saved" / "dataset_info.json").write_text("{}")
    refused = (("no", "no such file"), ("empty", "no file in it"), ("saved", "no rows"), (starter_cache, "is a cache"))
    for path, words in refused:
        with pytest.raises(InputError, match=words):
            check_files(asked(tmp_path / path))
