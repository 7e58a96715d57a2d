"""Finds duplicates: of rows with the same or nearly the same content, the first is kept and the others are dropped.

Near copies are verified by the Jaccard similarity of their shingles. Rows are processed in an order of precedence. Rows
with equal sets of shingles are treated as one row and its copies. The others are compared if they share a band. The
rows of one band are a bucket; each is compared with the first 64 of it, so that a corpus generated from a template does
not take quadratic time.

A row is dropped if it is a near copy of an earlier row *that is kept*. The alternative, connected components, drops
rows that are not similar to any row that is kept: A ~ B ~ C drops C, though it is not similar to A.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from packer.batches import Bool, Int64, UInt64
from packer.curate.signatures import MOST_SHINGLES, NUM_BANDS, Signatures, mixed, ranges_of
from packer.layout import begins_run, concatenated_ranges, values_of

MOST_COMPARED = 64
"""Number of rows of a bucket that each later row of it is compared with; at most 64, the bits of a number."""

_SMALL_BUCKET = 8
"""Buckets of up to this many rows are compared pair by pair, larger ones by a table.

Of 200,000 rows of 300 templates, the decision took 12.7 s so, and 31.9 s with tables only for buckets of more than 64.
With tables for all buckets, 100,000 rows with many near duplicates took 7.1 s instead of 0.6 s: a pair is compared
once, and by a table in each bucket that it shares.
"""

_PIECE_SHINGLES, _PIECE_ROWS = 2**21, 512
"""How many are in memory at a time, as arrays of their own."""

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

    def only(self, mask: Bool) -> "DroppedRows":
        """Return some of the rows.  # bool[D]"""
        return replace(self, row=self.row[mask], kept=self.kept[mask], similarity=self.similarity[mask])


def exact_duplicates(keys: npt.NDArray[np.bytes_] | UInt64, order: Int64) -> DroppedRows:
    """Find rows whose key, of `keys` [N], also belongs to an earlier row of `order`, by precedence [M].

    Worked example: keys a, b, a, a in the order 3, 0, 1, 2: rows 0 and 2 lose to row 3.
    """
    _, first, key = np.unique(keys[order], return_index=True, return_inverse=True)
    first = first[key.reshape(-1)]
    lost = np.flatnonzero(first != np.arange(len(order)))
    return DroppedRows(row=order[lost], kept=order[first[lost]], similarity=np.ones(len(lost)))


def copies_of(keys: npt.NDArray[np.bytes_] | UInt64, among: Int64, rows: Int64) -> DroppedRows:
    """Find those of `rows` [M] whose key, of `keys` [N], a row in `among` [H] has, too; the first such row is named."""
    return _across(exact_duplicates(keys, np.concatenate([among, rows])), among, rows)


def lost_to_held_out(
    rows: Signatures, keys: npt.NDArray[np.bytes_], held: Int64, trained: Int64, jaccard: float
) -> DroppedRows:
    """Find rows in `trained` [M] that are copies (of one key) or near copies of a row in `held` [H]."""
    same, near = copies_of(keys, held, trained), nearest(rows, held, trained, jaccard)
    rest = near.only(~np.isin(near.row, same.row))
    return DroppedRows(
        row=np.concatenate([same.row, rest.row]),
        kept=np.concatenate([same.kept, rest.kept]),
        similarity=np.concatenate([same.similarity, rest.similarity]),
        num_capped=near.num_capped,
    )


def near_duplicates(
    signatures: Signatures, order: Int64, jaccard: float, *, num_first: int | None = None
) -> DroppedRows:
    """Find rows that are near copies, similar by `jaccard` > 0, of an earlier row of `order` [M] that is kept.

    Each loses to the most similar one, the earliest of equals. With `num_first`, rows are compared only across
    that position, but those of equal shingles, of which only the first is kept: callers leave those out.
    """
    has_shingles, first_of = np.diff(signatures.offsets)[order] > 0, _first_alike(signatures, order)
    is_copy = first_of != np.arange(len(order))
    candidates = np.flatnonzero(has_shingles & ~is_copy)
    pairs, similarities, num_capped = _verified(signatures, order, candidates, jaccard, num_first)
    lost_to, similarity = np.full(len(order), -1), np.zeros(len(order))
    for first, second, found in values_of(*_positions_of(pairs), similarities):
        # `first` is already decided: pairs are ordered by `second`, and first < second.
        if lost_to[first] < 0 and found > similarity[second]:
            lost_to[second], similarity[second] = first, found
    copies, originals = np.flatnonzero(is_copy), first_of[is_copy]
    lost_to[copies] = np.where(lost_to[originals] < 0, originals, lost_to[originals])
    similarity[copies] = np.where(similarity[originals] == 0, 1.0, similarity[originals])
    lost, kept = np.flatnonzero(lost_to >= 0), lost_to[lost_to >= 0]
    return DroppedRows(row=order[lost], kept=order[kept], similarity=similarity[lost], num_capped=num_capped)


def nearest(signatures: Signatures, among: Int64, rows: Int64, jaccard: float) -> DroppedRows:
    """Find, for each of `rows` [M], the most similar row in `among` [H], if it is similar by `jaccard` > 0.

    The two are disjoint. Rows to search may be dropped themselves; ties go to the earliest.
    """
    found = near_duplicates(signatures, np.concatenate([among, rows]), jaccard, num_first=len(among))
    return _across(found, among, rows)


def _across(found: DroppedRows, among: Int64, rows: Int64) -> DroppedRows:
    return found.only(np.isin(found.row, rows) & np.isin(found.kept, among))


def _first_alike(signatures: Signatures, order: Int64) -> Int64:
    """Return the position of the first row with the same set of shingles; its own for a row without words.  # [M]"""
    counts = np.diff(signatures.offsets)
    whole = np.zeros(len(counts), np.uint64)
    for first, last in ranges_of(signatures.offsets, _PIECE_SHINGLES):
        start, stop = signatures.offsets[[first, last]]
        filled = first + np.flatnonzero(counts[first:last])
        if len(filled):
            numbers = mixed(signatures.shingles[start:stop].astype(np.uint64) + np.uint64(1))
            whole[filled] = np.add.reduceat(numbers, signatures.offsets[filled] - start)
    _, first_with, group = np.unique(whole[order], return_index=True, return_inverse=True)
    return np.where(counts[order] > 0, first_with[group.reshape(-1)], np.arange(len(order)))


def _verified(
    signatures: Signatures, order: Int64, positions: Int64, jaccard: float, num_first: int | None
) -> tuple[UInt64, npt.NDArray[np.float64], int]:
    """Return all pairs of these positions that share a band and are similar; with `num_first` only pairs across it.

    The pairs are in the order of their second position, with their similarity and the number of capped buckets.
    """
    largest = _largest(signatures)
    seen, num_capped = np.zeros(0, np.uint64), 0
    found, similarities = np.zeros(0, np.uint64), np.zeros(0)
    for band in range(NUM_BANDS):
        of_rows = signatures.bands[order[positions], band].astype(np.uint64)
        candidates = _Candidates((of_rows << _HALF) | positions.astype(np.uint64), num_first)
        num_capped += candidates.num_capped
        new = np.setdiff1d(candidates.pairs(), seen, assume_unique=True)
        seen = np.sort(np.concatenate([seen, new]))
        near = [(found, similarities)]
        for piece in _pieces(signatures, order, new):
            first, second = _positions_of(piece)
            near.append(_near(piece, _jaccard(signatures, largest, order[first], order[second]), jaccard))
        for first, bucket, rows in candidates.large_buckets():
            similarity = _bucket_jaccard(signatures, largest, order, first=first, bucket=bucket, rows=rows)
            row, of = np.nonzero((first >= 0)[bucket] & (first[bucket] < rows[:, None]))
            near.append(_near(_pair_keys(first[bucket[row], of], rows[row]), similarity[row, of], jaccard))
        # A pair may share several large buckets.
        found, kept = np.unique(np.concatenate([pairs for pairs, _ in near]), return_index=True)
        similarities = np.concatenate([similarity for _, similarity in near])[kept]
    return found, similarities, num_capped


class _Candidates:
    """The positions to compare: those that share a key, their bucket, each with the first 64 of those before it.

    Keys are ``key << 32 | position``. With `num_first`, each pair has one position below it and one at or above it.
    Worked example: keys a, a, b, a of the positions 0 … 3 yield the pairs (0, 1), (0, 3) and (1, 3).
    """

    def __init__(self, keys: UInt64, num_first: int | None) -> None:
        keys = np.sort(keys)
        self._place = (keys & _LOW).astype(np.int64)
        self._start = np.flatnonzero(begins_run(keys >> _HALF))
        self._sizes = np.diff(self._start, append=len(keys))
        self._num_first = num_first
        if num_first is None or not len(keys):
            self._num_held, has_pairs = self._sizes, self._sizes > 1
        else:
            self._num_held = np.add.reduceat(self._place < num_first, self._start)
            has_pairs = (self._num_held > 0) & (self._num_held < self._sizes)
        self._is_large = has_pairs & (self._sizes > _SMALL_BUCKET)
        self.num_capped = int((has_pairs & (self._sizes > MOST_COMPARED + 1) & (self._num_held > MOST_COMPARED)).sum())
        """Number of buckets of which not all pairs are compared."""

    def pairs(self) -> UInt64:
        """Return the pairs of all small buckets, as ``second << 32 | first``."""
        if self._num_first is None:
            num_partners = concatenated_ranges(np.zeros(len(self._start), np.int64), self._sizes)
        else:
            num_partners = np.where(self._place < self._num_first, 0, np.repeat(self._num_held, self._sizes))
        num_partners[np.repeat(self._is_large, self._sizes)] = 0
        first = self._place[concatenated_ranges(np.repeat(self._start, self._sizes), num_partners)]
        return _pair_keys(first, np.repeat(self._place, num_partners))

    def large_buckets(self) -> Iterator[tuple[Int64, Int64, Int64]]:
        """Yield the positions of all other buckets, some buckets at a time: ``first``, ``bucket`` and ``rows``.

        `first` are the first positions of each of B buckets; -1 for none.  # int64[B, 64]
        `rows` are positions to compare with them, `bucket` the number of their bucket.  # int64[R] each
        Of each pair, the smaller position is the first.
        """
        start, sizes, num_held = (values[self._is_large] for values in (self._start, self._sizes, self._num_held))
        skipped = np.zeros_like(start) if self._num_first is None else num_held
        rows = self._place[concatenated_ranges(start + skipped, sizes - skipped)]
        bucket = np.repeat(np.arange(len(start)), sizes - skipped)
        for begin in range(0, len(rows), _PIECE_ROWS):
            own = bucket[begin : begin + _PIECE_ROWS]
            these = slice(own[0], own[-1] + 1)
            rank = np.arange(64)
            is_first = rank < np.minimum(num_held[these], MOST_COMPARED)[:, None]
            first = np.where(is_first, self._place[np.minimum(start[these, None] + rank, len(self._place) - 1)], -1)
            yield first, own - own[0], rows[begin : begin + _PIECE_ROWS]


def _pair_keys(first: Int64, second: Int64) -> UInt64:
    """Return pairs of positions as ``second << 32 | first``, so that they sort by the second one."""
    return (second.astype(np.uint64) << _HALF) | first.astype(np.uint64)


def _positions_of(pairs: UInt64) -> tuple[Int64, Int64]:
    return (pairs & _LOW).astype(np.int64), (pairs >> _HALF).astype(np.int64)


def _near(pairs: UInt64, similarity: npt.NDArray[np.float64], jaccard: float) -> tuple[UInt64, npt.NDArray[np.float64]]:
    """Return the pairs that are similar by `jaccard` or more, with their similarity."""
    is_near = similarity >= jaccard
    return pairs[is_near], similarity[is_near]


def _pieces(signatures: Signatures, order: Int64, pairs: UInt64) -> Iterator[UInt64]:
    """Yield pairs in pieces whose shingles fit in memory."""
    counts = np.diff(signatures.offsets)[order]
    first, second = _positions_of(pairs)
    size = np.cumsum(counts[first] + counts[second])
    if len(pairs):
        cuts = np.searchsorted(size, np.arange(_PIECE_SHINGLES, int(size[-1]), _PIECE_SHINGLES), "right")
        yield from np.split(pairs, np.unique(cuts))


def _largest(signatures: Signatures) -> npt.NDArray[np.uint32]:
    """Return the largest shingle up to which each row can be compared.  # uint32[N]"""
    largest = np.full(len(signatures.offsets) - 1, 0xFFFFFFFF, np.uint32)
    sampled = np.flatnonzero(np.diff(signatures.offsets) == MOST_SHINGLES)
    largest[sampled] = signatures.shingles[signatures.offsets[sampled + 1] - 1]
    return largest


def _jaccard(
    signatures: Signatures, largest: npt.NDArray[np.uint32], first: Int64, second: Int64
) -> npt.NDArray[np.float64]:
    """Return the similarity of pairs of rows, each with shingles.  # float64[P]

    The shingles of both rows become keys ``pair << 32 | shingle``; after sorting, a common shingle appears twice in a
    row.
    """
    start, stop = signatures.offsets[:-1], signatures.offsets[1:]
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


def _bucket_jaccard(
    signatures: Signatures, largest: npt.NDArray[np.uint32], order: Int64, *, first: Int64, bucket: Int64, rows: Int64
) -> npt.NDArray[np.float64]:
    """Return the similarity of rows to up to 64 others of their bucket, as :func:`_jaccard` does.  # float64[R, 64]

    The others are at `first` [B, 64], -1 for none; row i is in bucket ``bucket[i]`` [R].
    """
    bucket_of, rank = np.nonzero(first >= 0)
    first_rows, row_rows = order[first[bucket_of, rank]], order[rows]
    firsts, compared = signatures.rows(first_rows), signatures.rows(row_rows)
    num_shared = _num_shared(firsts, bucket_of, rank, compared, bucket)
    number_of_first = np.zeros(first.shape, np.int64)
    number_of_first[bucket_of, rank] = np.arange(len(first_rows))
    other = number_of_first[bucket]  # [R, 64]
    total = _num_up_to(compared, np.arange(len(row_rows))[:, None], largest[first_rows][other])
    total = total + _num_up_to(firsts, other, largest[row_rows][:, None]) - num_shared
    similarity: npt.NDArray[np.float64] = num_shared / np.maximum(total, 1)
    return similarity


def _num_shared(firsts: Signatures, bucket_of: Int64, rank: Int64, rows: Signatures, bucket: Int64) -> Int64:
    """Return how many shingles each row shares with the first rows of its bucket.  # int64[R, 64]

    The shingles of the first rows, each of a rank below 64 in its bucket, form a table, with a bit for each that has
    the shingle; every row looks each of its shingles up once.
    """
    num_shingles = np.diff(firsts.offsets)
    keys = (np.repeat(bucket_of, num_shingles).astype(np.uint64) << _HALF) | firsts.shingles
    by_key = np.argsort(keys, kind="stable")
    keys = keys[by_key]
    bits = np.uint64(1) << np.repeat(rank, num_shingles).astype(np.uint64)[by_key]
    begin = np.flatnonzero(begins_run(keys))
    table_keys, table_bits = keys[begin], np.bitwise_or.reduceat(bits, begin)

    row_of_shingle = np.repeat(np.arange(len(bucket)), np.diff(rows.offsets))
    row_keys = (bucket[row_of_shingle].astype(np.uint64) << _HALF) | rows.shingles
    at = np.minimum(np.searchsorted(table_keys, row_keys), len(table_keys) - 1)
    hits = np.flatnonzero(table_keys[at] == row_keys)
    row_bits = table_bits[at[hits]].astype("<u8").view(np.uint8).reshape(-1, 8)
    is_shared = np.unpackbits(row_bits, axis=1, bitorder="little")  # [hits, 64] which of the first have the shingle
    num_shared = np.zeros((len(bucket), 64), np.int64)
    begin = np.flatnonzero(begins_run(row_of_shingle[hits]))
    if len(begin):
        num_shared[row_of_shingle[hits[begin]]] = np.add.reduceat(is_shared, begin, axis=0, dtype=np.int64)
    return num_shared


def _num_up_to(signatures: Signatures, rows: Int64, bounds: npt.NDArray[np.uint32]) -> Int64:
    """Return how many shingles of each row are at most its bound.  # int64, of the common shape of both"""
    counts = np.diff(signatures.offsets)
    if bounds.min() == 0xFFFFFFFF:
        return counts[rows]
    keys = np.repeat(np.arange(len(counts), dtype=np.uint64) << _HALF, counts) | signatures.shingles
    asked = (rows.astype(np.uint64) << _HALF) | bounds
    return np.searchsorted(keys, asked, "right") - signatures.offsets[rows]
