"""One list of the names of data files, for folders here and repositories of the Hub."""

import pytest

from packer.errors import InputError
from packer.hub import choose
from packer.names import data_name
from packer.source.files import data_set_files

NAMES = [
    *("a.jsonl", "a.ndjson", "a.json", "a.csv", "a.tsv", "a.parquet", "a.arrow"),
    *("a.ndjson.zst", "a.b.jsonl.gz", "A.JSONL.ZST"),
]
OTHERS = ["README.md", "a.txt", "a.gz", "jsonl", "dataset_infos.json", "a.jsonl.xz"]


@pytest.mark.parametrize("name", NAMES)
def test_a_data_file_is_offered_by_a_folder_and_by_a_repository(tmp_path, name):
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(InputError, match="is a folder") as caught:
        list(data_set_files(tmp_path))
    assert caught.value.hint == f"name its files: '{tmp_path}/**/*{name[1:].replace('.b.', '.')}'"
    assert choose(data_name("hf://datasets/tiny/talk"), [*OTHERS, f"data/{name}"]) == [f"data/{name}"]


@pytest.mark.parametrize("name", OTHERS)
def test_another_file_is_offered_by_neither(tmp_path, name):
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(InputError, match="is a folder") as caught:
        list(data_set_files(tmp_path))
    assert caught.value.hint == f"name its files: '{tmp_path}/**/*.jsonl'"
    with pytest.raises(InputError, match="no such data file"):
        choose(data_name("hf://datasets/tiny/talk"), [name])
