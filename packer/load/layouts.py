"""Lays out rows as micro-batches: blocks flattened or as rows, documents padded or concatenated.

Each column is written once, converting the file's int32 to int64, and then split into the tensors of its micro-batches.
Beside tokens, a micro-batch has columns that the recipe declares, and of pairs and rated answers the side of each.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from packer.batches import Int32, Int64
from packer.errors import UsageError
from packer.layout import MASKED, offsets_of, positions
from packer.load.arguments import LoaderOptions
from packer.load.ordered_rows import FILLER_ROW, PADDING_ROW, OrderedRows
from packer.load.row_source import RowSource
from packer.load.step import MicroBatch
from packer.recipe.groups import Declared, declared
from packer.store.cache import Cache
from packer.store.numbered_rows import FoundRows
from packer.store.shards import block_values, token_values

Columns: TypeAlias = dict[str, Sequence[Any]]

Beside: TypeAlias = tuple[list[Any], npt.NDArray[Any]]
"""A value for each position of each row, and what padding has: of blocks, at each position."""


class Layout:
    """Lays out blocks or documents: as rows of one length, or one after another in one row, for attention of variable
    length with batch size 1.

    A block has positions and sequences of its own, of which each run of padding is one. A document is a sequence whose
    positions count from its first token, so that padding on the left does not shift them. A padding row is a block of
    pad ids, or one pad token. All micro-batches are written together: for small ones that takes a quarter of the time.
    """

    def __init__(self, options: LoaderOptions, *, block_len: int, pad_id: int, most_sequences: int | None) -> None:
        """Give each flattened micro-batch `most_sequences`, with empty ones at its end; None gives those it has."""
        self._most_sequences = most_sequences
        self._block_len, self._padded = block_len, options.padded
        self._is_flat = options.flatten if block_len else options.padded is None
        ones = np.ones(block_len or 1, np.int32)
        self._fill: dict[str, npt.NDArray[Any]] = {"input_ids": ones * pad_id, "labels": ones * MASKED}
        if block_len:
            self._fill["position_ids"] = np.arange(block_len, dtype=np.int32)
        self._pool = ArrayPool()

    def micro_batches(
        self,
        found: FoundRows[Any],
        parts: Sequence[Int64],
        sizes: Int64,
        beside: Mapping[str, Beside],
        filler_ids: Int32,
    ) -> list[MicroBatch]:
        """Lay out the micro-batches of some rows, which are `found` in order, without placeholders.

        `parts` are the row numbers of each micro-batch, PADDING_ROW and FILLER_ROW for placeholders; `sizes` the
        positions of each row, int64[R]; `beside` further values of the positions; `filler_ids` those of FILLER_ROW.
        """
        counts, numbers = [len(part) for part in parts], np.concatenate(parts)
        filler = {"input_ids": filler_ids, "position_ids": np.arange(len(filler_ids), dtype=np.int32)}
        widths, shapes = self._shapes(sizes, counts)
        arrays: dict[str, npt.NDArray[Any]] = {}
        for name, fill in {**self._fill, **{name: fill for name, (_, fill) in beside.items()}}.items():
            values = beside[name][0] if name in beside else found.values(name)
            of_filler = filler.get(name, np.repeat(fill[:1], len(filler_ids), axis=0))
            rows = _with_placeholders(values, numbers, {PADDING_ROW: fill, FILLER_ROW: of_filler})
            arrays[name] = column = self._empty((int(widths.sum()), *fill.shape[1:]), fill.dtype)
            np.concatenate(rows if self._block_len else self._aligned(rows, fill, sizes, widths), out=column)
        if not self._block_len:
            for name, derived in self._derived_columns(sizes, widths).items():
                arrays[name] = column = self._empty(derived.shape, derived.dtype)
                column[:] = derived
        sequences: Columns = {}
        if self._block_len or self._is_flat:
            lengths, num_sequences = self._sequences(found, numbers, sizes, counts)
            if self._is_flat and self._most_sequences is not None:
                is_there = np.arange(self._most_sequences) < np.array(num_sequences)[:, None]
                filled = np.zeros(is_there.shape, np.int32)
                filled[is_there] = lengths
                sequences = sequence_columns(filled.reshape(-1), [self._most_sequences] * len(parts))
                sequences |= {f"max_length_{side}": [self._block_len] * len(parts) for side in ("q", "k")}
            elif self._is_flat:
                sequences = sequence_columns(lengths, num_sequences)
            else:
                arrays["document_ids"] = sequence_ids(lengths, num_sequences)
        columns: Columns = {name: _pieces(torch.from_numpy(array), shapes) for name, array in arrays.items()}
        columns |= sequences
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return room for a column as losses and embeddings take it: float32, or int64."""
        return np.empty(shape, dtype) if dtype == np.float32 else self._pool.empty(shape)

    def _shapes(self, sizes: Int64, counts: list[int]) -> tuple[Int64, list[tuple[int, int]]]:
        """Return the positions that each row takes, and the shape of each micro-batch."""
        firsts = offsets_of(counts)[:-1]
        if self._is_flat:
            return sizes, [(1, total) for total in np.add.reduceat(sizes, firsts).tolist()]
        longest = np.maximum.reduceat(sizes, firsts).tolist()
        if self._padded is not None:
            longest = [self._padded.rounded(length) for length in longest]
        return np.repeat(longest, counts), list(zip(counts, longest, strict=True))

    def _sequences(
        self, found: FoundRows[Any], numbers: Int64, sizes: Int64, counts: list[int]
    ) -> tuple[Int32, list[int]]:
        """Return the positions of every sequence, and the number of sequences of each micro-batch."""
        if not self._block_len:
            return sizes.astype(np.int32), counts
        whole = {number: sizes[numbers == number][:1].astype(np.int32) for number in (PADDING_ROW, FILLER_ROW)}
        lengths = _with_placeholders(found.values("seq_lengths"), numbers, whole)
        ends = np.cumsum([len(row_lengths) for row_lengths in lengths])[np.cumsum(counts) - 1]
        return np.concatenate(lengths), np.diff(ends, prepend=0).tolist()

    def _derived_columns(self, sizes: Int64, widths: Int64) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of documents that follow from their placement alone, one value per position."""
        places = positions(widths)
        if self._padded is None:
            return {"position_ids": places}
        if self._padded.side == "left":
            places -= np.repeat((widths - sizes).astype(np.int32), widths)
        in_row = (places >= 0) & (places < np.repeat(sizes, widths))
        places *= in_row
        return {"position_ids": places, "attention_mask": in_row}

    def _aligned(self, rows: list[Any], fill: npt.NDArray[Any], sizes: Int64, widths: Int64) -> list[Any]:
        """Return one column's values of each document, with padding before or after it."""
        if self._padded is None:
            return rows
        padding = np.repeat(fill, int((widths - sizes).max()), axis=0)
        missing = [padding[:number] for number in (widths - sizes).tolist()]
        pairs = zip(missing, rows, strict=True) if self._padded.side == "left" else zip(rows, missing, strict=True)
        return [piece for pair in pairs for piece in pair]


def _pieces(values: Tensor, shapes: list[tuple[int, int]]) -> Sequence[Tensor]:
    """Return the values of each micro-batch, in its shape."""
    if len({*shapes}) == 1:  # as of blocks: several times as fast
        return values.view(len(shapes), *shapes[0], *values.shape[1:]).unbind()
    pieces = torch.split(values, [rows * width for rows, width in shapes])
    return [piece.view(*shape, *values.shape[1:]) for piece, shape in zip(pieces, shapes, strict=True)]


def _with_placeholders(values: list[Any], numbers: Int64, placeholders: Mapping[int, npt.NDArray[Any]]) -> list[Any]:
    """Return the values of all rows, by their numbers, from those of the rows that are no placeholders."""
    if len(values) == len(numbers):
        return values
    rest = iter(values)
    return [next(rest) if number >= 0 else placeholders[number] for number in numbers.tolist()]


def sequence_columns(lengths: Int32, num_sequences: list[int]) -> Columns:
    """Return the cumulative sequence lengths of each micro-batch, each from 0, and its longest sequence.

    Worked example: lengths [3, 2, 4], of which the first micro-batch has two: [0, 3, 5] and [0, 4]; 3 and 4.
    """
    firsts = offsets_of(num_sequences)[:-1]
    bounds = np.zeros(len(lengths) + len(num_sequences), np.int32)
    starts = offsets_of(lengths)
    indices = np.arange(len(lengths)) + np.repeat(np.arange(1, len(num_sequences) + 1), num_sequences)
    bounds[indices] = starts[1:] - np.repeat(starts[firsts], num_sequences)
    sizes = [number + 1 for number in num_sequences]
    longest = np.maximum.reduceat(lengths, firsts).tolist()
    columns: Columns = {}
    for side in ("q", "k"):
        columns[f"cu_seq_lens_{side}"] = torch.split(torch.from_numpy(bounds.copy()), sizes)
        columns[f"max_length_{side}"] = longest
    return columns


def sequence_ids(lengths: Int32, num_sequences: list[int]) -> Int32:
    """Return the index of each token's sequence within its micro-batch.  # int32[Σ lengths]

    Worked example: lengths [3, 2, 4], of which the first micro-batch has two: [0, 0, 0, 1, 1, 0, 0, 0, 0].
    """
    indices = np.arange(len(lengths)) - np.repeat(offsets_of(num_sequences)[:-1], num_sequences)
    return np.repeat(indices.astype(np.int32), lengths)


_MIN_POOLED_BYTES = 1 << 17
"""Below this size the system allocator is as fast."""

_MAX_FREE = 64
"""Number of unused arrays that are kept: those of sixteen micro-batches."""


class ArrayPool:
    """Allocates int64 arrays whose memory is recycled once no tensor and no view of them is left.

    Memory of hundreds of kilobytes comes from the system as fresh pages, and touching these for the first time costs
    more than the writes themselves: without reuse, blocks are read at half the speed. Allocation is not thread-safe;
    the arrays may be used in any thread.
    """

    def __init__(self) -> None:
        self._free: deque[Int64] = deque(maxlen=_MAX_FREE)  # appended to in whichever thread the last view dies

    def empty(self, shape: tuple[int, ...]) -> Int64:
        """Return an uninitialized array."""
        size = prod(shape)
        if 8 * size < _MIN_POOLED_BYTES:
            return np.empty(shape, np.int64)
        array: Int64 = np.asarray(_PooledArray(self._acquire(size), self._free))[:size].reshape(shape)
        return array

    def _acquire(self, size: int) -> Int64:
        for _ in range(len(self._free)):
            memory = self._free.popleft()
            if size <= len(memory) <= 2 * size:
                return memory
            self._free.append(memory)
        return np.empty(size, np.int64)


class _PooledArray:
    """Base object of an array that was handed out: it lives as long as any view of it, in numpy or in torch."""

    __slots__ = ("__array_interface__", "_free", "_memory")

    def __init__(self, memory: Int64, free: "deque[Int64]") -> None:
        self.__array_interface__ = memory.__array_interface__
        self._memory, self._free = memory, free

    def __del__(self) -> None:
        self._free.append(self._memory)


PREFIX = "columns."
"""Before the name of a column while it is laid out, as a column may be called as anything else of a micro-batch."""


def asked_columns(caches: Sequence[Cache], names: Sequence[str]) -> list[Declared]:
    """Return the columns with these names; UsageError if a cache has no such column, or another than the others."""
    there = [{each.name: each for each in declared(cache.manifest.recipe)} for cache in caches]
    for name in names:
        for cache, own in zip(caches, there, strict=True):
            if name not in own:
                raise UsageError(f"{cache.folder} has no column {name}", hint=f"it has: {', '.join(own) or 'none'}")
            if own[name].form != there[0][name].form:
                raise UsageError(
                    f"the column {name} is not the same in all caches", hint="kind, width and missing agree"
                )
    return [there[0][name] for name in names]


class BatchColumns:
    """The columns that a loader was asked for."""

    def __init__(self, source: RowSource, options: LoaderOptions) -> None:
        self._columns = asked_columns(source.caches, options.columns)
        self._rows = source.rows
        self._documents = [cache.documents(options.split) for cache in source.caches]

    def values(self, rows: Int64, found: FoundRows[Any]) -> dict[str, Beside]:
        """Return the values of blocks or documents for a layout, by :data:`PREFIX` and name."""
        made: dict[str, list[Any]] = {each.name: [None] * len(rows) for each in self._columns}
        if not self._rows.block_len:
            made = {each.name: token_values(found, each) for each in self._columns}
        else:
            for (places, shards, numbers), documents in zip(self._rows.by_cache(rows), self._documents, strict=True):
                own = block_values(shards.locate(numbers), self._rows.block_len, documents, self._columns)
                for name, blocks in own.items():
                    for place, block in zip(places.tolist(), blocks, strict=True):
                        made[name][place] = block
        size = self._rows.block_len or 1
        return {
            f"{PREFIX}{each.name}": (made[each.name], np.full((size, *each.inner), each.fill, each.rule.kind))
            for each in self._columns
        }


def with_sides(micro_batches: list[MicroBatch], parts: list[Int64], rows: OrderedRows) -> list[MicroBatch]:
    """Return micro-batches with an entry for each answer or pair, its side, and a mask of what is trained.

    In `parts` of pairs all chosen answers come before the rejected ones, in the same order, as in TRL.

    Args:
        micro_batches: of tokens.
        parts: documents of each, PADDING_ROW for padding.
        rows: the rows they belong to.
    """
    extended = []
    for micro_batch, documents in zip(micro_batches, parts, strict=True):
        is_real = documents != PADDING_ROW
        columns = {"sides": np.where(is_real, rows.sides[documents], -1)}
        if rows.content == "pairs":
            firsts = documents[: len(documents) // 2]
            columns["pair_ids"] = np.where(firsts == PADDING_ROW, -1, firsts // 2)
        trained = {"completion_mask": (micro_batch["labels"] != MASKED).to(torch.int64)}
        extended.append(micro_batch | {name: torch.from_numpy(each) for name, each in columns.items()} | trained)
    return extended
