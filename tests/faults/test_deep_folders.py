"""Folders of more levels than Python calls itself: a folder that somebody sent may have them."""

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults.conftest import Tally
from faults.jobs import Job

from packer.errors import InputError
from packer.host.files import walk
from packer.source.files import expand

LEVELS = 400
"""With a limit for Python that is as much lower, so that the folders can be removed again."""


@contextmanager
def few_calls() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + LEVELS - 100)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def deep(folder: Path) -> Path:
    """Make the folders, with a file in the last one."""
    last = folder.joinpath(*["a"] * LEVELS)
    for path in [*reversed(last.parents), last]:
        path.mkdir(exist_ok=True)
    (last / "x.jsonl").write_text("{}\n")
    return last / "x.jsonl"


def test_folders_of_any_depth_are_searched_and_swept(tiny_job: Job, tmp_path: Path, tally: Tally) -> None:
    last, cache = deep(tmp_path / "rows"), tiny_job.build(tmp_path / "cache")
    left = [deep(cache / folder) for folder in ("documents", "model", ".packer")]
    with few_calls():
        assert expand([f"{tmp_path}/rows/**/*.jsonl"]) == [last]
        with pytest.raises(InputError, match="is a folder that `save_to_disk` did not write") as caught:
            expand([f"{tmp_path}/rows"])
        tiny_job.build(cache, repair=True)
    assert "**" in str(caught.value.hint)
    assert not any(path.exists() for path in left)
    tally("deep folders", tried=5, held=5)


def test_walking_gives_what_os_walk_gives(tmp_path: Path) -> None:
    for name in ("b/c/d", "a/x", "e"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "to_a").symlink_to(tmp_path / "a")
    found = list(walk(tmp_path))
    assert [Path(parent).relative_to(tmp_path).as_posix() for parent, *_ in found] == [".", "a", "b", "b/c"]
    assert [sorted(names) for *_, names in found] == [["e"], ["x"], ["to_a"], ["d"]], "a link is no folder"
    refused: list[OSError] = []
    assert list(walk(tmp_path / "gone", refused.append)) == list(walk(tmp_path / "gone")) == []
    assert [error.filename for error in refused] == [str(tmp_path / "gone")]
