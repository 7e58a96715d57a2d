"""The rows of many shards of one kind under one numbering, each shard mapped on first access.

At most `MOST_MAPS` shards are mapped at a time, as a process is limited to 65,530 maps; an unmapped shard is mapped
again on demand. A chunk is one record batch of one shard. Rows are numbered consecutively across the shards, counting
either all rows or only the chosen ones.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from packer.batches import Bool, Int64, UInt64
from packer.layout import offsets_of
from packer.store.arrow_columns import BlockRows, DocumentRows
from packer.store.entries import Kind
from packer.store.files import CacheFiles, damage
from packer.store.manifest import Shard
from packer.store.mapping import MappedShard, map_shard, read_columns
from packer.store.place import SentFolder

Rows = TypeVar("Rows", DocumentRows, BlockRows)
T = TypeVar("T", bound=np.generic)

MOST_MAPS = 8_192
"""Shards that are mapped at a time; the one mapped first is unmapped first.

An eighth of a process's maps, as there may be several splits and caches. Mapping a shard again takes about a
millisecond, so with random access a smaller limit would slow down caches that do not need it.
"""


@dataclass(frozen=True, slots=True)
class FoundRows(Generic[Rows]):
    """Rows of one or several splits that were located and whose digests were checked; nothing is copied yet."""

    opened: list[Rows]
    rows: list[int]
    """Index of each row within its record batch."""

    def __len__(self) -> int:
        return len(self.rows)

    def values(self, name: str) -> list[Any]:
        """Return a column's values: an array or a number per row."""
        return [getattr(opened, name)[row] for opened, row in zip(self.opened, self.rows, strict=True)]

    def doc_ids(self) -> list[Int64]:
        """Return the ids of the documents in each row: of a document its own, of a block those of its pieces."""
        return [opened.ids_of(row) for opened, row in zip(self.opened, self.rows, strict=True)]


def _received(make: Callable[[Path, tuple[Shard, ...]], Any], sent: SentFolder, shards: tuple[Shard, ...]) -> Any:
    return make(sent.arrive(), shards)


class NumberedRows(Generic[Rows]):
    """The rows of several shards of one kind. Safe to read from several threads; pickles as folder, shards and choice.

    Rows are numbered in the order of the shards: all of them, or those at the ascending indices `chosen`.  # int64[N]
    """

    kind: ClassVar[Kind]

    def __init__(self, folder: Path, shards: Sequence[Shard], *, chosen: Int64 | None = None) -> None:
        self.folder = Path(folder)
        self.shards = tuple(shards)
        self._chosen = chosen
        for shard in self.shards:
            if shard.kind != self.kind:
                raise ValueError(f"expected shards of {self.kind}, found {shard.path}")
        self._bounds = offsets_of([place.num_rows for shard in self.shards for place in shard.places])
        self._shard_of = [i for i, shard in enumerate(self.shards) for _ in shard.places]
        self._place_of = [i for shard in self.shards for i in range(len(shard.places))]
        self._mapped: OrderedDict[int, MappedShard] = OrderedDict()  # oldest first
        self._checked: Bool = np.zeros(int(self._bounds[-1]), np.bool_)

    def __len__(self) -> int:
        return len(self._checked) if self._chosen is None else len(self._chosen)

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(type(self), chosen=self._chosen)
        return _received, (make, SentFolder.of(self.folder), self.shards)

    @property
    def num_tokens(self) -> int:
        """Tokens of all rows of the shards, not counting padding."""
        return sum(shard.num_tokens for shard in self.shards)

    def own(self, values: npt.NDArray[T]) -> npt.NDArray[T]:
        """Pick the values of the chosen rows from those of all rows of the shards."""
        return values if self._chosen is None else values[self._chosen]

    def stored_numbers(self, indices: Int64) -> Int64:
        """Return the indices of some of these rows among all of the shards; IndexError for one that is not there."""
        if len(indices) and int(indices.view(np.uint64).max()) >= len(self):  # one below 0 is huge there
            raise IndexError(f"expected rows from 0 to {len(self) - 1}, found {indices.min()} to {indices.max()}")
        return indices if self._chosen is None else self._chosen[indices]

    def place(self, index: int) -> tuple[str, int]:
        """Return the relative path of a row's shard, and the row's index in it."""
        (chunk,), (row,) = self._locate(self.stored_numbers(np.array([index])))
        shard = self.shards[self._shard_of[chunk]]
        return shard.path, shard.places[self._place_of[chunk]].first_row + int(row)

    def shard_of(self, row: int) -> int:
        """Return the index of a row's shard."""
        return self._shard_of[int(self._locate(self.stored_numbers(np.array([row])))[0][0])]

    def of_shards(self, first: int, last: int) -> tuple[Self, int]:
        """Return the rows of the shards from `first` to `last` alone, and the index of the first of them among all."""
        begin, end = offsets_of([shard.num_rows for shard in self.shards])[[first, last + 1]].tolist()
        chosen, before = None, begin
        if self._chosen is not None:
            before, after = np.searchsorted(self._chosen, [begin, end]).tolist()
            chosen = self._chosen[before:after] - begin
        return type(self)(self.folder, self.shards[first : last + 1], chosen=chosen), before

    def stored(self, name: str, dtype: type[T]) -> npt.NDArray[T]:
        """Return a fixed-width column, read as :meth:`by_shard` does.  # [N]"""
        (column,) = self.stored_together({name: dtype})
        return column

    def stored_together(self, columns: Mapping[str, type[np.generic]]) -> list[npt.NDArray[Any]]:
        """Return fixed-width columns, read as :meth:`by_shard` does.  # [N] each"""
        parts = [[np.zeros(0, kind) for kind in columns.values()], *(values for _, values in self.by_shard(columns))]
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def by_shard(self, columns: Mapping[str, type[np.generic]]) -> Iterator[tuple[Shard, list[npt.NDArray[Any]]]]:
        """Yield fixed-width columns of these rows, shard by shard, as :func:`read_columns` does."""
        wanted = [(shard, shard.places) for shard in self.shards]
        bounds = offsets_of([shard.num_rows for shard in self.shards])
        read = read_columns(self.folder, wanted, columns)
        for shard, found, first, end in zip(self.shards, read, bounds[:-1], bounds[1:], strict=True):
            if self._chosen is not None:
                own = self._chosen[slice(*np.searchsorted(self._chosen, [first, end]))] - first
                yield shard, [values[own] for values in found]
            else:
                yield shard, found

    def verify(self, indices: Int64 | None = None) -> None:
        """Check the digests of some rows, by default of all, including rows that were checked before."""
        self._verify(self.stored_numbers(np.arange(len(self), dtype=np.int64) if indices is None else indices))

    def verify_files(self) -> None:
        """Check every byte of the shards, whichever rows are chosen: many times as fast as the digests of all rows."""
        for number, shard in enumerate(self.shards):
            if (found := CacheFiles(self.folder).xxh3(shard.path)) != shard.xxh3:
                raise damage(self.folder, shard.path, f"is damaged: expected xxh3-128 {shard.xxh3}, found {found}")
            self.mapped(number).verify_row_digests()
            self.mapped(number).verify_values()

    def chunk(self, number: int) -> tuple[Rows, UInt64]:
        """Return the rows of a record batch and their stored digests, without checking these."""
        return self.mapped(self._shard_of[number]).rows(self._place_of[number])

    def chunks(self) -> Iterator[tuple[Rows, UInt64]]:
        """Yield all record batches, including rows that are not chosen."""
        return map(self.chunk, range(len(self._shard_of)))

    @cached_property
    def block_len(self) -> int:
        """Tokens per block; 0 of documents, and if there are no shards."""
        return self.mapped(0).block_len if self.shards else 0

    def mapped(self, shard: int) -> MappedShard:
        """Return a shard, mapping it if necessary. Arrays taken from it stay valid after it is unmapped.

        Two threads may both map it; a lock would avoid that, but a fork while it is held would leave it locked forever.
        """
        mapped = self._mapped.get(shard)
        if mapped is None:
            mapped = self._mapped[shard] = map_shard(self.folder, self.shards[shard])
            if len(self._mapped) > MOST_MAPS:
                self._mapped.popitem(last=False)
            if mapped.block_len and mapped.block_len != self.block_len:
                del self._mapped[shard]
                other = f"expected blocks of {self.block_len} tokens, found {mapped.block_len}"
                raise damage(self.folder, mapped.shard.path, f"is damaged: {other}")
        return mapped

    def locate(self, indices: Int64) -> FoundRows[Rows]:
        """Locate rows in the given order, and check the digests of those that were not checked before.

        Repeats are allowed, and nothing is copied yet; IndexError for a row that is not there.
        """
        numbers = self.stored_numbers(np.asarray(indices, np.int64))
        chunks, rows = self._locate(numbers)
        fresh = numbers[~self._checked[numbers]]
        if len(fresh):
            self._verify(fresh)
        of_chunks = chunks.tolist()
        opened = {chunk: self.chunk(chunk)[0] for chunk in dict.fromkeys(of_chunks)}
        return FoundRows([opened[chunk] for chunk in of_chunks], rows.tolist())

    def _locate(self, numbers: Int64) -> tuple[Int64, Int64]:
        """Return each row's chunk and index in it: with bounds [0, 3, 5], row 4 is row 1 of chunk 1.  # int64[R]"""
        chunks = np.searchsorted(self._bounds, numbers, side="right") - 1
        return chunks, numbers - self._bounds[chunks]

    def _by_chunk(self, numbers: Int64) -> Iterator[tuple[int, Int64, Int64]]:
        """Group rows by chunk: yield the chunk, its rows' positions in ``numbers``, and their indices in the chunk."""
        chunks, places = self._locate(numbers)
        order = np.argsort(chunks, kind="stable")
        cuts = np.flatnonzero(np.diff(chunks[order])) + 1
        for positions in np.split(order, cuts) if len(order) else ():
            yield int(chunks[positions[0]]), positions, places[positions]

    def _of_chunks(self, values: Sequence[int] | npt.NDArray[T]) -> npt.NDArray[Any]:
        """Expand one value per chunk to one per row."""
        return self.own(np.repeat(values, np.diff(self._bounds)))

    def _verify(self, numbers: Int64) -> None:
        for chunk, positions, rows in self._by_chunk(numbers):
            mapped = self.mapped(self._shard_of[chunk])
            opened, stored = mapped.rows(self._place_of[chunk])
            found, expected = opened.digests(rows), stored[rows]
            for first in np.flatnonzero(found != expected)[:1].tolist():
                digests = f"expected digest {expected[first]:016x}, found {found[first]:016x}"
                row = mapped.shard.places[self._place_of[chunk]].first_row + int(rows[first])
                raise damage(self.folder, mapped.shard.path, f"is damaged: row {row}: {digests}")
            mapped.verify_row_digests()
            self._checked[numbers[positions]] = True
