"""Rows of many shards under one numbering, each shard mapped when its first row is asked for.

A chunk is one record batch of one shard. Rows are numbered through all shards in their order.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar, cast

import numpy as np

from packer.batches import Bool, Int64, UInt64
from packer.errors import CheckError
from packer.store.arrow_columns import BlockRows, DocumentRows
from packer.store.manifest import Shard
from packer.store.mapping import MappedShard, map_shard, repair_hint
from packer.store.schema import Kind
from packer.store.views import block_rows, document_rows, flat_view

Rows = TypeVar("Rows", DocumentRows, BlockRows)

_FEW = 4
"""Rows a record batch, on average, below which rows are verified one at a time."""


class Chunks(Generic[Rows]):
    """The record batches of some shards of one kind.

    Args:
        folder: the cache.
        shards: in the order that numbers the rows.
        kind: what all of them hold.
        mmap: reach values through a map of the file; False reads them.

    Raises:
        CheckError: a shard's places do not add up to its rows.
        ValueError: a shard of another kind.

    """

    def __init__(self, folder: Path, shards: Sequence[Shard], *, kind: Kind, mmap: bool = True) -> None:
        self.folder = folder
        self.shards = tuple(shards)
        view = document_rows if kind == "documents" else block_rows
        self._view: Callable[..., Rows] = cast("Callable[..., Rows]", view)
        self.mmap = mmap
        for shard in self.shards:
            if shard.kind != kind:
                raise ValueError(f"expected shards of {kind}, found {shard.path}")
            if sum(place.num_rows for place in shard.places) != shard.num_rows:
                raise CheckError(f"{shard.path}: its places do not add up to its rows", hint=repair_hint(folder))
        sizes = [place.num_rows for shard in self.shards for place in shard.places]
        self.bounds = np.zeros(len(sizes) + 1, np.int64)  # first row of each chunk, then the total
        np.cumsum(sizes, out=self.bounds[1:])
        self.shard_of = [i for i, shard in enumerate(self.shards) for _ in shard.places]
        self._place_of = [i for shard in self.shards for i in range(len(shard.places))]
        self._mapped: list[MappedShard | None] = [None] * len(self.shards)
        self._opened: list[tuple[Rows, UInt64] | None] = [None] * len(sizes)
        self._checked: Bool = np.zeros(len(self), np.bool_)
        self._vouched: set[int] = set()  # shards whose row digests are those the manifest knows

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def __getitem__(self, chunk: int) -> tuple[Rows, UInt64]:
        """Rows of a chunk and their stored digests, none of them checked yet.

        Raises:
            CheckError: the shard's size or structure is not what the manifest says.

        """
        opened = self._opened[chunk]
        if opened is None:
            opened = self._opened[chunk] = self._open(chunk)
        return opened

    def __iter__(self) -> Iterator[tuple[Rows, UInt64]]:
        return (self[i] for i in range(len(self._opened)))

    def mapped(self, shard: int) -> MappedShard:
        """A shard, mapped once. Two threads may map it twice; a lock instead could be held across a fork forever."""
        mapped = self._mapped[shard]
        if mapped is None:
            mapped = self._mapped[shard] = map_shard(self.folder, self.shards[shard], mmap=self.mmap)
        return mapped

    def locate(self, indices: Int64) -> tuple[Int64, Int64]:
        """Chunk of each row, and its place in it: with bounds [0, 3, 5] row 4 is row 1 of chunk 1.  # int64[R] each

        Raises:
            IndexError: a row that is not there; negative numbers do not count from the end.

        """
        if len(indices) and int(indices.view(np.uint64).max()) >= len(self):  # one below 0 is huge there
            raise IndexError(f"expected rows from 0 to {len(self) - 1}, found {indices.min()} to {indices.max()}")
        chunks = np.searchsorted(self.bounds, indices, side="right") - 1
        return chunks, indices - self.bounds[chunks]

    def by_chunk(self, indices: Int64) -> Iterator[tuple[int, Int64, Int64]]:
        """For each chunk that some rows lie in: the chunk, which of ``indices``, and their places in the chunk."""
        chunks, places = self.locate(indices)
        order = np.argsort(chunks, kind="stable")
        cuts = np.flatnonzero(np.diff(chunks[order])) + 1
        for positions in np.split(order, cuts) if len(order) else ():
            yield int(chunks[positions[0]]), positions, places[positions]

    def check(self, indices: Int64) -> None:
        """Compare the digests of rows that were not compared before.

        Raises:
            CheckError: a row is not what was written.

        """
        fresh = indices[~self._checked[indices]]
        if len(fresh):
            self.verify(fresh)

    def verify(self, indices: Int64 | None = None) -> None:
        """Compare the digests of some rows, of all where none are named, whether compared before or not.

        Raises:
            CheckError: a row is not what was written.

        """
        everything = np.arange(len(self), dtype=np.int64) if indices is None else indices
        if len(everything) < _FEW * len(self.shard_of):
            self._verify_few(everything)
            return
        for chunk, positions, rows in self.by_chunk(everything):
            opened, stored = self[chunk]
            found, expected = opened.digests(rows), stored[rows]
            wrong = np.flatnonzero(found != expected)
            if len(wrong):
                first = wrong[0]
                raise self._mismatch(chunk, int(rows[first]), expected=int(expected[first]), found=int(found[first]))
            self._vouch(chunk)
            self._checked[everything[positions]] = True

    def _verify_few(self, indices: Int64) -> None:
        """The same row by row: for a few rows of each chunk, arrays over them cost more than they save."""
        chunks, rows = self.locate(indices)
        for chunk, row in zip(chunks.tolist(), rows.tolist(), strict=True):
            opened, stored = self[chunk]
            found, expected = opened.digest(row), stored.item(row)
            if found != expected:
                raise self._mismatch(chunk, row, expected=expected, found=found)
            self._vouch(chunk)
        self._checked[indices] = True

    def _mismatch(self, chunk: int, row: int, *, expected: int, found: int) -> CheckError:
        digests = f"expected digest {expected:016x}, found {found:016x}"
        return self.damaged(chunk, f"row {self.row_in_shard(chunk, row)}: {digests}")

    def digests(self) -> UInt64:
        """The stored row digests, in row order.  # uint64[N]"""
        parts = [stored for _, stored in self]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint64)

    def path_of(self, chunk: int) -> str:
        return self.shards[self.shard_of[chunk]].path

    def row_in_shard(self, chunk: int, row: int) -> int:
        return self.shards[self.shard_of[chunk]].places[self._place_of[chunk]].first_row + row

    def damaged(self, chunk: int, reason: str) -> CheckError:
        return CheckError(f"{self.folder / self.path_of(chunk)} is damaged: {reason}", hint=repair_hint(self.folder))

    def _vouch(self, chunk: int) -> None:
        """Rows that agree with themselves may still be those of another file; the manifest knows their digests."""
        number = self.shard_of[chunk]
        if number in self._vouched:
            return
        if self.mapped(number).digest_of_rows() != self.shards[number].rows_xxh3:
            raise self.damaged(chunk, "its rows are not those the manifest names")
        self._vouched.add(number)

    def _open(self, chunk: int) -> tuple[Rows, UInt64]:
        mapped = self.mapped(self.shard_of[chunk])
        batch = mapped.batch(self._place_of[chunk])
        try:
            digest = flat_view(batch, "digest", np.uint64, batch.num_rows, mapped.pages)
            return self._view(batch, mapped.block_len, mapped.pages), digest
        except ValueError as error:
            raise self.damaged(chunk, str(error)) from None
