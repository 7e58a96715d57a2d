"""Lays out rows as micro-batches: blocks flattened or as rows, documents padded or concatenated.

Each column is written once, converting the file's int32 to int64, and then split into the tensors of its micro-batches.
"""

from collections import deque
from collections.abc import Sequence
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from packer.batches import Bool, Int32, Int64
from packer.layout import MASKED, offsets_of, positions
from packer.load.batching import BatchFormat, Batching, Packed, Padded
from packer.load.step import MicroBatch
from packer.load.step_plan import PADDING_ROW
from packer.store.cache import FoundBlocks, FoundDocuments

Columns: TypeAlias = dict[str, Sequence[Any]]
"""By name, one value for each micro-batch."""


class Layout(Protocol):
    """Lays out micro-batches in one format."""

    def micro_batches(self, found: Any, parts: Sequence[Int64], sizes: Int64) -> list[MicroBatch]:
        """Lay out the micro-batches of some rows.

        Args:
            found: the rows in order, without padding rows.
            parts: row numbers of each micro-batch, PADDING_ROW for padding; for blocks, padding is at the very end.
            sizes: tokens of each row, 1 for a padding row.  # int64[R]
        """


def layout_of(batching: Batching, *, block_len: int, pad_id: int, form: BatchFormat) -> Layout:
    """Return the layout of a batching."""
    if isinstance(batching, Packed):
        return BlockLayout(block_len=block_len, pad_id=pad_id, form=form)
    return DocumentLayout(batching.padded, pad_id=pad_id, form=form)


class BlockLayout:
    """Lays out blocks. Flattened, they are one row, the form of variable-length attention with batch size 1.

    Every padding run is a separate sequence, so padding attends only to padding. A padding row is one run of pad ids.
    All micro-batches have one shape and are written together: for small ones that takes a quarter of the time.
    """

    def __init__(self, *, block_len: int, pad_id: int, form: BatchFormat) -> None:
        self._block_len, self._form = block_len, form
        self._fill: dict[str, Any] = {"input_ids": pad_id, "labels": MASKED, "position_ids": np.arange(block_len)}
        self._pool = ArrayPool()

    def micro_batches(self, found: FoundBlocks, parts: Sequence[Int64], sizes: Int64) -> list[MicroBatch]:
        del sizes  # all blocks have one length
        form, num_real, num_rows = self._form, len(found), len(parts[0])
        shape = (len(parts) * num_rows, self._block_len)
        arrays: dict[str, npt.NDArray[Any]] = {}
        for name, fill in self._fill.items():
            arrays[name] = column = self._pool.empty(shape)
            found.copy(name, column[:num_real])
            column[num_real:] = fill
        if form.weighted:
            arrays["loss_weights"] = weights = np.zeros(shape, np.float32)
            found.copy("loss_weights", weights[:num_real])
        columns: Columns = {}
        lengths, num_sequences = self._sequences(found, len(parts), num_rows)
        if form.flatten:
            columns = sequence_columns(lengths, num_sequences)
        else:
            arrays["document_ids"] = sequence_ids(lengths, num_sequences)
        rows = (1, num_rows * self._block_len) if form.flatten else (num_rows, self._block_len)
        tensors = {name: torch.from_numpy(array.reshape(len(parts), *rows)) for name, array in arrays.items()}
        return by_micro_batch({name: tensor.unbind() for name, tensor in tensors.items()} | columns)

    def _sequences(self, found: FoundBlocks, number: int, num_rows: int) -> tuple[Int32, list[int]]:
        """Return the slots of every sequence, and the number of sequences per micro-batch."""
        lengths = found.values("seq_lengths")
        lengths += [np.full(1, self._block_len, np.int32)] * (number * num_rows - len(found))
        ends = np.cumsum([len(row_lengths) for row_lengths in lengths])[num_rows - 1 :: num_rows]
        return np.concatenate(lengths), np.diff(ends, prepend=0).tolist()


class DocumentLayout:
    """Lays out documents, either as rows padded to one length, or concatenated in one row, each a sequence.

    A padding row is one pad token, followed by padding if rows are padded. Positions count from each document's
    first token, so that padding on the left does not shift them. All micro-batches are written together.
    """

    def __init__(self, padded: Padded | None, *, pad_id: int, form: BatchFormat) -> None:
        self._padded = padded
        fill = {"input_ids": pad_id, "labels": MASKED}
        self._fill: dict[str, npt.NDArray[Any]] = {name: np.full(1, value, np.int32) for name, value in fill.items()}
        if form.weighted:
            self._fill["loss_weights"] = np.zeros(1, np.float32)
        self._pool = ArrayPool()

    def micro_batches(self, found: FoundDocuments, parts: Sequence[Int64], sizes: Int64) -> list[MicroBatch]:
        counts, is_real = [len(part) for part in parts], np.concatenate(parts) != PADDING_ROW
        widths, shapes = self._shapes(sizes, counts)
        arrays: dict[str, npt.NDArray[Any]] = {}
        for name in self._fill:
            size = int(widths.sum())
            arrays[name] = column = np.empty(size, np.float32) if name == "loss_weights" else self._pool.empty((size,))
            np.concatenate(self._padded_rows(found, name, is_real, sizes, widths), out=column)
        for name, values in self._derived_columns(sizes, widths).items():
            arrays[name] = column = self._pool.empty((len(values),))
            column[:] = values
        columns: Columns = {}
        for name, array in arrays.items():
            pieces = torch.split(torch.from_numpy(array), [rows * width for rows, width in shapes])
            columns[name] = [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
        if self._padded is None:
            columns |= sequence_columns(sizes.astype(np.int32), counts)
        return by_micro_batch(columns)

    def _derived_columns(self, sizes: Int64, widths: Int64) -> dict[str, npt.NDArray[Any]]:
        """Return the columns that follow from the placement of rows alone, one value per position."""
        places = positions(widths)
        if self._padded is None:
            return {"position_ids": places}
        if self._padded.side == "left":
            places -= np.repeat((widths - sizes).astype(np.int32), widths)
        in_row = (places >= 0) & (places < np.repeat(sizes, widths))
        places *= in_row
        return {"position_ids": places, "attention_mask": in_row}

    def _shapes(self, sizes: Int64, counts: list[int]) -> tuple[Int64, list[tuple[int, int]]]:
        """Return the positions that each row takes, and the shape of each micro-batch."""
        firsts = offsets_of(counts)[:-1]
        if self._padded is None:
            return sizes, [(1, total) for total in np.add.reduceat(sizes, firsts).tolist()]
        longest = [self._padded.rounded(length) for length in np.maximum.reduceat(sizes, firsts).tolist()]
        return np.repeat(longest, counts), list(zip(counts, longest, strict=True))

    def _padded_rows(self, found: FoundDocuments, name: str, is_real: Bool, sizes: Int64, widths: Int64) -> list[Any]:
        """Return one column's values of each row, with padding before or after it, in layout order."""
        rows: list[Any] = found.values(name)
        if len(rows) < len(is_real):
            values = iter(rows)
            rows = [next(values) if is_row else self._fill[name] for is_row in is_real.tolist()]
        rows = [row if len(row) == size else row[:size] for row, size in zip(rows, sizes.tolist(), strict=True)]
        if self._padded is None:
            return rows
        padding = np.repeat(self._fill[name], int((widths - sizes).max()))
        missing = [padding[:number] for number in (widths - sizes).tolist()]
        pairs = zip(missing, rows, strict=True) if self._padded.side == "left" else zip(rows, missing, strict=True)
        return [piece for pair in pairs for piece in pair]


def by_micro_batch(columns: Columns) -> list[MicroBatch]:
    """Transpose columns into micro-batches."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def sequence_columns(lengths: Int32, num_sequences: list[int]) -> Columns:
    """Return the cumulative sequence lengths of each micro-batch, each from 0, and its longest sequence.

    Worked example: lengths [3, 2, 4], of which the first micro-batch has two: [0, 3, 5] and [0, 4]; 3 and 4.

    Args:
        lengths: of the sequences, none 0.  # int32[K]
        num_sequences: how many each micro-batch has, at least one.
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
