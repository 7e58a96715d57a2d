"""Folders of save_to_disk: what is in them, and what is said of folders that are none."""

import json
import shlex
import shutil
import subprocess

import pytest
from written_formats import as_arrow

from packer.errors import InputError
from packer.source.detect import detect_format
from packer.source.files import data_set_files, expand, is_data_set

ROWS = [{"text": str(i)} for i in range(5)]


def save(folder, rows=ROWS, **state):
    """A data set as `datasets` writes it, in two files."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05d}-of-00002.arrow" for i in range(2)]
    for name, part in zip(names, (rows[:3], rows[3:]), strict=True):
        (folder / name).write_bytes(as_arrow(part))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names], **state}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def names(folder):
    return [(split, path.relative_to(folder).as_posix()) for split, path in data_set_files(folder)]


def test_a_data_set_is_its_files_in_their_order(tmp_path):
    folder = save(tmp_path / "saved")
    assert is_data_set(folder)
    assert names(folder) == [(None, "data-00000-of-00002.arrow"), (None, "data-00001-of-00002.arrow")]


def test_each_split_of_a_dict_is_a_split(tmp_path):
    for split in ("train", "test"):
        save(tmp_path / split)
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert is_data_set(tmp_path)
    assert [split for split, _ in names(tmp_path)] == ["train", "train", "test", "test"]


def test_what_datasets_writes_is_what_is_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list(ROWS)
    rows.save_to_disk(tmp_path / "one", num_shards=2)
    assert [split for split, _ in names(tmp_path / "one")] == [None, None]
    picked = rows.select([4, 0])
    datasets.DatasetDict({"train": rows, "valid": picked}).save_to_disk(tmp_path / "two")
    assert [split for split, _ in names(tmp_path / "two")] == ["train", "valid"]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"_indices_files": [{"filename": "indices.arrow"}]}, "its rows are a selection of its files"),
        ({"_indices_data_files": [{"filename": "indices.arrow"}]}, "its rows are a selection of its files"),
        ({"_data_files": [{"filename": "gone.arrow"}]}, "gone.arrow: no such file"),
        ({"_data_files": 7}, "cannot be read as a data set's"),
    ],
)
def test_a_data_set_whose_files_are_not_its_rows_is_an_error(tmp_path, state, said):
    folder = save(tmp_path / "saved", **state)
    with pytest.raises(InputError, match=said) as caught:
        names(folder)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("splits", "said"),
    [
        ('["train", "gone"]', "gone/state.json: cannot be read as a data set's"),
        ('["a/b"]', "'a/b' does not name a folder"),
        ("{", "cannot be read"),
    ],
)
def test_a_dict_that_is_not_whole_is_an_error(tmp_path, splits, said):
    save(tmp_path / "train")
    (tmp_path / "dataset_dict.json").write_text(f'{{"splits": {splits}}}')
    with pytest.raises(InputError, match=said):
        names(tmp_path)


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ([], ["**/*.jsonl"]),
        (["a.parquet", "b.parquet", "README.md", "c.json"], ["**/*.parquet"]),
        (["a.jsonl", "deep/b.jsonl"], ["**/*.jsonl"]),
        (["test.jsonl"], ["**/*.jsonl"]),
        (["train-0.parquet", "test-0.parquet"], None),
        (["data/train.jsonl", "data/validation.jsonl", "data/train_2.jsonl"], None),
        (["train/0.parquet", "test/0.parquet", "test/1.parquet"], None),
        (["test.jsonl", "latest.jsonl"], None),
    ],
)
def test_any_other_folder_is_an_error_with_a_pattern_for_its_files_unless_some_are_held_out(tmp_path, files, named):
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("x")
    with pytest.raises(
        InputError, match=r"is a folder that `save_to_disk` did not write: it has neither state.json"
    ) as caught:
        expand([str(tmp_path)])
    hint = caught.value.hint
    if named is None:
        held_out = next(file for file in files if file.startswith(("test", "data/val")))
        assert f"held out by their names, such as {held_out}, belong in a recipe" in hint and "*" not in hint
    else:
        assert shlex.split(hint.removeprefix("name its files: ")) == [f"{tmp_path.as_posix()}/{name}" for name in named]


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_texts_of_a_folder_become_rows_by_the_command_that_is_named(tmp_path):
    texts = {"it's/a.txt": "One.\n", "it's/b.txt": 'A "second"\nline.', "c.txt": "Three."}
    for file, text in texts.items():
        (tmp_path / "corpus" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "corpus" / file).write_text(text)
    with pytest.raises(InputError) as of_folder:
        expand([str(tmp_path / "corpus")])
    with pytest.raises(InputError) as of_file:
        detect_format(tmp_path / "corpus" / "it's" / "a.txt")
    for caught, num_rows in ((of_folder, 3), (of_file, 2)):
        command = caught.value.hint[caught.value.hint.index("find ") :].partition("; if it is CSV")[0]
        subprocess.run(command, shell=True, check=True, cwd=tmp_path)
        rows = [json.loads(line) for line in (tmp_path / "texts.jsonl").read_text().splitlines()]
        assert len(rows) == num_rows
        assert {row["text"] for row in rows} <= {*texts.values()}


def test_a_cache_is_no_source_and_is_reported_as_one(starter_cache):
    with pytest.raises(InputError, match="is a cache of packer, not a source") as caught:
        expand([str(starter_cache)])
    assert caught.value.hint == "name the files that it was built from"
