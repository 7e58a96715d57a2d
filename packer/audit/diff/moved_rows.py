"""Rows that are in another split than before, or left out for another reason, by rules about rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from packer.audit.diff.documents import ROW_BITS
from packer.batches import Int64
from packer.rejections import ROW_REASONS
from packer.store.cache import Cache
from packer.store.selected import read_selection


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRows:
    """Rows that rules about rows put elsewhere; places are splits, or ``left out: CODE``."""

    old: str
    new: str
    rows: int
    first: str
    """Input and number of the first of them."""


def moved_rows(old: Cache, new: Cache, pairs: Mapping[int, int]) -> tuple[MovedRows, ...]:
    """Count the rows that changed their split, or the code by which they are in none; the most first.

    Nothing where neither cache has a selection. Rows are paired by their input and number.

    Args:
        old: a cache.
        new: another one.
        pairs: input of the old one → input of the new one.

    """
    if old.manifest.selection is None and new.manifest.selection is None:
        return ()
    before = dict(_places(old, {number: number for number in pairs}))
    after = dict(_places(new, {there: here for here, there in pairs.items()}))
    found = []
    for was, rows in before.items():
        for now, others in after.items():
            both = np.intersect1d(rows, others) if was != now else rows[:0]
            if len(both):
                source, row = divmod(int(both[0]), 1 << ROW_BITS)
                first = f"{new.manifest.inputs[pairs[source]].path} row {row}"
                found.append(MovedRows(old=was, new=now, rows=len(both), first=first))
    return tuple(sorted(found, key=lambda each: -each.rows))


def _places(cache: Cache, numbers: Mapping[int, int]) -> Iterator[tuple[str, Int64]]:
    """Splits and codes, and the rows of each: number of the input, as `numbers` has it, and row in one number."""
    manifest = cache.manifest
    shards = [shard for shard in manifest.shards if shard.kind == "documents"]
    number = np.full(len(manifest.inputs) + 1, -1, np.int64)
    number[list(numbers)] = list(numbers.values())
    if manifest.selection is None:
        for split in cache.splits("documents"):
            source, row = cache.documents(split).origins()
            yield split, _keys(number[source], row)
        return
    sources = np.array([-1 if shard.source is None else shard.source for shard in shards])
    source = np.repeat(sources, [shard.num_input_rows for shard in shards])
    row = np.concatenate([np.arange(shard.num_input_rows) + shard.first_row for shard in shards])
    selected = read_selection(cache.folder, manifest.selection)
    for i, split in enumerate(selected.splits):
        own = selected.split == i
        yield split, _keys(number[source[own]], row[own])
    for i in np.unique(selected.reason[selected.reason > 0]).tolist():
        own = selected.reason == i
        yield f"left out: {ROW_REASONS[i - 1]}", _keys(number[source[own]], row[own])


def _keys(source: Int64, row: Int64) -> Int64:
    return np.unique((source[source >= 0] << ROW_BITS) | row[source >= 0])
