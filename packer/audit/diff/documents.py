"""Comparison of the documents and rows of two caches: shared documents, the rows of the others, and rows that moved.

Documents are the same if their doc_ids are: a doc_id is a digest of ids, labels and weights. For preference data, side
and margin must be the same too. Documents that differ are reported by row. Rows are paired by input and row number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from packer.batches import Bool, Int64
from packer.rejections import ROW_REASONS
from packer.store.cache import Cache
from packer.store.digest import digest_rows
from packer.store.document_shards import DocumentShards
from packer.store.selected import read_selection

_ROW_BITS = 40

Columns = Sequence[npt.NDArray[np.generic]]
"""Rows as columns of equal length."""

Place = tuple[int, int]
"""Index of an input, and of a row in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsDiff:
    """Document counts of a split, as multisets. If `only_old` and `only_new` are 0, their order or rows differ."""

    split: str
    only_old: int
    only_new: int
    both: int
    rows_changed: int
    """Rows for which each cache has documents that the other lacks."""

    rows_only_old: int
    """Rows for which only the old cache has documents that the other lacks."""

    rows_only_new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRows:
    """Rows that rules about rows moved; `old` and `new` are splits, or ``left out: CODE``."""

    old: str
    new: str
    rows: int
    first: str
    """Input and row number of the first such row."""


class CommonInputs:
    """A common numbering of the inputs of two caches, and thereby of their rows."""

    def __init__(self, pairs: Mapping[int, int], num_old: int, num_new: int) -> None:
        """`pairs` maps inputs of the old cache to those of the new one. Input -1 is that of shards without one."""
        self._inputs: list[tuple[int | None, int | None]] = [*pairs.items()]
        self._inputs += [(number, None) for number in range(-1, num_old) if number not in pairs]
        self._inputs += [(None, number) for number in range(-1, num_new) if number not in pairs.values()]

    def keys(self, source: Int64, row: Int64, *, is_new: bool) -> Int64:
        """Encode rows as single numbers: the common number of the input in the high bits, the row below.  # int64[N]"""
        own = {inputs[is_new]: number for number, inputs in enumerate(self._inputs)}
        numbers = np.array([own[source] for source in sorted(each for each in own if each is not None)], np.int64)
        return (numbers[source + 1] << _ROW_BITS) | row

    def first_of_each(self, keys: Int64) -> Int64:
        """Reorder rows: the first of each input, then the second of each, and so on."""
        return keys[np.lexsort((keys, occurrences(keys >> _ROW_BITS)))]

    def places(self, key: int) -> tuple[Place | None, Place | None]:
        """Return the place of a row in each cache; None if the cache does not have the input."""
        number, row = divmod(key, 1 << _ROW_BITS)
        old, new = (None if source is None else (source, row) for source in self._inputs[number])
        return old, new


class Documents(NamedTuple):
    """The documents of one cache's split. N documents."""

    doc_id: Int64  # [N] for preference data, a digest that includes side and margin
    row: Int64  # [N] row in its input
    key: Int64  # [N] as made by :meth:`CommonInputs.keys`


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRow:
    """A row whose documents differ: its place in each cache, and its documents that the other cache lacks."""

    place_old: Place | None
    """Also set if the old cache has the input but no document of the row; None if it does not have the input."""

    place_new: Place | None
    old: Int64
    """Indices of documents in the split."""

    new: Int64


class DocumentComparison:
    """Compares the documents of one split in two caches."""

    def __init__(self, split: str, inputs: CommonInputs, old: Documents, new: Documents) -> None:
        self.split = split
        self._inputs, self._old, self._new = inputs, old, new
        # Match equal documents within the same row first, then equal documents of different rows.
        matched_old, matched_new = match_rows([old.key, old.doc_id], [new.key, new.doc_id])
        rest_old, rest_new = np.flatnonzero(~matched_old), np.flatnonzero(~matched_new)
        more_old, more_new = match_rows([old.doc_id[rest_old]], [new.doc_id[rest_new]])
        self._left_old, self._left_new = rest_old[~more_old], rest_new[~more_new]
        self._rows_old, self._rows_new = old.key[self._left_old], new.key[self._left_new]

    @classmethod
    def of(cls, old: Cache, new: Cache, split: str, pairs: Mapping[int, int]) -> Self:
        """Read the documents of two caches; `pairs` as for :class:`CommonInputs`."""
        entries = old.manifest.inputs, new.manifest.inputs
        # A selection can put rows of an input into any split.
        chosen = any(cache.manifest.selection is not None for cache in (old, new))
        own = {a: b for a, b in pairs.items() if chosen or entries[0][a].split == entries[1][b].split == split}
        inputs = CommonInputs(own, *map(len, entries))
        return cls(
            split, inputs, _documents(old, split, inputs, is_new=False), _documents(new, split, inputs, is_new=True)
        )

    def report(self) -> DocumentsDiff | None:
        """Return the counts; None if documents, their order and their rows are the same."""
        old, new = self._old, self._new
        if np.array_equal(old.doc_id, new.doc_id) and np.array_equal(old.row, new.row):
            return None
        changed, only_old, only_new = map(len, self._rows())
        return DocumentsDiff(
            split=self.split,
            only_old=len(self._left_old),
            only_new=len(self._left_new),
            both=len(old.doc_id) - len(self._left_old),
            rows_changed=changed,
            rows_only_old=only_old,
            rows_only_new=only_new,
        )

    def rows(self, most: int) -> list[ChangedRow]:
        """Return up to `most` rows that differ: rows changed in both caches first, alternating between inputs."""
        ordered = [self._inputs.first_of_each(rows) for rows in self._rows()]
        return [self._row(key) for key in np.concatenate(ordered)[:most].tolist()]

    def _rows(self) -> tuple[Int64, Int64, Int64]:
        """Return the rows with unmatched documents in both caches, in the old one only, and in the new one only."""
        old, new = self._rows_old, self._rows_new
        return np.intersect1d(old, new), np.setdiff1d(old, new), np.setdiff1d(new, old)

    def _row(self, key: int) -> ChangedRow:
        old, new = self._inputs.places(key)
        return ChangedRow(
            place_old=old,
            place_new=new,
            old=self._left_old[self._rows_old == key],
            new=self._left_new[self._rows_new == key],
        )


def match_rows(old: Columns, new: Columns) -> tuple[Bool, Bool]:
    """Match equal rows of two lists one to one, the first of equal rows first; return masks of the matched rows.

    Worked example: [7, 7, 7, 8] and [9, 7, 7] give [T, T, F, F] and [F, T, T].

    Returns:
        bool[N] and bool[M]; both have the same number of True, the size of the multisets' intersection
    """
    ranks = np.zeros(len(old[0]) + len(new[0]), np.int64)
    for old_column, new_column in zip(old, new, strict=True):
        _, column = np.unique(np.concatenate([old_column, new_column]), return_inverse=True)
        # Both factors are at most the number of rows, so the product cannot overflow; unique() makes it dense again.
        _, ranks = np.unique(ranks * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
    old_ranks, new_ranks = ranks[: len(old[0])], ranks[len(old[0]) :]
    old_counts, new_counts = (np.bincount(each, minlength=len(ranks)) for each in (old_ranks, new_ranks))
    return occurrences(old_ranks) < new_counts[old_ranks], occurrences(new_ranks) < old_counts[new_ranks]


def occurrences(keys: Int64) -> Int64:
    """Return the number of equal keys before each key.  # int64[N]

    Worked example: [5, 3, 5, 5, 3] gives [0, 0, 1, 2, 1]. In sorted order (3 3 5 5 5) it is a key's index minus the
    index at which its group begins: 0 1 2 3 4 - 0 0 2 2 2.
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    found = np.empty(len(keys), np.int64)
    found[order] = np.arange(len(keys)) - np.searchsorted(ordered, ordered)
    return found


def moved_rows(old: Cache, new: Cache, pairs: Mapping[int, int]) -> tuple[MovedRows, ...]:
    """Count the rows that changed their split, or the code by which they were left out; the largest group first.

    Empty if neither cache has a selection. `pairs` as for :class:`CommonInputs`.
    """
    if old.manifest.selection is None and new.manifest.selection is None:
        return ()
    inputs = CommonInputs(pairs, len(old.manifest.inputs), len(new.manifest.inputs))
    names_old, keys_old, place_old = _places(old, inputs, is_new=False)
    names_new, keys_new, place_new = _places(new, inputs, is_new=True)
    both, i, j = np.intersect1d(keys_old, keys_new, assume_unique=True, return_indices=True)
    ways, first, counts = np.unique(
        np.stack([place_old[i], place_new[j]], axis=1), axis=0, return_index=True, return_counts=True
    )
    found = []
    for (was, now), at, rows in zip(ways.tolist(), first.tolist(), counts.tolist(), strict=True):
        if names_old[was] != names_new[now]:
            _, place = inputs.places(int(both[at]))
            assert place is not None, "it is a row of both"
            named = f"{new.manifest.inputs[place[0]].path} row {place[1]}"
            found.append(MovedRows(old=names_old[was], new=names_new[now], rows=rows, first=named))
    return tuple(sorted(found, key=lambda each: -each.rows))


def _places(cache: Cache, inputs: CommonInputs, *, is_new: bool) -> tuple[tuple[str, ...], Int64, Int64]:
    """Return where each row of a cache went: a split, or a code.

    Returns:
        names of P splits and codes; keys of R rows, ascending, int64[R]; index of each row's split or code, int64[R]
    """
    manifest = cache.manifest
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
    known = np.flatnonzero(place >= 0)
    keys, first = np.unique(inputs.keys(source[known], row[known], is_new=is_new), return_index=True)
    return names, keys, place[known][first]


def _documents(cache: Cache, split: str, inputs: CommonInputs, *, is_new: bool) -> Documents:
    """Read the documents of a split; empty if the cache does not have the split."""
    found = cache.documents(split) if split in cache.splits("documents") else DocumentShards(cache.folder, ())
    identity = found.doc_ids()
    if found.is_preference:
        margins = found.margins().view(np.int32)
        identity = digest_rows(np.column_stack([identity, found.sides(), margins]), []).view(np.int64)
    source, row = found.origins()
    return Documents(identity, row, inputs.keys(source, row, is_new=is_new))
