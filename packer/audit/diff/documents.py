"""Documents and rows of two caches: how many documents they share, which rows the others come from, which rows moved.

Documents are the same where their doc_ids are: it is a digest of ids, labels and weights. Those of preference data must
also have the same side and margin. Those that differ are reported by row. Rows are paired by the input they lie in and
their number.
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
"""Rows as columns of one length."""

Place = tuple[int, int]
"""Input and row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsDiff:
    """Documents of a split, as a multiset. Where none is in one cache only, their order or rows differ."""

    split: str
    only_old: int
    only_new: int
    both: int
    rows_changed: int
    """Rows that have documents of their own in each cache."""

    rows_only_old: int
    """Rows that have documents in OLD that NEW has not, and none the other way."""

    rows_only_new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRows:
    """Rows that rules about rows put elsewhere; places are splits, or ``left out: CODE``."""

    old: str
    new: str
    rows: int
    first: str
    """Input and number of the first of them."""


class CommonInputs:
    """The inputs of two caches in one numbering, and so a number for each row of both."""

    def __init__(self, pairs: Mapping[int, int], num_old: int, num_new: int) -> None:
        """`pairs`: input of the old cache → input of the new one. -1 is the input of shards that name none."""
        self._inputs: list[tuple[int | None, int | None]] = [*pairs.items()]
        self._inputs += [(number, None) for number in range(-1, num_old) if number not in pairs]
        self._inputs += [(None, number) for number in range(-1, num_new) if number not in pairs.values()]

    def keys(self, source: Int64, row: Int64, *, is_new: bool) -> Int64:
        """Rows of inputs as one number each: the common number of the input, and below it the row.  # int64[N]"""
        own = {inputs[is_new]: number for number, inputs in enumerate(self._inputs)}
        numbers = np.array([own[source] for source in sorted(each for each in own if each is not None)], np.int64)
        return (numbers[source + 1] << _ROW_BITS) | row

    def first_of_each(self, keys: Int64) -> Int64:
        """Rows in another order: of each input the first before any second."""
        return keys[np.lexsort((keys, occurrences(keys >> _ROW_BITS)))]

    def places(self, key: int) -> tuple[Place | None, Place | None]:
        """Where a row lies in each cache; None where its input is not there."""
        number, row = divmod(key, 1 << _ROW_BITS)
        old, new = (None if source is None else (source, row) for source in self._inputs[number])
        return old, new


class Documents(NamedTuple):
    """The documents of one cache's split. N documents."""

    doc_id: Int64  # [N] of preference data, with the side and the margin
    row: Int64  # [N] of its input
    key: Int64  # [N] as of :meth:`CommonInputs.keys`


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRow:
    """A row whose documents differ: where it lies in each cache, and its documents that the other one does not have."""

    place_old: Place | None
    """Also where OLD should hold the row and has nothing of it; None where its input is not in OLD."""

    place_new: Place | None
    old: Int64
    """Numbers of documents."""

    new: Int64


class DocumentComparison:
    """The documents of a split in two caches."""

    def __init__(self, split: str, inputs: CommonInputs, old: Documents, new: Documents) -> None:
        self.split = split
        self._inputs, self._old, self._new = inputs, old, new
        # Equal documents of one row belong together before equal documents of any two rows do.
        matched_old, matched_new = match_rows([old.key, old.doc_id], [new.key, new.doc_id])
        rest_old, rest_new = np.flatnonzero(~matched_old), np.flatnonzero(~matched_new)
        more_old, more_new = match_rows([old.doc_id[rest_old]], [new.doc_id[rest_new]])
        self._left_old, self._left_new = rest_old[~more_old], rest_new[~more_new]
        self._rows_old, self._rows_new = old.key[self._left_old], new.key[self._left_new]

    @classmethod
    def of(cls, old: Cache, new: Cache, split: str, pairs: Mapping[int, int]) -> Self:
        """The documents of two caches; `pairs` as for :class:`CommonInputs`."""
        entries = old.manifest.inputs, new.manifest.inputs
        chosen = any(cache.manifest.selection is not None for cache in (old, new))  # then rows of an input are anywhere
        own = {a: b for a, b in pairs.items() if chosen or entries[0][a].split == entries[1][b].split == split}
        inputs = CommonInputs(own, *map(len, entries))
        return cls(
            split, inputs, _documents(old, split, inputs, is_new=False), _documents(new, split, inputs, is_new=True)
        )

    def report(self) -> DocumentsDiff | None:
        """Counts; None where documents, their order and their rows are the same."""
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
        """Up to `most` rows that differ: first those of both caches, and of each input the first before any second."""
        ordered = [self._inputs.first_of_each(rows) for rows in self._rows()]
        return [self._row(key) for key in np.concatenate(ordered)[:most].tolist()]

    def _rows(self) -> tuple[Int64, Int64, Int64]:
        """Rows with documents of their own in both caches, in the old one only, in the new one only."""
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
    """Which rows of each list have their like in the other; of equal rows, the first ones.

    Worked example: [7, 7, 7, 8] and [9, 7, 7] give [T, T, F, F] and [F, T, T].

    Returns:
        bool[N] and bool[M]; both have the same number of True, the size of the multisets' intersection

    """
    ranks = np.zeros(len(old[0]) + len(new[0]), np.int64)
    for old_column, new_column in zip(old, new, strict=True):
        _, column = np.unique(np.concatenate([old_column, new_column]), return_inverse=True)
        # Neither factor is larger than the number of rows, so the product is exact; then it is made small again.
        _, ranks = np.unique(ranks * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
    old_ranks, new_ranks = ranks[: len(old[0])], ranks[len(old[0]) :]
    old_counts, new_counts = (np.bincount(each, minlength=len(ranks)) for each in (old_ranks, new_ranks))
    return occurrences(old_ranks) < new_counts[old_ranks], occurrences(new_ranks) < old_counts[new_ranks]


def occurrences(keys: Int64) -> Int64:
    """How many equal keys are before each one.  # int64[N]

    Worked example: [5, 3, 5, 5, 3] gives [0, 0, 1, 2, 1]. In sorted order 3 3 5 5 5 a key's place less the place where
    its group begins: 0 1 2 3 4 - 0 0 2 2 2.
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    found = np.empty(len(keys), np.int64)
    found[order] = np.arange(len(keys)) - np.searchsorted(ordered, ordered)
    return found


def moved_rows(old: Cache, new: Cache, pairs: Mapping[int, int]) -> tuple[MovedRows, ...]:
    """Count the rows that changed their split, or the code by which they are in none; the most first.

    Nothing where neither cache has a selection.

    `pairs`: as for :class:`CommonInputs`.
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
    """Splits and codes; the rows that are in one of them, by their keys; and in which.

    Returns:
        names of P places; keys of R rows, ascending, int64[R]; their places, int64[R]

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
    """None at all where the cache has no such split."""
    found = cache.documents(split) if split in cache.splits("documents") else DocumentShards(cache.folder, ())
    identity = found.doc_ids()
    if found.is_preference:
        margins = found.margins().view(np.int32)
        identity = digest_rows(np.column_stack([identity, found.sides(), margins]), []).view(np.int64)
    source, row = found.origins()
    return Documents(identity, row, inputs.keys(source, row, is_new=is_new))
