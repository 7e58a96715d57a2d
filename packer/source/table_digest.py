"""The digest of a partition of a Parquet or Arrow file: which rows it names, whatever else the file holds.

It is xxh3-128 of three things: names and types of the columns, the xxh3-128 of the bytes of the groups, and how many
rows of the first group are passed over. The bytes are all those from the first column chunk of the first group to the
last of the last, those of columns that nobody reads too, so a digest is a function of the file alone and not of a
schema that a recipe names. The footer of a Parquet file is not in it: it changes when groups are appended, and the
groups before them are what they were.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import xxhash

from packer.source.chunks import read_chunks
from packer.source.groups import Group, Run


class ByteRange(NamedTuple):
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Digests:
    """Digests of a file that was read once."""

    num_bytes: int
    sha256: str
    of_extent: dict[ByteRange, bytes]
    """xxh3-128 of ranges of its bytes."""


def extent_of(run: Run, groups: Sequence[Group]) -> ByteRange:
    """The bytes of those groups of a run that have rows."""
    own = [group for group in groups[run.first_group : run.first_group + run.num_groups] if group.num_rows]
    return ByteRange(min(group.start for group in own), max(group.stop for group in own))


def digest_extents(path: Path, extents: Sequence[ByteRange]) -> Digests:
    """Hash a file and ranges of it in one pass, a megabyte in memory at a time.

    Raises:
        InputError: the file cannot be read.

    """
    sha256 = hashlib.sha256()
    hashes = {extent: xxhash.xxh3_128() for extent in sorted(set(extents))}
    left = list(hashes)
    position = 0
    for chunk in read_chunks(path):
        sha256.update(chunk)
        view = memoryview(chunk)
        after = position + len(chunk)
        for extent in left:
            if extent.start >= after:
                break
            hashes[extent].update(view[max(extent.start - position, 0) : max(extent.stop - position, 0)])
        while left and left[0].stop <= after:
            left.pop(0)
        position = after
    digests = {extent: each.digest() for extent, each in hashes.items()}
    return Digests(num_bytes=position, sha256=sha256.hexdigest(), of_extent=digests)


def digest_run(outline: bytes, of_extent: bytes, skip: int) -> str:
    """The digest of a partition, in hexadecimal.

    Args:
        outline: Names and types of the columns.
        of_extent: xxh3-128 of the bytes of its groups.
        skip: Rows of the first group before it.

    """
    whole = xxhash.xxh3_128()
    for part in (len(outline).to_bytes(8, "little"), outline, of_extent, skip.to_bytes(8, "little")):
        whole.update(part)
    return whole.hexdigest()


def digest_bytes(path: Path, extent: ByteRange) -> bytes:
    """xxh3-128 of a range of a file's bytes.

    Raises:
        InputError: the file cannot be read, or ends before.

    """
    digest = xxhash.xxh3_128()
    for chunk in read_chunks(path, *extent):
        digest.update(chunk)
    return digest.digest()
