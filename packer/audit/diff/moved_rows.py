"""Rows that are in another split than before, or left out for another reason, by rules about rows."""

from collections.abc import Mapping
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
    names_old, keys_old, place_old = _places(old, {number: number for number in pairs})
    names_new, keys_new, place_new = _places(new, {there: here for here, there in pairs.items()})
    both, i, j = np.intersect1d(keys_old, keys_new, assume_unique=True, return_indices=True)
    ways, first, counts = np.unique(
        np.stack([place_old[i], place_new[j]], axis=1), axis=0, return_index=True, return_counts=True
    )
    found = []
    for (was, now), at, rows in zip(ways.tolist(), first.tolist(), counts.tolist(), strict=True):
        if names_old[was] != names_new[now]:
            source, row = divmod(int(both[at]), 1 << ROW_BITS)
            named = f"{new.manifest.inputs[pairs[source]].path} row {row}"
            found.append(MovedRows(old=names_old[was], new=names_new[now], rows=rows, first=named))
    return tuple(sorted(found, key=lambda each: -each.rows))


def _places(cache: Cache, numbers: Mapping[int, int]) -> tuple[tuple[str, ...], Int64, Int64]:
    """Splits and codes; the rows in one of them, each its input, as `numbers` has it, and its own number; and in which.

    Returns:
        names of P places; rows as one number each, ascending, int64[R]; their places, int64[R]

    """
    manifest = cache.manifest
    number = np.full(len(manifest.inputs) + 1, -1, np.int64)  # the last is for shards that name no input
    number[list(numbers)] = list(numbers.values())
    if manifest.selection is None:
        names = cache.splits("documents")
        origins = [cache.documents(split).origins() for split in names]
        source = np.concatenate([np.zeros(0, np.int64), *(each for each, _ in origins)])
        row = np.concatenate([np.zeros(0, np.int64), *(each for _, each in origins)])
        place = np.repeat(np.arange(len(names)), [len(rows) for _, rows in origins])
    else:
        shards = [shard for shard in manifest.shards if shard.kind == "documents"]
        sources = np.array([-1 if shard.source is None else shard.source for shard in shards])
        source = np.repeat(sources, [shard.num_input_rows for shard in shards])
        row = np.concatenate([np.arange(shard.num_input_rows) + shard.first_row for shard in shards])
        selected = read_selection(cache.folder, manifest.selection)
        names = (*selected.splits, *(f"left out: {code}" for code in ROW_REASONS))
        place = np.where(selected.reason > 0, len(selected.splits) + selected.reason - 1, selected.split)
    known = np.flatnonzero((number[source] >= 0) & (place >= 0))
    keys, first = np.unique((number[source[known]] << ROW_BITS) | row[known], return_index=True)
    return names, keys, place[known][first]
