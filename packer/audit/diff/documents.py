"""Documents of two caches: how many they share, and which rows the others come from.

Documents are the same where their doc_ids are: it is a digest of ids, labels and weights. Those of preference data must
also have the same side and margin. Those that differ are reported by row. Rows are paired by the input they lie in and
their number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from packer.batches import Bool, Int64
from packer.store.cache import Cache
from packer.store.digest import digest_rows
from packer.store.document_shards import DocumentShards

ROW_BITS = 40
"""A row of an input is one number: that of the pair of inputs it lies in, and below it its own."""

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
class Documents:
    """The documents of one cache's split. N documents."""

    doc_id: Int64  # [N] of preference data, with the side and the margin
    row: Int64  # [N] of its input
    key: Int64  # [N] pair of inputs and row in one number

    @classmethod
    def of(cls, doc_id: Int64, source: Int64, row: Int64, inputs: Sequence[int], *, is_new: bool) -> Self:
        """Number the rows.

        Args:
            doc_id: int64[N]
            source: input of the manifest, -1 for none.  # int64[N]
            row: of that input.  # int64[N]
            inputs: of each pair, the input of this cache. An input i without a pair counts as pair P + 2i + 2 of the
                old cache, or P + 2i + 3 of the new one.
            is_new: which of them this is.

        """
        size = max([int(source.max(initial=0)), *inputs]) + 2
        pair_of = len(inputs) + 2 * np.arange(size, dtype=np.int64) + is_new
        pair_of[np.array(inputs, np.int64) + 1] = np.arange(len(inputs))
        return cls(doc_id=doc_id, row=row, key=(pair_of[source + 1] << ROW_BITS) | row)


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

    def __init__(
        self, split: str, old: Documents, new: Documents, old_inputs: Sequence[int], new_inputs: Sequence[int]
    ) -> None:
        self.split = split
        self._old, self._new = old, new
        self._inputs = old_inputs, new_inputs
        # Equal documents of one row belong together before equal documents of any two rows do.
        matched_old, matched_new = match_rows([old.key, old.doc_id], [new.key, new.doc_id])
        rest_old, rest_new = np.flatnonzero(~matched_old), np.flatnonzero(~matched_new)
        more_old, more_new = match_rows([old.doc_id[rest_old]], [new.doc_id[rest_new]])
        self._left_old, self._left_new = rest_old[~more_old], rest_new[~more_new]
        self._rows_old, self._rows_new = old.key[self._left_old], new.key[self._left_new]

    @classmethod
    def of(cls, old: Cache, new: Cache, split: str, pairs: Mapping[int, int]) -> Self:
        """The documents of two caches; `pairs`: input of the old one → input of the new one."""
        inputs = old.manifest.inputs, new.manifest.inputs
        chosen = any(cache.manifest.selection is not None for cache in (old, new))  # then rows of an input are anywhere
        own = [(a, b) for a, b in pairs.items() if chosen or inputs[0][a].split == inputs[1][b].split == split]
        ours, theirs = [a for a, _ in own], [b for _, b in own]
        return cls(
            split, _documents(old, split, ours, is_new=False), _documents(new, split, theirs, is_new=True), ours, theirs
        )

    def report(self) -> DocumentsDiff | None:
        """Counts; None where documents, their order and their rows are the same."""
        old, new = self._old, self._new
        if np.array_equal(old.doc_id, new.doc_id) and np.array_equal(old.row, new.row):
            return None
        return DocumentsDiff(
            split=self.split,
            only_old=len(self._left_old),
            only_new=len(self._left_new),
            both=len(old.doc_id) - len(self._left_old),
            rows_changed=len(np.intersect1d(self._rows_old, self._rows_new)),
            rows_only_old=len(np.setdiff1d(self._rows_old, self._rows_new)),
            rows_only_new=len(np.setdiff1d(self._rows_new, self._rows_old)),
        )

    def rows(self, most: int) -> list[ChangedRow]:
        """Up to `most` rows that differ: first those of both caches, and of each input the first before any second."""
        found: list[ChangedRow] = []
        for rows in (
            np.intersect1d(self._rows_old, self._rows_new),
            np.setdiff1d(self._rows_old, self._rows_new),
            np.setdiff1d(self._rows_new, self._rows_old),
        ):
            spread = np.lexsort((rows, occurrences(rows >> ROW_BITS)))
            found += [self._row(key) for key in rows[spread][: most - len(found)].tolist()]
        return found

    def _row(self, key: int) -> ChangedRow:
        pair, row = divmod(key, 1 << ROW_BITS)
        sources: tuple[int | None, ...]
        if pair < len(self._inputs[0]):
            sources = tuple(inputs[pair] for inputs in self._inputs)
        else:
            source, is_new = divmod(pair - len(self._inputs[0]) - 2, 2)
            sources = (None, source) if is_new else (source, None)
        old, new = (None if source is None else (source, row) for source in sources)
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


def _documents(cache: Cache, split: str, inputs: Sequence[int], *, is_new: bool) -> Documents:
    """None at all where the cache has no such split."""
    found = cache.documents(split) if split in cache.splits("documents") else DocumentShards(cache.folder, ())
    identity = found.doc_ids()
    if found.is_preference:
        margins = found.margins().view(np.int32)
        identity = digest_rows(np.column_stack([identity, found.sides(), margins]), []).view(np.int64)
    return Documents.of(identity, *found.origins(), inputs, is_new=is_new)
