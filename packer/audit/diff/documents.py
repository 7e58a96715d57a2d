"""Documents of two caches: how many they share, and which rows the others come from.

Documents are the same where their doc_ids are: it is a digest of ids, labels and weights. Those that differ are told by
row. Rows are paired by the input they lie in and their number; where an input itself changed, its rows may have moved,
so that a row's number is looked up by how far the last documents before it moved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from packer.audit.diff.multisets import match_rows, occurrences
from packer.audit.diff.report import DocumentsDiff
from packer.batches import Bool, Int64
from packer.store.document_shards import DocumentShards
from packer.store.manifest import Input

_ROW_BITS = 40
"""A row of an input is one number: that of the pair of inputs it lies in, and below it its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPairs:
    """Inputs of one split that are in both caches. P pairs."""

    old: Int64  # [P] number in the old manifest
    new: Int64  # [P]
    unchanged: Bool  # [P] whether the bytes are the same, so that rows keep their number

    @classmethod
    def of(cls, pairs: Mapping[int, int], old: Sequence[Input], new: Sequence[Input], split: str) -> Self:
        own = [(a, b) for a, b in pairs.items() if old[a].split == new[b].split == split]
        return cls(
            old=np.array([a for a, _ in own], np.int64),
            new=np.array([b for _, b in own], np.int64),
            unchanged=np.array([old[a].sha256 == new[b].sha256 for a, b in own], np.bool_),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The documents of one cache's split. N documents."""

    doc_id: Int64  # [N]
    source: Int64  # [N] input of the manifest
    row: Int64  # [N] of that input
    pair: Int64  # [N] number of the pair its input belongs to; -1 where it belongs to none

    @classmethod
    def of(cls, documents: DocumentShards, inputs: Int64, num_inputs: int) -> Self:
        """`inputs`: one input of each pair."""
        source, row = documents.origins()
        pair_of = np.full(num_inputs + 1, -1, np.int64)  # the last entry is for documents that name no input
        pair_of[inputs] = np.arange(len(inputs))
        return cls(doc_id=documents.doc_ids(), source=source, row=row, pair=pair_of[source])

    @property
    def place(self) -> Int64:
        """Pair and row in one number; -1 where there is no pair.  # int64[N]"""
        return np.where(self.pair < 0, -1, (self.pair << _ROW_BITS) | self.row)

    @property
    def origin(self) -> Int64:
        """Input and row in one number.  # int64[N]"""
        return (self.source << _ROW_BITS) | self.row


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRow:
    """A row whose documents differ. On each side the first document that the other cache does not have."""

    source_old: int | None
    row_old: int | None
    """Where the row is, or would be, in OLD; None where its input is not in OLD."""

    source_new: int | None
    row_new: int | None
    document_old: int | None
    """Number in its split; None where OLD has nothing of its own of this row."""

    document_new: int | None
    num_old: int
    """Documents of the row that NEW does not have."""

    num_new: int


class DocumentComparison:
    """The documents of a split in two caches."""

    def __init__(self, split: str, old: Side, new: Side, pairs: InputPairs) -> None:
        self._split = split
        self._old, self._new = old, new
        self._pairs = pairs
        # Equal documents of one row belong together before equal documents of any two rows do.
        places_old, places_new = old.place, np.where(new.pair < 0, -2, new.place)
        matched_old, matched_new = match_rows([places_old, old.doc_id], [places_new, new.doc_id])
        rest_old, rest_new = np.flatnonzero(~matched_old), np.flatnonzero(~matched_new)
        more_old, more_new = match_rows([old.doc_id[rest_old]], [new.doc_id[rest_new]])
        self._both = int(matched_old.sum()) + int(more_old.sum())
        self._left_old, self._left_new = rest_old[~more_old], rest_new[~more_new]
        self._moved = _Moved.of(old, new, pairs)
        self._expected_new = self._moved.forward(old.place[self._left_old])
        self._expected_old = self._moved.backward(new.place[self._left_new])
        is_paired = np.isin(self._expected_new, new.place[self._left_new]) & (self._expected_new >= 0)
        self._paired_old = is_paired
        self._paired_new = np.isin(new.place[self._left_new], self._expected_new[is_paired])

    def report(self) -> DocumentsDiff | None:
        """Counts; None where documents, their order and their rows are the same."""
        old, new = self._old, self._new
        if np.array_equal(old.doc_id, new.doc_id) and np.array_equal(old.row, new.row):
            return None
        only_old, only_new = self._left_old[~self._paired_old], self._left_new[~self._paired_new]
        return DocumentsDiff(
            split=self._split,
            only_old=len(self._left_old),
            only_new=len(self._left_new),
            both=self._both,
            rows_changed=len(np.unique(new.place[self._left_new[self._paired_new]])),
            rows_only_old=len(np.unique(old.origin[only_old])),
            rows_only_new=len(np.unique(new.origin[only_new])),
        )

    def rows(self, most: int) -> list[ChangedRow]:
        """Up to `most` rows that differ: first those of both caches, and of each input the first before any second."""
        left_new = self._new.place[self._left_new]
        places = np.unique(left_new[self._paired_new])
        chosen = places[_spread(places >> _ROW_BITS, most)].tolist()
        found = [self._row(self._expected_new == place, left_new == place) for place in chosen]
        for is_old in (True, False):
            side, left, paired = (
                (self._old, self._left_old, self._paired_old)
                if is_old
                else (self._new, self._left_new, self._paired_new)
            )
            origins = side.origin[left]
            own = np.unique(origins[~paired])
            for origin in own[_spread(own >> _ROW_BITS, most - len(found))].tolist():
                here, nowhere = origins == origin, np.zeros(0, np.bool_)
                found.append(self._row(here, nowhere) if is_old else self._row(nowhere, here))
        return found

    def _row(self, is_old: Bool, is_new: Bool) -> ChangedRow:
        """The row that some of the documents left over on each side are of."""
        old, new = self._left_old[np.flatnonzero(is_old)], self._left_new[np.flatnonzero(is_new)]
        source_old, row_old = (
            self._place(self._old, old) if len(old) else self._where(self._pairs.old, is_new, old=True)
        )
        source_new, row_new = (
            self._place(self._new, new) if len(new) else self._where(self._pairs.new, is_old, old=False)
        )
        return ChangedRow(
            source_old=source_old,
            row_old=row_old,
            source_new=source_new,
            row_new=row_new,
            document_old=int(old[0]) if len(old) else None,
            document_new=int(new[0]) if len(new) else None,
            num_old=len(old),
            num_new=len(new),
        )

    @staticmethod
    def _place(side: Side, numbers: Int64) -> tuple[int, int]:
        return int(side.source[numbers[0]]), int(side.row[numbers[0]])

    def _where(self, inputs: Int64, documents: Bool, *, old: bool) -> tuple[int | None, int | None]:
        """Input and row in a cache that should hold these documents of the other one, and does not."""
        expected = int((self._expected_old if old else self._expected_new)[np.flatnonzero(documents)[0]])
        if expected < 0:
            return None, None
        return int(inputs[expected >> _ROW_BITS]), expected & ((1 << _ROW_BITS) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """Documents that are once in each cache, in the same pair of inputs: what tells how far rows moved. A of them."""

    old: Int64  # [A] places
    new: Int64  # [A]
    unchanged: Bool  # [P] pairs of inputs in which nothing moved

    @classmethod
    def of(cls, old: Side, new: Side, pairs: InputPairs) -> Self:
        once_old, once_new = _once(old.doc_id), _once(new.doc_id)
        _, first, second = np.intersect1d(
            old.doc_id[once_old], new.doc_id[once_new], assume_unique=True, return_indices=True
        )
        places_old, places_new = old.place[once_old[first]], new.place[once_new[second]]
        together = (places_old >= 0) & (places_old >> _ROW_BITS == places_new >> _ROW_BITS)
        return cls(old=places_old[together], new=places_new[together], unchanged=pairs.unchanged)

    def forward(self, places: Int64) -> Int64:
        """Where rows of OLD are to be looked for in NEW; -1 where their input is not there."""
        return self._follow(places, self.old, self.new)

    def backward(self, places: Int64) -> Int64:
        return self._follow(places, self.new, self.old)

    def _follow(self, places: Int64, here: Int64, there: Int64) -> Int64:
        """Worked example: where row 8 became 9 and row 12 became 12, row 9 is looked for at 10 and row 13 at 13."""
        order = np.argsort(here, kind="stable")
        here, shift = here[order], (there - here)[order]
        before = np.searchsorted(here, places, side="right") - 1
        pair = places >> _ROW_BITS
        known = (places >= 0) & (before >= 0)
        known[known] = here[before[known]] >> _ROW_BITS == pair[known]
        known[known] = ~self.unchanged[pair[known]]
        followed = places.copy()
        followed[known] += shift[before[known]]
        return followed


def _once(doc_ids: Int64) -> Int64:
    """Numbers of the documents that no other one equals."""
    _, first, counts = np.unique(doc_ids, return_index=True, return_counts=True)
    numbers: Int64 = first[counts == 1]
    return numbers


def _spread(groups: Int64, most: int) -> Int64:
    """Up to `most` places of a list, the first of each group before any second one."""
    order = np.lexsort((np.arange(len(groups)), occurrences(groups)))
    return order[: max(most, 0)]
