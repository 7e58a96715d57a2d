"""The rows of many shards of one kind under one numbering, each shard mapped when its first row is asked for.

At most `MOST_MAPS` shards are mapped at a time: a process has 65,530 maps, and rows of a shard that was unmapped map it
again. A chunk is one record batch of one shard. Rows are numbered through all shards in their order, or through those
of them that were chosen.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.batches import Bool, Int64, UInt64
from packer.errors import CheckError
from packer.layout import MASKED, offsets_of
from packer.store.arrow_columns import BlockRows, DocumentRows
from packer.store.column_ranges import read_columns, read_ranges
from packer.store.files import CacheFiles
from packer.store.manifest import Shard
from packer.store.mapping import MappedShard, as_damage, check_schema, map_shard, repair_hint
from packer.store.schema import Kind
from packer.store.views import flat_view

Rows = TypeVar("Rows", DocumentRows, BlockRows)
T = TypeVar("T", bound=np.generic)

MOST_MAPS = 8_192
"""Shards that are mapped at a time; those mapped first go first.

An eighth of a process's maps: there may be several splits and caches. Mapping a shard again takes about a millisecond,
so in random order a smaller number would slow down caches that have room.
"""

_MAGIC = b"ARROW1\0\0"
"""What an Arrow file begins with, before its schema."""

_MOST_SCHEMA = 4096
"""Bytes at the beginning of a shard that hold its schema, which takes some 1,400."""

_FEW = 4
"""Rows a record batch, on average, below which rows are verified one at a time."""


@dataclass(frozen=True, slots=True)
class FoundRows(Generic[Rows]):
    """Some rows, found and checked, of one split or of several: what is left is to copy what is wanted of them."""

    opened: list[Rows]
    """For each row the record batch it lies in."""

    rows: list[int]
    """For each row its place in there."""

    def __len__(self) -> int:
        return len(self.rows)

    def values(self, name: str, first: int = 0, end: int | None = None) -> list[Any]:
        """What a column holds for the rows ``[first, end)``: an array a row, or a number.

        Of ``loss_weights``, 1 where trained if none are stored, and 0 where masked.
        """
        pairs = zip(self.opened[first:end], self.rows[first:end], strict=True)
        if name == "loss_weights":
            return [_weights(opened, row) for opened, row in pairs]
        return [getattr(opened, name)[row] for opened, row in pairs]

    def weight_sums(self, longest: int | None = None) -> npt.NDArray[np.float64]:
        """Summed loss weights of each row, of its first `longest` tokens.  # float64[R]"""
        weights = self.values("loss_weights")
        return np.fromiter((each[:longest].sum(dtype=np.float64) for each in weights), np.float64, len(weights))


def _weights(opened: DocumentRows | BlockRows, row: int) -> npt.NDArray[Any]:
    trained = opened.labels[row] != MASKED
    return trained if opened.loss_weights is None else np.where(trained, opened.loss_weights[row], 0)


def _adds_up(shard: Shard) -> bool:
    """Whether its record batches follow one another without a gap, up to its last row."""
    bounds = [*(place.first_row for place in shard.places), shard.num_rows]
    return np.array_equal(offsets_of([place.num_rows for place in shard.places]), bounds)


class NumberedRows(Generic[Rows]):
    """The rows of some shards. Safe to read from several threads; pickles as folder, shards and choice.

    Args:
        folder: the cache.
        shards: of one kind, in the order that numbers the rows.
        mmap: reach values through a map of the file; False reads them, for network file systems.
        chosen: which of the shards' rows these are, ascending; None is all of them.  # int64[N]

    Raises:
        CheckError: a shard's record batches do not follow one another, or do not add up to its rows.
        ValueError: a shard of another kind.

    """

    kind: ClassVar[Kind]

    def __init__(
        self, folder: Path, shards: Sequence[Shard], *, mmap: bool = True, chosen: Int64 | None = None
    ) -> None:
        self.folder = Path(folder)
        self.shards = tuple(shards)
        self.mmap = mmap
        self._chosen = chosen
        for shard in self.shards:
            if shard.kind != self.kind:
                raise ValueError(f"expected shards of {self.kind}, found {shard.path}")
            if not _adds_up(shard):
                reason = f"{shard.path}: its record batches do not add up to its rows"
                raise CheckError(reason, hint=repair_hint(self.folder))
        self._bounds = offsets_of([place.num_rows for shard in self.shards for place in shard.places])
        self._shard_of = [i for i, shard in enumerate(self.shards) for _ in shard.places]
        self._place_of = [i for shard in self.shards for i in range(len(shard.places))]
        self._first_chunk = offsets_of([len(shard.places) for shard in self.shards])
        self._mapped: list[MappedShard | None] = [None] * len(self.shards)
        self._in_order: deque[int] = deque()  # shards that are mapped, the first one first
        self._opened: list[tuple[Rows, UInt64] | None] = [None] * len(self._shard_of)
        self._checked: Bool = np.zeros(int(self._bounds[-1]), np.bool_)
        self._vouched: set[int] = set()  # shards whose row digests are those the manifest knows

    def __len__(self) -> int:
        return len(self._checked) if self._chosen is None else len(self._chosen)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), mmap=self.mmap, chosen=self._chosen), (self.folder, self.shards)

    @property
    def num_tokens(self) -> int:
        """Tokens of all rows of the shards, padding not counted."""
        return sum(shard.num_tokens for shard in self.shards)

    def own(self, values: npt.NDArray[T]) -> npt.NDArray[T]:
        """Pick the values of these rows from those of all rows of the shards."""
        return values if self._chosen is None else values[self._chosen]

    def stored_numbers(self, indices: Int64) -> Int64:
        """Numbers of some of these rows among all rows of the shards.

        Raises:
            IndexError: a row that is not there; negative numbers do not count from the end.

        """
        if len(indices) and int(indices.view(np.uint64).max()) >= len(self):  # one below 0 is huge there
            raise IndexError(f"expected rows from 0 to {len(self) - 1}, found {indices.min()} to {indices.max()}")
        return indices if self._chosen is None else self._chosen[indices]

    def schemas(self, shards: Iterable[Shard]) -> Iterator[pa.Schema]:
        """The schemas of some shards; none is mapped for it, or fetched from a bucket.

        Raises:
            CheckError: a shard is missing, or does not begin with the schema of its kind.

        """
        wanted = ((shard, [(0, min(_MOST_SCHEMA, shard.num_bytes))]) for shard in shards)
        for shard, content in read_ranges(self.folder, wanted):
            with as_damage(self.folder, shard):
                schema = pa.ipc.read_schema(pa.BufferReader(content[len(_MAGIC) :]))
                check_schema(shard, schema)
            yield schema

    def place(self, index: int) -> tuple[str, int]:
        """Relative path of a row's shard, and its row in there."""
        chunks, rows = self._locate(self.stored_numbers(np.array([index])))
        return self.path_of(int(chunks[0])), self.row_in_shard(int(chunks[0]), int(rows[0]))

    def shard_of(self, row: int) -> int:
        """Number of the shard that a row lies in."""
        return self._shard_of[int(self._locate(self.stored_numbers(np.array([row])))[0][0])]

    def num_of_shards(self) -> Int64:
        """How many of these rows each shard has.  # int64[shards]"""
        bounds = offsets_of([shard.num_rows for shard in self.shards])
        return np.diff(bounds if self._chosen is None else np.searchsorted(self._chosen, bounds))

    def of_shards(self, first: int, last: int) -> tuple[Self, int]:
        """The rows of the shards from `first` to `last` alone, and the number of the first of them among all."""
        begin, end = offsets_of([shard.num_rows for shard in self.shards])[[first, last + 1]].tolist()
        chosen, before = None, begin
        if self._chosen is not None:
            before, after = np.searchsorted(self._chosen, [begin, end]).tolist()
            chosen = self._chosen[before:after] - begin
        return type(self)(self.folder, self.shards[first : last + 1], mmap=self.mmap, chosen=chosen), before

    def stored(self, name: str, dtype: type[T]) -> npt.NDArray[T]:
        """A column of fixed width as :meth:`by_shard` reads it.  # [N]"""
        (column,) = self.stored_together({name: dtype})
        return column

    def stored_together(self, columns: Mapping[str, type[np.generic]]) -> list[npt.NDArray[Any]]:
        """Columns of fixed width as :meth:`by_shard` reads them.  # [N] each"""
        parts = [[np.zeros(0, kind) for kind in columns.values()], *(values for _, values in self.by_shard(columns))]
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def by_shard(self, columns: Mapping[str, type[np.generic]]) -> Iterator[tuple[Shard, list[npt.NDArray[Any]]]]:
        """Columns of fixed width of these rows, shard after shard; see :func:`read_columns`."""
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
        """Compare the digests of some rows, of all where none are named, whether compared before or not.

        Raises:
            CheckError: a row is not what was written.

        """
        if indices is not None:
            self._verify(self.stored_numbers(indices))
        else:
            self._verify(np.arange(len(self._checked), dtype=np.int64) if self._chosen is None else self._chosen)

    def chunk(self, number: int) -> tuple[Rows, UInt64]:
        """Rows of a record batch and their stored digests, none of them checked yet.

        Raises:
            CheckError: the shard's size or structure is not what the manifest says.

        """
        opened = self._opened[number]
        if opened is None:
            mapped = self.mapped(self._shard_of[number])
            batch = mapped.batch(self._place_of[number])
            try:
                digests = flat_view(batch, "digest", np.uint64, batch.num_rows, mapped.reach)
                opened = self._opened[number] = self._view(batch, mapped), digests
            except ValueError as error:
                raise self.damaged(number, str(error)) from None
        return opened

    def chunks(self) -> Iterator[tuple[Rows, UInt64]]:
        """All record batches, chosen rows or not."""
        return (self.chunk(number) for number in range(len(self._opened)))

    def mapped(self, shard: int) -> MappedShard:
        """A shard, mapped until others take its place. What was handed out of it stays valid.

        Two threads may map it twice; a lock instead could be held across a fork forever.
        """
        mapped = self._mapped[shard]
        if mapped is None:
            mapped = self._mapped[shard] = map_shard(self.folder, self.shards[shard], mmap=self.mmap)
            self._in_order.append(shard)
            if len(self._in_order) > MOST_MAPS:
                self._unmap(self._in_order.popleft())
            if CacheFiles(self.folder).most_bytes is not None:
                self.unmap([each for each in self._in_order if not (self.folder / self.shards[each].path).exists()])
        return mapped

    def unmap(self, shards: Iterable[int]) -> None:
        """Let go of some shards. What was removed to make room takes its space as long as somebody maps it."""
        for shard in {*shards} & {*self._in_order}:
            self._in_order.remove(shard)
            self._unmap(shard)

    def _unmap(self, shard: int) -> None:
        self._mapped[shard] = None
        first, end = self._first_chunk[shard : shard + 2].tolist()
        self._opened[first:end] = [None] * (end - first)

    def path_of(self, chunk: int) -> str:
        return self.shards[self._shard_of[chunk]].path

    def row_in_shard(self, chunk: int, row: int) -> int:
        return self.shards[self._shard_of[chunk]].places[self._place_of[chunk]].first_row + row

    def damaged(self, chunk: int, reason: str) -> CheckError:
        return CheckError(f"{self.folder / self.path_of(chunk)} is damaged: {reason}", hint=repair_hint(self.folder))

    def _view(self, batch: pa.RecordBatch, mapped: MappedShard) -> Rows:
        """The columns of a record batch as flat arrays; ValueError where they are none."""
        raise NotImplementedError

    def _found(self, indices: Int64) -> tuple[list[Rows], list[int]]:
        """Some rows in the order asked, their digests compared where they were not before.

        Raises:
            CheckError: a row is not what was written.
            IndexError: a row that is not there.

        """
        numbers = self.stored_numbers(np.asarray(indices, np.int64))
        chunks, rows = self._locate(numbers)
        fresh = numbers[~self._checked[numbers]]
        if len(fresh):
            self._verify(fresh)
        return [self.chunk(chunk)[0] for chunk in chunks.tolist()], rows.tolist()

    def _locate(self, numbers: Int64) -> tuple[Int64, Int64]:
        """Chunk of each row, and its place in it: with bounds [0, 3, 5] row 4 is row 1 of chunk 1.  # int64[R] each"""
        chunks = np.searchsorted(self._bounds, numbers, side="right") - 1
        return chunks, numbers - self._bounds[chunks]

    def _by_chunk(self, numbers: Int64) -> Iterator[tuple[int, Int64, Int64]]:
        """For each chunk that some rows lie in: the chunk, which of ``numbers``, and their places in the chunk."""
        chunks, places = self._locate(numbers)
        order = np.argsort(chunks, kind="stable")
        cuts = np.flatnonzero(np.diff(chunks[order])) + 1
        for positions in np.split(order, cuts) if len(order) else ():
            yield int(chunks[positions[0]]), positions, places[positions]

    def _of_chunks(self, values: Sequence[int] | npt.NDArray[T]) -> npt.NDArray[Any]:
        """A value for each chunk as one for each row."""
        return self.own(np.repeat(values, np.diff(self._bounds)))

    def _verify(self, numbers: Int64) -> None:
        if len(numbers) < _FEW * len(self._shard_of):
            self._verify_few(numbers)
            return
        for chunk, positions, rows in self._by_chunk(numbers):
            opened, stored = self.chunk(chunk)
            found, expected = opened.digests(rows), stored[rows]
            wrong = np.flatnonzero(found != expected)
            if len(wrong):
                first = wrong[0]
                raise self._mismatch(chunk, int(rows[first]), expected=int(expected[first]), found=int(found[first]))
            self._vouch(chunk)
            self._checked[numbers[positions]] = True

    def _verify_few(self, numbers: Int64) -> None:
        """Verify row by row: for a few rows of each chunk, arrays cost more than they save."""
        chunks, rows = self._locate(numbers)
        for chunk, row in zip(chunks.tolist(), rows.tolist(), strict=True):
            opened, stored = self.chunk(chunk)
            found, expected = opened.digest(row), stored.item(row)
            if found != expected:
                raise self._mismatch(chunk, row, expected=expected, found=found)
            self._vouch(chunk)
        self._checked[numbers] = True

    def _mismatch(self, chunk: int, row: int, *, expected: int, found: int) -> CheckError:
        digests = f"expected digest {expected:016x}, found {found:016x}"
        return self.damaged(chunk, f"row {self.row_in_shard(chunk, row)}: {digests}")

    def _vouch(self, chunk: int) -> None:
        """Rows that agree with themselves may still be those of another file; the manifest knows their digests."""
        number = self._shard_of[chunk]
        if number in self._vouched:
            return
        if self.mapped(number).digest_of_rows() != self.shards[number].rows_xxh3:
            raise self.damaged(chunk, "its rows are not those the manifest names")
        self._vouched.add(number)
