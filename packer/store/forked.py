"""Downloads for a process that was forked from one that uses obstore, as the workers of a DataLoader are.

obstore's threads are not there after a fork, so a new process does each download.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from packer.errors import StorageError


class DownloadRequest(msgspec.Struct, frozen=True):
    """What a forked process has a new one download: a file into its place, or ranges of files."""

    folder: str
    url: str
    """Of the bucket that the folder mirrors: nothing in the folder tells it."""

    fetch: str | None = None
    ranges: Sequence[tuple[str, list[tuple[int, int]]]] = ()


def ranges_in_another_process(
    folder: Path, url: str, wanted: Sequence[tuple[str, list[tuple[int, int]]]]
) -> Iterator[bytes]:
    """Yield the ranges of each object, joined, downloaded by a new process because this one was forked.

    Raises:
        StorageError: an object is missing, too short or cannot be read.
    """
    content, start = in_another_process(DownloadRequest(os.fspath(folder), url, ranges=wanted)) if wanted else b"", 0
    for _, ranges in wanted:
        end = start + sum(size for _, size in ranges)
        yield content[start:end]
        start = end


def in_another_process(request: DownloadRequest) -> bytes:
    """Have a new process download; return the ranges that were asked for, joined.

    Raises:
        StorageError: it cannot.
    """
    done = subprocess.run(
        [sys.executable, "-m", "packer.store.forked_helper"],
        input=msgspec.json.encode(request),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise StorageError(f"cannot read {request.folder}: {done.stderr.decode('utf-8', 'replace').strip()[-2000:]}")
    return done.stdout
