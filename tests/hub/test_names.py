"""Names on the Hub: what they lead to, and what is no such name."""

import pytest

from packer.errors import InputError, RecipeError, UsageError
from packer.hub import choose, client_request
from packer.names import bucket_url, data_name, tokenizer_name

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Qwen/Qwen3-0.6B", ("Qwen/Qwen3-0.6B", None)),
        ("org/name@v1.0", ("org/name", "v1.0")),
        ("org/name@refs/pr/3", ("org/name", "refs/pr/3")),
        ("hf://org/name", ("org/name", None)),
        (f"hf://org/name@{COMMIT}", ("org/name", COMMIT)),
        ("folder", None),
        ("./org/name", None),
        ("/org/name", None),
        ("../name", None),
        ("a/b/c", None),
        ("a/b.json/", None),
    ],
)
def test_a_tokenizer_of_two_parts_is_on_the_hub_and_other_names_are_places(text, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = tokenizer_name(text)
    assert (None if name is None else (name.repository, name.revision)) == parts
    if name is not None:
        assert tokenizer_name(str(name)) == name
        assert name.is_pinned == (name.revision == COMMIT)


def test_a_folder_or_file_of_that_name_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tokenizer_name("org/name") is not None
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert tokenizer_name("org/name") is None
    assert tokenizer_name("hf://org/name") is not None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hf://datasets/org/name", ("org/name", None, "")),
        ("hf://datasets/org/name/data/*.jsonl", ("org/name", None, "data/*.jsonl")),
        ("hf://datasets/org/name@v2/data", ("org/name", "v2", "data")),
        ("hf://datasets/org/name@refs/pr/7/a.jsonl", ("org/name", "refs/pr/7", "a.jsonl")),
        ("hf://datasets/org/name@refs/convert/parquet/a/b", ("org/name", "refs/convert/parquet", "a/b")),
        ("hf://datasets/org/name@feature%2Fx/a.jsonl", ("org/name", "feature/x", "a.jsonl")),
        ("data/chat.jsonl", None),
        ("datasets/org/name", None),
        ("-", None),
    ],
)
def test_a_source_on_the_hub_has_a_scheme(text, parts):
    name = data_name(text)
    assert (None if name is None else (name.repository, name.revision, name.path)) == parts
    if name is not None:
        assert str(name) == text and data_name(str(name)) == name


@pytest.mark.parametrize("text", ["hf://org/name", "hf://datasets/name", "hf://datasets/../x/y", "hf://"])
def test_a_source_that_only_begins_like_one_of_the_hub_is_refused(text):
    with pytest.raises(RecipeError, match="expected hf://datasets/ORG/NAME/PATH"):
        data_name(text)


@pytest.mark.parametrize("character", ["\0", "\x01", "\t", "\n", "\x7f", "\\", "\ud83d"])
def test_a_name_with_a_character_that_clients_misread_is_refused_before_they_see_it(character):
    for text in (f"hf://datasets/org/name/a{character}b.jsonl", f"hf://datasets/org/name@a{character}b/x"):
        with pytest.raises(UsageError, match="is in no name that packer reads or writes"):
            data_name(text)
    for text in (
        "hf://datasets/org/name@a%00b/x.jsonl",
        "hf://datasets/org/name@%0a/x",
        "hf://datasets/org/name@a%5C..%5Cb",
    ):
        with pytest.raises(UsageError, match="is in no name that packer reads or writes"):
            data_name(text)
    if character != "\n":
        with pytest.raises(UsageError, match="is in no name that packer reads or writes"):
            tokenizer_name(f"org/name@a{character}b")
    with pytest.raises(UsageError, match="is in no name that packer reads or writes"):
        bucket_url(f"s3://bucket/a{character}b")


def test_a_value_that_the_client_refuses_is_an_error_about_the_name():
    name = data_name("hf://datasets/org/name/a.jsonl")
    with pytest.raises(InputError, match=r"hf://datasets/org/name/a\.jsonl: .*: no such thing"), client_request(name):
        raise ValueError("no such thing")


@pytest.mark.parametrize("text", ["hf://name", "hf://datasets/org/name", "hf://org/name/file"])
def test_a_tokenizer_that_only_begins_like_one_of_the_hub_is_refused(text):
    with pytest.raises(RecipeError, match="expected hf://ORG/NAME"):
        tokenizer_name(text)


LISTED = ["README.md", ".hidden.jsonl", "a.jsonl", "data/b.jsonl", "data/c.txt", "data/old/d.jsonl", "one/e.parquet"]


def chosen(path):
    name = data_name(f"hf://datasets/org/name/{path}")
    assert name is not None
    return choose(name, LISTED)


def test_paths_and_globs_choose_files_as_in_a_shell():
    assert chosen("data/c.txt") == ["data/c.txt"], "a file is that file, whatever its name"
    assert chosen("*.jsonl") == ["a.jsonl"]
    assert chosen("data/*.jsonl") == ["data/b.jsonl"]
    assert chosen("**/*.jsonl") == ["a.jsonl", "data/b.jsonl", "data/old/d.jsonl"]
    assert chosen("data/**/*.jsonl") == ["data/b.jsonl", "data/old/d.jsonl"]
    assert chosen("data/[bx].jsonl") == ["data/b.jsonl"]
    assert chosen("one") == ["one/e.parquet"], "the only data file below it"


def test_several_files_are_not_guessed_among():
    for path, number in (("", 5), ("data", 2)):
        with pytest.raises(InputError, match=f"matches {number} data files") as caught:
            chosen(path)
        assert "data/b.jsonl" in str(caught.value.hint)
    with pytest.raises(InputError, match="no file matches") as caught:
        chosen("data/*.parquet")
    assert "one/e.parquet" in str(caught.value.hint)
    with pytest.raises(InputError, match="no such data file"):
        chosen("dat")
