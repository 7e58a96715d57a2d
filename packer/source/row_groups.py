"""Cutting a table into partitions: runs of its row groups, or pieces of a large one.

Parquet has row groups and Arrow IPC has record batches; both are called groups here. The nominal cuts are those of JSON
lines (:mod:`packer.source.partition`), laid over the groups' uncompressed sizes, so cuts depend on nothing but the file
and `partition_bytes`.

A group of more than `partition_bytes` is cut by rows into pieces of about that size, for many files hold one group
alone. Whoever reads a piece decodes the rows before it too, so a group becomes at most `MAX_PIECES`: reading all of
them decodes the group eight and a half times, which is little beside tokenizing it once.

Worked example, `partition_bytes` = 80, groups of 6, 6, 30 and 200 bytes: they begin at 0, 6, 12 and 42, in the nominal
partitions 0, 0, 1 and 4. So the first two are one partition, the third is one, and the last is cut into three.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from packer.source.partition import nominal

MAX_PIECES = 16

MAX_DECODED_BYTES = 256 * 2**20
MAX_RATIO = 100
"""Text is compressed to a tenth, seldom to a fiftieth. What is refused exceeds both."""


def is_bomb(num_bytes: int, decoded_bytes: int) -> bool:
    """Whether so many bytes decode to more than data does."""
    return decoded_bytes > max(MAX_DECODED_BYTES, MAX_RATIO * num_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rows of a file that are decoded together."""

    start: int
    stop: int
    """Its place in the file, in bytes; of Parquet, in one that is not compressed."""

    num_rows: int
    num_bytes: int
    """Uncompressed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The groups of a partition, or some rows of one group."""

    first_group: int
    num_groups: int
    skip: int
    """Rows of the first group before the partition."""

    num_rows: int


def cut_groups(groups: Sequence[Group], partition_bytes: int, limit: int | None = None) -> list[Run]:
    """The partitions of a file, in order, up to `limit` rows; each has a row."""
    runs: list[Run] = []
    left = limit
    for run in _whole(groups, partition_bytes):
        num_rows = run.num_rows if left is None else min(left, run.num_rows)
        if num_rows == 0:
            break
        runs.append(replace(run, num_rows=num_rows))
        left = None if left is None else left - num_rows
    return runs


def _whole(groups: Sequence[Group], partition_bytes: int) -> Iterator[Run]:
    sizes = np.array([group.num_bytes for group in groups], np.int64)
    places = nominal(np.cumsum(sizes) - sizes, partition_bytes)
    opened: Run | None = None
    place = -1
    for number, group in enumerate(groups):
        if not group.num_rows:
            continue
        large = group.num_bytes > partition_bytes
        if opened is not None and not large and places[number] == place:
            opened = replace(
                opened, num_groups=number + 1 - opened.first_group, num_rows=opened.num_rows + group.num_rows
            )
            continue
        if opened is not None:
            yield opened
            opened = None
        if large:
            yield from _pieces(number, group, partition_bytes)
        else:
            opened = Run(first_group=number, num_groups=1, skip=0, num_rows=group.num_rows)
            place = int(places[number])
    if opened is not None:
        yield opened


def _pieces(number: int, group: Group, partition_bytes: int) -> Iterator[Run]:
    num_pieces = min(-(-group.num_bytes // partition_bytes), MAX_PIECES, group.num_rows)
    for i in range(num_pieces):
        first, stop = group.num_rows * i // num_pieces, group.num_rows * (i + 1) // num_pieces
        yield Run(first_group=number, num_groups=1, skip=first, num_rows=stop - first)
