"""Finds duplicates: of rows with the same or nearly the same content, the first is kept and the others are dropped.

Near copies are verified by the Jaccard similarity of their shingles. Rows are processed in an order of preference. Rows
with equal sets of shingles are treated as one row and its copies. The others are compared if they share a band; within
a band, each row is compared with the first 64, so that a corpus generated from a template does not take quadratic time.

A row is dropped if it is a near copy of an earlier row *that is kept*. The alternative, connected components, drops
rows that are not similar to any row that is kept: A ~ B ~ C drops C, though it is not similar to A.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packer.batches import Bool, Int64, UInt64
from packer.curate.signatures import MOST_SHINGLES, NUM_BANDS, Signatures, mixed, pieces
from packer.layout import begins_run, concatenated_ranges

MOST_COMPARED = 64
"""Number of rows sharing a band that each later row of the band is compared with."""

_PIECE_SHINGLES = 2**21
"""Shingles of the pairs that are verified together."""

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedRows:
    """D rows that are dropped in favor of another one."""

    row: Int64  # [D]
    kept: Int64  # [D] the row each lost to
    similarity: npt.NDArray[np.floating]  # [D]
    num_capped: int = 0
    """Bands shared by more than 64 rows, in which not all rows were compared with each other."""


def exact_duplicates(keys: npt.NDArray[np.bytes_], order: Int64) -> DroppedRows:
    """Find rows whose key also belongs to an earlier row of the order.

    Worked example: keys a, b, a, a in the order 3, 0, 1, 2: rows 0 and 2 lose to row 3.

    Args:
        keys: of every row.  # [N]
        order: the rows to compare, in order of preference.  # int64[M]
    """
    _, first, key = np.unique(keys[order], return_index=True, return_inverse=True)
    first = first[key.reshape(-1)]
    lost = np.flatnonzero(first != np.arange(len(order)))
    return DroppedRows(row=order[lost], kept=order[first[lost]], similarity=np.ones(len(lost)))


def lost_to_held_out(
    rows: Signatures, keys: npt.NDArray[np.bytes_], held: Int64, trained: Int64, jaccard: float
) -> DroppedRows:
    """Find training rows that are copies or near copies of a held-out row.

    Args:
        rows: signatures of every row.
        keys: of every row; equal for copies.  # [N]
        held: held-out rows.  # int64[H]
        trained: training rows.  # int64[M]
        jaccard: minimum similarity of a near copy.
    """
    near = nearest(rows, held, trained, jaccard)
    same = exact_duplicates(keys, np.concatenate([held, trained]))
    copied = np.isin(same.kept, held) & ~np.isin(same.row, held)
    rest = ~np.isin(near.row, same.row[copied])
    return DroppedRows(
        row=np.concatenate([same.row[copied], near.row[rest]]),
        kept=np.concatenate([same.kept[copied], near.kept[rest]]),
        similarity=np.concatenate([same.similarity[copied], near.similarity[rest]]),
        num_capped=near.num_capped,
    )


def near_duplicates(signatures: Signatures, order: Int64, jaccard: float) -> DroppedRows:
    """Find rows that are near copies of an earlier row that is kept.

    Args:
        signatures: of all rows.
        order: the rows, in order of preference.  # int64[M]
        jaccard: minimum similarity of a near copy, above 0.
    """
    groups = _Groups(signatures, order)
    pairs = _verified(signatures, order, groups.first, jaccard, num_first=None)
    of, similarity = np.full(len(order), -1), np.zeros(len(order))
    for first, second, found in zip(pairs.first.tolist(), pairs.second.tolist(), pairs.jaccard.tolist(), strict=True):
        # `first` is already decided: pairs are ordered by `second`, and first < second.
        if of[first] < 0 and found > similarity[second]:
            of[second], similarity[second] = first, found
    copies = np.flatnonzero(groups.first_of != np.arange(len(order)))
    originals = groups.first_of[copies]
    of[copies] = np.where(of[originals] < 0, originals, of[originals])
    similarity[copies] = np.where(similarity[originals] == 0, 1.0, similarity[originals])
    lost = np.flatnonzero(of >= 0)
    return DroppedRows(row=order[lost], kept=order[of[lost]], similarity=similarity[lost], num_capped=pairs.num_capped)


def nearest(signatures: Signatures, among: Int64, rows: Int64, jaccard: float) -> DroppedRows:
    """Find, for each of `rows`, the most similar row in `among`, if it is similar enough.

    Args:
        signatures: of all rows.
        among: rows to search, which may be dropped themselves; ties go to the earliest.  # int64[H]
        rows: rows to find near copies of, disjoint from `among`.  # int64[M]
        jaccard: minimum similarity of a near copy, above 0.
    """
    order = np.concatenate([among, rows])
    groups = _Groups(signatures, order)
    pairs = _verified(signatures, order, groups.first, jaccard, num_first=len(among))
    of, similarity = np.full(len(order), -1), np.zeros(len(order))
    best = np.lexsort((pairs.first, -pairs.jaccard, pairs.second))
    best = best[begins_run(pairs.second[best])]
    of[pairs.second[best]], similarity[pairs.second[best]] = pairs.first[best], pairs.jaccard[best]
    original = groups.first_of[len(among) :]
    is_copy = (original < len(among)) & groups.has_shingles[len(among) :]
    kept, similarity = np.where(is_copy, original, of[original]), np.where(is_copy, 1.0, similarity[original])
    lost = np.flatnonzero(kept >= 0)
    return DroppedRows(row=rows[lost], kept=order[kept[lost]], similarity=similarity[lost], num_capped=pairs.num_capped)


class _Groups:
    """Positions of an order, grouped by rows with equal sets of shingles."""

    def __init__(self, signatures: Signatures, order: Int64) -> None:
        counts = np.diff(signatures.offsets)
        self.has_shingles: Bool = counts[order] > 0
        whole = np.zeros(len(counts), np.uint64)
        for first, last in pieces(signatures.offsets, _PIECE_SHINGLES):
            start, stop = signatures.offsets[[first, last]]
            filled = first + np.flatnonzero(counts[first:last])
            if len(filled):
                numbers = mixed(signatures.shingles[start:stop].astype(np.uint64) + np.uint64(1))
                whole[filled] = np.add.reduceat(numbers, signatures.offsets[filled] - start)
        _, first_with, group = np.unique(whole[order], return_index=True, return_inverse=True)
        self.first_of: Int64 = np.where(self.has_shingles, first_with[group.reshape(-1)], np.arange(len(order)))
        """[M] position of the first row with the same set; its own for a row without words."""

        self.first: Int64 = np.flatnonzero((self.first_of == np.arange(len(order))) & self.has_shingles)
        """Positions of rows that are the first with their set, ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """Positions of near copies, first < second, in the order of `second`."""

    first: Int64
    second: Int64
    jaccard: npt.NDArray[np.float64]
    num_capped: int


def _verified(signatures: Signatures, order: Int64, places: Int64, jaccard: float, num_first: int | None) -> _Pairs:
    """Return all pairs of these positions that share a band and are similar; with `num_first` only pairs across it."""
    seen, num_capped = np.zeros(0, np.uint64), 0
    found, similarities = [np.zeros(0, np.uint64)], [np.zeros(0)]
    for band in range(NUM_BANDS):
        keys = (signatures.bands[order[places], band].astype(np.uint64) << _HALF) | places.astype(np.uint64)
        candidates, capped = _candidates(keys, num_first)
        num_capped += capped
        new = np.setdiff1d(candidates, seen, assume_unique=True)
        seen = np.sort(np.concatenate([seen, new]))
        for piece in _pieces(signatures, order, new):
            similarity = _jaccard(
                signatures, order[(piece & _LOW).astype(np.int64)], order[(piece >> _HALF).astype(np.int64)]
            )
            near = similarity >= jaccard
            found.append(piece[near])
            similarities.append(similarity[near])
    pairs = np.concatenate(found)
    ascending = np.argsort(pairs)
    pairs = pairs[ascending]
    return _Pairs(
        first=(pairs & _LOW).astype(np.int64),
        second=(pairs >> _HALF).astype(np.int64),
        jaccard=np.concatenate(similarities)[ascending],
        num_capped=num_capped,
    )


def _candidates(keys: UInt64, num_first: int | None) -> tuple[UInt64, int]:
    """Return pairs of positions that share a key, as ``second << 32 | first``, and the number of keys that were capped.

    Worked example: keys a, a, b, a of the positions 0 … 3 yield the pairs (0, 1), (0, 3) and (1, 3).

    Args:
        keys: ``key << 32 | position``, in any order.  # uint64[P]
        num_first: if given, each pair has one position below it and one at or above it.
    """
    keys = np.sort(keys)
    start = np.flatnonzero(begins_run(keys >> _HALF))
    sizes = np.diff(start, append=len(keys))
    place = (keys & _LOW).astype(np.int64)
    rank = concatenated_ranges(np.zeros(len(start), np.int64), sizes)
    if num_first is None:
        partners = np.minimum(rank, MOST_COMPARED)
        capped = int((sizes > MOST_COMPARED + 1).sum())
    else:
        held = np.add.reduceat(place < num_first, start) if len(start) else start
        partners = np.where(place < num_first, 0, np.repeat(np.minimum(held, MOST_COMPARED), sizes))
        capped = int(((held > MOST_COMPARED) & (held < sizes)).sum())
    first = place[concatenated_ranges(np.repeat(start, sizes), partners)]
    second = np.repeat(place, partners)
    return (second.astype(np.uint64) << _HALF) | first.astype(np.uint64), capped


def _pieces(signatures: Signatures, order: Int64, pairs: UInt64) -> Iterator[UInt64]:
    """Yield pairs in pieces whose shingles fit in memory."""
    counts = np.diff(signatures.offsets)[order]
    size = np.cumsum(counts[(pairs & _LOW).astype(np.int64)] + counts[(pairs >> _HALF).astype(np.int64)])
    if len(pairs):
        cuts = np.searchsorted(size, np.arange(_PIECE_SHINGLES, int(size[-1]), _PIECE_SHINGLES), "right")
        yield from np.split(pairs, np.unique(cuts))


def _jaccard(signatures: Signatures, first: Int64, second: Int64) -> npt.NDArray[np.float64]:
    """Return the similarity of pairs of rows, each with shingles.  # float64[P]

    The shingles of both rows become keys ``pair << 32 | shingle``; after sorting, a common shingle appears twice in a
    row.
    """
    start, stop = signatures.offsets[:-1], signatures.offsets[1:]
    largest = (
        np.where(stop - start < MOST_SHINGLES, np.uint32(0xFFFFFFFF), signatures.shingles[np.maximum(stop, 1) - 1])
        if len(signatures.shingles)
        else np.zeros(len(start), np.uint32)
    )
    bound = np.minimum(largest[first], largest[second])
    keys = []
    for rows in (first, second):
        counts = stop[rows] - start[rows]
        shingles = signatures.shingles[concatenated_ranges(start[rows], counts)]
        pair = np.repeat(np.arange(len(rows), dtype=np.uint64) << _HALF, counts)
        keys.append((pair | shingles)[shingles <= np.repeat(bound, counts)])
    both = np.concatenate(keys)
    both.sort()
    shared = np.bincount((both[1:][both[1:] == both[:-1]] >> _HALF).astype(np.int64), minlength=len(first))
    total = np.bincount((both >> _HALF).astype(np.int64), minlength=len(first)) - shared
    similarity: npt.NDArray[np.float64] = shared / np.maximum(total, 1)
    return similarity
