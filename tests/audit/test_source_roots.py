"""Roots: what a cache names is found below what the user names, and nowhere else."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.audit.input_parts import SourceRoots
from packer.errors import InputError, RecipeError, UsageError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DATA = f"hf://datasets/org/talk@{COMMIT}/data/a.jsonl"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with files, links out of it and links within it, and something beside it."""
    top = tmp_path_factory.mktemp("home")
    for name in ("data/a.jsonl", "data/b/a.jsonl", "a.jsonl", "elsewhere/a.jsonl"):
        (top / name).parent.mkdir(exist_ok=True)
        (top / name).write_text("{}")
    (top / "other").mkdir()
    (top / "data" / "out").symlink_to(top / "elsewhere")
    (top / "data" / "in").symlink_to(top / "data" / "b")
    (top / "data" / "link.jsonl").symlink_to(top / "elsewhere" / "a.jsonl")
    (top / "linked").symlink_to(top / "elsewhere")
    return top


@pytest.mark.parametrize(
    ("root", "name", "place"),
    [
        ("data", "data/a.jsonl", "data/a.jsonl"),
        ("data", "a.jsonl", "data/a.jsonl"),
        (".", "data/../data/a.jsonl", "data/a.jsonl"),
        ("data/a.jsonl", "data/a.jsonl", "data/a.jsonl"),
        ("linked", "a.jsonl", "linked/a.jsonl"),
        ("data/link.jsonl", "data/link.jsonl", "data/link.jsonl"),
        ("data", "data/gone.jsonl", "data/gone.jsonl"),
        ("hf://datasets/org/talk", DATA, DATA),
        (f"hf://datasets/org/talk@{COMMIT}/data", DATA, DATA),
        ("s3://bucket/a/", "s3://bucket/a/b.jsonl", "s3://bucket/a/b.jsonl"),
    ],
)
def test_a_name_below_a_root_is_found(home, monkeypatch, root, name, place):
    monkeypatch.chdir(home)
    assert SourceRoots.of(["other", root]).place(name) == place


@pytest.mark.parametrize(
    ("root", "name"),
    [
        ("data", "../elsewhere/a.jsonl"),
        ("data", "../data/../elsewhere/a.jsonl"),
        ("data", "/etc/hostname"),
        ("data", "data/\0"),
        ("data", DATA),
        ("hf://datasets/org/tal", DATA),
        ("hf://datasets/org/talk@main", DATA),
        ("hf://org/talk", DATA),
        ("s3://bucket/a", "s3://bucket/ab/c.jsonl"),
        ("s3://bucket/a", "s3://bucket/a/../b/c.jsonl"),
        ("s3://bucket/a", "gs://bucket/a/c.jsonl"),
        (".", "./s3:/bucket/c.jsonl"),
        (".", ".//s3://bucket/c.jsonl"),
        (".", "x/../gs:/bucket/c.jsonl"),
        (".", "./-"),
    ],
)
def test_a_name_below_no_root_is_refused_with_what_allows_it(home, monkeypatch, root, name):
    monkeypatch.chdir(home)
    with pytest.raises(InputError, match="below no --sources") as caught:
        SourceRoots.of([root]).place(name)
    assert "--sources" in caught.value.hint
    with pytest.raises(InputError, match="below no --sources"):
        SourceRoots().place(name)


@pytest.mark.parametrize("name", ["data/out/a.jsonl", "data/in/a.jsonl", "data/link.jsonl"])
def test_a_link_below_a_root_is_not_followed_and_the_hint_says_how_it_is(home, monkeypatch, name):
    monkeypatch.chdir(home)
    with pytest.raises(InputError, match="a symbolic link below data leads to it") as caught:
        SourceRoots.of(["data"]).place(name)
    assert SourceRoots.of([caught.value.hint.rpartition("--sources ")[2]]).place(name) == name


@pytest.mark.parametrize("revision", ["..%2F..%2Fref", "a%2F..%2Fb", "%2Fdev%2Fzero", "refs/pr/..", "."])
def test_a_revision_is_no_path_in_the_cache_of_the_hub(revision):
    with pytest.raises(RecipeError, match="no revision has this name"):
        SourceRoots.of(["hf://datasets/org/talk"]).place(f"hf://datasets/org/talk@{revision}/a.jsonl")


PARTS = st.sampled_from(["..", ".", "data", "b", "out", "in", "a.jsonl", "link.jsonl", "elsewhere", "linked", ""])


@given(
    st.lists(PARTS, min_size=1, max_size=6),
    st.sampled_from([".", "data", "linked", "data/b", "data/out"]),
    st.booleans(),
)
def test_wherever_a_name_leads_it_is_really_below_the_root(home, parts, root, absolute):
    before = Path.cwd()
    os.chdir(home)
    try:
        name = str(home.joinpath(*parts)) if absolute else "/".join(parts).lstrip("/") or "."
        try:
            place = SourceRoots.of([root]).place(name)
        except InputError:
            return
        top = os.path.realpath(root)
        assert os.path.commonpath([os.path.realpath(place), top]) == top
    finally:
        os.chdir(before)


def test_a_root_at_which_there_is_nothing_is_refused_with_the_nearest_name(home, monkeypatch):
    monkeypatch.chdir(home)
    with pytest.raises(InputError, match="--sources date: no such file or folder") as caught:
        SourceRoots.of(["date"])
    assert caught.value.hint == "did you mean 'data'?"
    with pytest.raises(InputError, match="no such file or folder") as caught:
        SourceRoots.of(["xyz"])
    assert caught.value.hint == f"looked in {home}"


def test_a_root_without_a_name_is_refused() -> None:
    with pytest.raises(UsageError, match="names nothing"):
        SourceRoots.of(["data", ""])
