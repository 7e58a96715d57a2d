"""The rows of many shards of one kind under one numbering, each shard mapped on first access.

At most `MOST_MAPS` shards are mapped at a time, as a process is limited to 65,530 maps; an unmapped shard is mapped
again on demand. A chunk is one record batch of one shard. Rows are numbered consecutively across the shards, counting
either all rows or only the chosen ones.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.batches import Bool, Int64, UInt64
from packer.layout import MASKED, offsets_of
from packer.store.arrow_columns import BlockRows, DocumentRows, numbers
from packer.store.entries import Kind, has_column
from packer.store.files import CacheFiles, damage
from packer.store.manifest import Shard
from packer.store.mapping import MappedShard, OutOfBounds, map_shard, read_columns
from packer.store.place import SentFolder

Rows = TypeVar("Rows", DocumentRows, BlockRows)
T = TypeVar("T", bound=np.generic)

_OTHER_ROWS = "is damaged: its rows are not those the manifest names"

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
        """Return a column's values: an array or a number per row.

        For ``loss_weights``: 1 for trained tokens if none are stored, and 0 for masked ones.
        """
        pairs = zip(self.opened, self.rows, strict=True)
        if name == "loss_weights":
            return [_weights(opened, row) for opened, row in pairs]
        return [getattr(opened, name)[row] for opened, row in pairs]

    def weight_sums(self) -> npt.NDArray[np.float64]:
        """Return the summed loss weights of each row.  # float64[R]"""
        weights = self.values("loss_weights")
        return np.fromiter((each.sum(dtype=np.float64) for each in weights), np.float64, len(weights))


def _weights(opened: DocumentRows | BlockRows, row: int) -> npt.NDArray[Any]:
    trained = opened.labels[row] != MASKED
    return trained if opened.loss_weights is None else np.where(trained, opened.loss_weights[row], 0)


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
        self._first_chunk = offsets_of([len(shard.places) for shard in self.shards])
        self._mapped: list[MappedShard | None] = [None] * len(self.shards)
        self._in_order: deque[int] = deque()  # mapped shards, oldest first
        self._opened: list[tuple[Rows, UInt64] | None] = [None] * len(self._shard_of)
        self._checked: Bool = np.zeros(int(self._bounds[-1]), np.bool_)
        self._verified_shards: set[int] = set()  # shards whose row digests match the manifest

    def __len__(self) -> int:
        return len(self._checked) if self._chosen is None else len(self._chosen)

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(type(self), chosen=self._chosen)
        return _received, (make, SentFolder.of(self.folder), self.shards)

    @property
    def weighted(self) -> bool:
        """Whether some shard has fractional loss weights."""
        return has_column(self.shards, "loss_weights")

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
        chunks, rows = self._locate(self.stored_numbers(np.array([index])))
        return self.path_of(int(chunks[0])), self.row_in_shard(int(chunks[0]), int(rows[0]))

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
            self._verify_row_digests(number)
            if self.mapped(number).digest_of_values() != shard.rows_sha256:
                raise damage(self.folder, shard.path, _OTHER_ROWS)

    def chunk(self, number: int) -> tuple[Rows, UInt64]:
        """Return the rows of a record batch and their stored digests, without checking them."""
        opened = self._opened[number]
        if opened is None:
            mapped = self.mapped(self._shard_of[number])
            batch = mapped.batch(self._place_of[number])
            try:
                digests = numbers(batch.column("digest"))
                opened = self._opened[number] = self._view(batch, mapped), digests
            except ValueError as error:
                row = f"row {self.row_in_shard(number, error.row)}: " if isinstance(error, OutOfBounds) else ""
                raise damage(self.folder, mapped.shard.path, f"is damaged: {row}{error}") from None
        return opened

    def chunks(self) -> Iterator[tuple[Rows, UInt64]]:
        """Yield all record batches, including rows that are not chosen."""
        return (self.chunk(number) for number in range(len(self._opened)))

    def mapped(self, shard: int) -> MappedShard:
        """Return a shard, mapping it if necessary. Arrays taken from it stay valid after it is unmapped.

        Two threads may both map it; a lock would avoid that, but a fork while it is held would leave it locked forever.
        """
        mapped = self._mapped[shard]
        if mapped is None:
            mapped = self._mapped[shard] = map_shard(self.folder, self.shards[shard])
            self._in_order.append(shard)
            if len(self._in_order) > MOST_MAPS:
                self._unmap(self._in_order.popleft())
        return mapped

    def _unmap(self, shard: int) -> None:
        self._mapped[shard] = None
        first, end = self._first_chunk[shard : shard + 2].tolist()
        self._opened[first:end] = [None] * (end - first)

    def path_of(self, chunk: int) -> str:
        return self.shards[self._shard_of[chunk]].path

    def row_in_shard(self, chunk: int, row: int) -> int:
        return self.shards[self._shard_of[chunk]].places[self._place_of[chunk]].first_row + row

    def _view(self, batch: pa.RecordBatch, mapped: MappedShard) -> Rows:
        """Return the columns of a record batch as flat arrays; raise ValueError if they are invalid."""
        raise NotImplementedError

    def _found(self, indices: Int64) -> tuple[list[Rows], list[int]]:
        """Locate rows in the given order, and check the digests of those that were not checked before."""
        numbers = self.stored_numbers(np.asarray(indices, np.int64))
        chunks, rows = self._locate(numbers)
        fresh = numbers[~self._checked[numbers]]
        if len(fresh):
            self._verify(fresh)
        return [self.chunk(chunk)[0] for chunk in chunks.tolist()], rows.tolist()

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
            opened, stored = self.chunk(chunk)
            found, expected = opened.digests(rows), stored[rows]
            number = self._shard_of[chunk]
            for first in np.flatnonzero(found != expected)[:1].tolist():
                digests = f"expected digest {expected[first]:016x}, found {found[first]:016x}"
                row = self.row_in_shard(chunk, int(rows[first]))
                raise damage(self.folder, self.shards[number].path, f"is damaged: row {row}: {digests}")
            self._verify_row_digests(number)
            self._checked[numbers[positions]] = True

    def _verify_row_digests(self, number: int) -> None:
        """Check once per shard that its row digests are those in the manifest, as intact rows may be another file's."""
        if number in self._verified_shards:
            return
        shard = self.shards[number]
        if self.mapped(number).digest_of_rows() != shard.rows_xxh3:
            raise damage(self.folder, shard.path, _OTHER_ROWS)
        self._verified_shards.add(number)
