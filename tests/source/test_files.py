import errno
import os

import pytest

from packer.errors import InputError
from packer.source.files import expand


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("data/b.jsonl", "data/a.jsonl", "data/deep/er/c.jsonl", "data/notes.txt", "data/[x].jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(*patterns):
    return [path.as_posix() for path in expand(patterns)]


def test_a_glob_is_sorted_and_stays_relative(folder):
    assert names("data/[ab].jsonl") == ["data/a.jsonl", "data/b.jsonl"]
    assert names("data/?.jsonl") == ["data/a.jsonl", "data/b.jsonl"]


def test_an_absolute_pattern_gives_absolute_paths(folder):
    assert names(f"{folder}/data/*.txt") == [f"{folder.as_posix()}/data/notes.txt"]


def test_two_stars_reach_into_folders(folder):
    assert names("data/**/*.jsonl") == ["data/[x].jsonl", "data/a.jsonl", "data/b.jsonl", "data/deep/er/c.jsonl"]


def test_a_glob_takes_files_only(folder):
    assert "data/deep" not in names("data/*")


def test_patterns_keep_their_order(folder):
    assert names("data/b.jsonl", "data/a.jsonl") == ["data/b.jsonl", "data/a.jsonl"]


def test_a_file_with_brackets_in_its_name_is_that_file(folder):
    assert names("data/[x].jsonl") == ["data/[x].jsonl"]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [("data/gone.jsonl", "no such file"), ("data/*.csv", "no file matches"), ("data", "is a folder")],
)
def test_a_pattern_that_names_no_file_is_an_error_with_a_hint(folder, pattern, said):
    with pytest.raises(InputError, match=said) as caught:
        expand([pattern])
    assert pattern in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("pattern", ["data/**/*.jsonl", "data/deep/*/c.jsonl", "data/*/*/*.jsonl"])
def test_a_folder_that_cannot_be_searched_is_named_and_not_left_out(folder, pattern, monkeypatch):
    denied, scandir = "data/deep", os.scandir

    def refusing(path):
        if str(path) == denied:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    assert names(pattern)[-1] == "data/deep/er/c.jsonl"
    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(InputError, match="cannot look into data/deep: Permission denied") as caught:
        expand([pattern])
    assert "that this user may read" in caught.value.hint
    assert names("data/deep/er/*.jsonl") == ["data/deep/er/c.jsonl"], "to go through a folder, nobody has to list it"


def test_for_the_hint_at_files_of_a_folder_only_some_are_looked_at(folder, monkeypatch):
    monkeypatch.setattr("packer.source.files._MOST_SEEN", 5)
    looked, isfile = [], os.path.isfile
    monkeypatch.setattr(os.path, "isfile", lambda path: looked.append(path) or isfile(path))
    for i in range(20):
        (folder / "data" / f"{i}.jsonl").touch()
    with pytest.raises(InputError, match="is a folder"):
        expand(["data"])
    assert len(looked) == 5


def test_a_missing_folder_is_named_in_the_hint(folder):
    with pytest.raises(InputError) as caught:
        expand(["data/gone/deeper/x.jsonl"])
    assert caught.value.hint == f"looked in {(folder / 'data').as_posix()}"


def test_a_name_that_may_be_one_of_the_hub_has_a_hint_how_to_write_it(folder):
    with pytest.raises(InputError, match="tatsu-lab/alpaca: no such file") as caught:
        expand(["tatsu-lab/alpaca"])
    assert "hf://datasets/tatsu-lab/alpaca/FILE; looked in" in caught.value.hint
    with pytest.raises(InputError) as caught:
        expand(["data/alpaca"])
    assert "hf://" not in caught.value.hint


@pytest.mark.parametrize("second", ["data/a.jsonl", "./data/../data/a.jsonl", "data/*.jsonl"])
def test_the_same_file_twice_is_an_error(folder, second):
    with pytest.raises(InputError, match="named twice"):
        expand(["data/a.jsonl", second])


def test_a_link_to_a_file_already_named_is_the_same_file(folder):
    (folder / "data" / "link.jsonl").symlink_to(folder / "data" / "a.jsonl")
    with pytest.raises(InputError, match="also as"):
        expand(["data/a.jsonl", "data/link.jsonl"])


def test_something_that_is_no_regular_file_is_an_error(folder):
    os.mkfifo(folder / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        expand(["pipe"])
