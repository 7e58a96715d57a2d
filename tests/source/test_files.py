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


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["data/[ab].jsonl"], ["data/a.jsonl", "data/b.jsonl"]),
        (["data/?.jsonl"], ["data/a.jsonl", "data/b.jsonl"]),
        (["data/**/*.jsonl"], ["data/[x].jsonl", "data/a.jsonl", "data/b.jsonl", "data/deep/er/c.jsonl"]),
        (["data/*"], ["data/[x].jsonl", "data/a.jsonl", "data/b.jsonl", "data/notes.txt"]),  # files alone
        (["data/b.jsonl", "data/a.jsonl"], ["data/b.jsonl", "data/a.jsonl"]),
        (["data/[x].jsonl"], ["data/[x].jsonl"]),  # the file of that name
    ],
)
def test_a_glob_is_sorted_and_stays_relative_and_patterns_keep_their_order(folder, patterns, found):
    assert names(*patterns) == found
    assert names(f"{folder}/{patterns[0]}")[0] == f"{folder.as_posix()}/{found[0]}"


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


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("data/gone/deeper/x.jsonl", "looked in FOLDER/data"),
        ("data/alpaca", "looked in FOLDER/data"),
        (
            "tatsu-lab/alpaca",
            "hf://datasets/tatsu-lab/alpaca/FILE; looked in",
        ),
    ],
)
def test_where_nothing_is_found_the_hint_names_what_was_searched_or_how_a_name_of_the_hub_is_written(
    folder, pattern, hint
):
    with pytest.raises(InputError, match=f"{pattern}: no such file") as caught:
        expand([pattern])
    assert hint.replace("FOLDER", folder.as_posix()) in caught.value.hint
    assert ("hf://" in hint) == ("hf://" in caught.value.hint)


@pytest.mark.parametrize(
    ("second", "said"),
    [
        *((again, "named twice") for again in ("data/a.jsonl", "./data/../data/a.jsonl", "data/*.jsonl")),
        ("data/link.jsonl", "also as"),
        ("pipe", "not a regular file"),
    ],
)
def test_the_same_file_twice_or_what_is_none_is_an_error(folder, second, said):
    os.mkfifo(folder / "pipe")
    if "link" in second:
        (folder / "data" / "link.jsonl").symlink_to(folder / "data" / "a.jsonl")
    with pytest.raises(InputError, match=said):
        expand(["data/a.jsonl", second])
