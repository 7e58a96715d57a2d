"""Somebody who may write into a cache puts a link in place of a folder, between a look at it and its use."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from faults.conftest import Tally
from faults.jobs import Job, contents

FOLDERS = ("documents", "blocks", "model", ".packer", ".packer/partitions")


@contextmanager
def exchanged(cache: Path, outside: Path) -> Iterator[int]:
    """Put links in place of the folders of a cache, for the time of one call; the number of links."""
    there = [cache / name for name in FOLDERS if (cache / name).is_dir() and name != ".packer"]
    there += [cache / ".packer"] if (cache / ".packer").is_dir() else []  # after what is in it
    for folder in there:
        folder.rename(outside.parent / f"aside-{folder.name}")
        folder.symlink_to(outside)
    try:
        yield len(there)
    finally:
        for folder in reversed(there):
            folder.unlink()
            (outside.parent / f"aside-{folder.name}").rename(folder)


@pytest.mark.parametrize("call", ["open", "replace", "unlink"])
def test_nothing_is_written_renamed_or_removed_where_an_exchanged_link_leads(
    call: str, tiny_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    """At each call that changes a folder of a cache; those that open folders see a link, and refuse it."""
    whole, outside, cache = tiny_job.build(tmp_path / "whole"), tmp_path / "outside", tmp_path / "cache"
    outside.mkdir()
    kept = [outside / path.name for path in whole.rglob("*") if path.is_file()]
    for path in kept:
        path.write_bytes(b"kept")
    names = [
        f"{{path: {path}, split: {split}}}" for path, split in zip(tiny_job.inputs, ("eval", "train"), strict=True)
    ]
    tiny_job.build(
        cache, f"sources=[{', '.join(names)}]"
    )  # so that the next build makes other files, and removes names
    real: Callable[..., Any] = getattr(os, call)
    tried, inside = 0, False

    def calling(*arguments: Any, **options: Any) -> Any:
        nonlocal tried, inside
        makes = call != "open" or arguments[1] & os.O_CREAT
        if inside or not makes:
            return real(*arguments, **options)
        inside = True
        try:
            with exchanged(cache, outside) as number:
                tried += number
                return real(*arguments, **options)
        finally:
            inside = False

    with monkeypatch.context() as patch:
        patch.setattr(os, call, calling)
        tiny_job.build(cache, force=True)
    assert contents(cache) == contents(whole)
    assert {path.name for path in kept} == {path.name for path in outside.iterdir()}
    assert all(path.read_bytes() == b"kept" for path in kept)
    tally("exchanged links", tried=tried, held=tried)
