"""Reading blocks: rows of any shards gathered in the order asked, each row's digest checked on first touch."""

from collections.abc import Sequence
from functools import partial
from operator import attrgetter, getitem
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.batches import BlockBatch, Float32, Int32, Int64, UInt64
from packer.errors import CheckError
from packer.layout import MASKED
from packer.store.arrow_columns import BlockRows
from packer.store.manifest import Shard
from packer.store.mapping import repair_hint
from packer.store.numbered_rows import Chunks
from packer.store.schema import BLOCK_PIECES

__all__ = ["BlockShards", "FoundBlocks"]

_TOKENS = ("input_ids", "labels", "position_ids")
_SCALARS = ("length", "num_trained")


class BlockShards:
    """The blocks of some shards, numbered through. Safe to read from several threads; pickles as folder and shards.

    Args:
        folder: the cache.
        shards: block shards of one block length, in order.
        mmap: reach rows through a map of the file; False reads them, for network file systems.

    """

    def __init__(self, folder: Path, shards: Sequence[Shard], *, mmap: bool = True) -> None:
        self._chunks: Chunks[BlockRows] = Chunks(Path(folder), shards, kind="blocks", mmap=mmap)
        self._block_len: int | None = None
        self._known: dict[int, BlockRows] = {}  # record batches whose block length was compared
        self.weighted = any("loss_weights" in place.columns for shard in shards for place in shard.places)

    def __len__(self) -> int:
        return len(self._chunks)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(BlockShards, mmap=self._chunks.mmap), (self._chunks.folder, self._chunks.shards)

    @property
    def folder(self) -> Path:
        return self._chunks.folder

    @property
    def shards(self) -> tuple[Shard, ...]:
        return self._chunks.shards

    @property
    def num_tokens(self) -> int:
        """Tokens in these blocks, padding not counted."""
        return sum(shard.num_tokens for shard in self.shards)

    @property
    def block_len(self) -> int:
        """Tokens of a block; 0 where there are no shards.

        Raises:
            CheckError: the first shard is damaged.

        """
        if self._block_len is None:
            self._block_len = self._chunks.mapped(0).block_len if self.shards else 0
        return self._block_len

    def read(self, indices: Int64, *, check: bool = True) -> BlockBatch:
        """Blocks by number, in the order asked; the arrays are copies and may be written to.

        Args:
            indices: int64[B], any order, repeats allowed.
            check: compare each row's digest where this reader did not before.

        Raises:
            CheckError: a row is not what was written.
            IndexError: a block that is not there.

        """
        found = self.locate(indices, check=check)
        B, L = len(found), self.block_len
        tokens: dict[str, Int32] = {name: np.empty((B, L), np.int32) for name in _TOKENS}
        for name, array in tokens.items():
            found.copy(name, array)
        weights: Float32 | None = np.empty((B, L), np.float32) if self.weighted else None
        if weights is not None:
            found.copy_weights(weights)
        seq_lengths, seq_offsets = _join(found.lists("seq_lengths"), np.int32)
        doc_ids, doc_offsets = _join(found.lists("doc_ids"), np.int64)
        pieces: dict[str, Int32] = {}
        for name in BLOCK_PIECES[1:]:
            pieces[name], offsets = _join(found.lists(name), np.int32)
            if not np.array_equal(doc_offsets, offsets):
                raise CheckError(
                    f"{self.folder}: a block's doc_ids and {name} differ in length", hint=repair_hint(self.folder)
                )
        return BlockBatch(
            **tokens,
            **{name: found.scalars(name) for name in _SCALARS},
            loss_weights=weights,
            seq_lengths=seq_lengths,
            seq_offsets=seq_offsets,
            doc_ids=doc_ids,
            **pieces,
            doc_offsets=doc_offsets,
        )

    def locate(self, indices: Int64, *, check: bool = True) -> "FoundBlocks":
        """Where some blocks lie, in the order asked, their digests compared; nothing is copied yet.

        Args:
            indices: int64[B], any order, repeats allowed.
            check: compare each row's digest where this reader did not before.

        Raises:
            CheckError: a row is not what was written.
            IndexError: a block that is not there.

        """
        indices = np.asarray(indices, np.int64)
        chunks, rows = self._chunks.locate(indices)
        if check:
            self._chunks.check(indices)
        known = self._known
        return FoundBlocks([known.get(chunk) or self._opened(chunk) for chunk in chunks.tolist()], rows.tolist())

    def verify(self, indices: Int64 | None = None) -> None:
        """Check the digests of some blocks, of all where none are named.

        Raises:
            CheckError: a row is not what was written.

        """
        self._chunks.verify(indices)

    def digests(self) -> UInt64:
        """The stored row digests, in row order.  # uint64[N]"""
        return self._chunks.digests()

    def place(self, index: int) -> tuple[str, int]:
        """Relative path of a block's shard, and its row in there."""
        chunks, rows = self._chunks.locate(np.array([index]))
        return self._chunks.path_of(int(chunks[0])), self._chunks.row_in_shard(int(chunks[0]), int(rows[0]))

    def _opened(self, chunk: int) -> BlockRows:
        opened = self._chunks[chunk][0]
        found = opened.input_ids.shape[1]
        if found != self.block_len:
            raise self._chunks.damaged(chunk, f"expected blocks of {self.block_len} tokens, found {found}")
        self._known[chunk] = opened
        return opened


class FoundBlocks:
    """Some blocks, found and checked, of one split or of several: what is left is to copy what is wanted of them.

    Args:
        opened: for each block the record batch it lies in.
        rows: for each block its row in there.

    """

    __slots__ = ("opened", "rows")

    def __init__(self, opened: list[BlockRows], rows: list[int]) -> None:
        self.opened = opened
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def copy(self, name: str, into: npt.NDArray[Any], first: int = 0) -> None:
        """Write a token column of the blocks from `first` on into the rows of an array, widened on the way.

        Args:
            name: ``input_ids``, ``labels`` or ``position_ids``.
            into: [n, L], of an integer type of 32 bits or more, contiguous; n blocks are written.
            first: number of the first of them.

        """
        if not len(into):
            return
        end = first + len(into)
        columns = map(attrgetter(name), self.opened[first:end])
        np.concatenate(list(map(getitem, columns, self.rows[first:end])), out=into.reshape(-1))

    def copy_weights(self, into: Float32, first: int = 0) -> None:
        """Write loss weights: as stored, 1 where trained if there are none; 0 where masked.  # float32[n, L]"""
        end = first + len(into)
        for target, opened, row in zip(into, self.opened[first:end], self.rows[first:end], strict=True):
            target[:] = _weights(opened, row)

    def weight_sums(self) -> npt.NDArray[np.float64]:
        """Summed loss weights of each block.  # float64[B]"""
        pairs = zip(self.opened, self.rows, strict=True)
        sums = (_weights(opened, row).sum(dtype=np.float64) for opened, row in pairs)
        return np.fromiter(sums, np.float64, len(self.rows))

    def lists(self, name: str, first: int = 0, end: int | None = None) -> list[npt.NDArray[Any]]:
        """What a list column holds for the blocks ``[first, end)``, an array a block."""
        pairs = zip(self.opened[first:end], self.rows[first:end], strict=True)
        return [getattr(opened, name).row(row) for opened, row in pairs]

    def doc_ids(self) -> list[Int64]:
        """Identity of the documents in each block, in the order of their pieces.  # int64[P] each"""
        return [ids.astype(np.int64) for ids in self.lists("doc_ids")]

    def run_lengths(self, first: int, end: int) -> list[Int32]:
        """Slots of each run of the blocks ``[first, end)``, an array a block; of blocks whose digests were compared."""
        runs = []
        for opened, row in zip(self.opened[first:end], self.rows[first:end], strict=True):
            bound = opened.seq_lengths.offsets.item
            runs.append(opened.seq_lengths.values[bound(row) : bound(row + 1)])
        return runs

    def scalars(self, name: str) -> Int32:
        """What a column with one value a block holds.  # int32[B]"""
        pairs = zip(self.opened, self.rows, strict=True)
        return np.fromiter((getattr(opened, name)[row] for opened, row in pairs), np.int32, len(self.rows))


def _join(parts: list[npt.NDArray[Any]], dtype: type[np.integer]) -> tuple[npt.NDArray[Any], Int64]:
    """Rows of a list column one after another, and their offsets: [7, 8], [9] give [7, 8, 9] and [0, 2, 3]."""
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return np.concatenate(parts) if parts else np.zeros(0, dtype), offsets


def _weights(opened: BlockRows, row: int) -> npt.NDArray[Any]:
    trained = opened.labels[row] != MASKED
    return trained if opened.loss_weights is None else np.where(trained, opened.loss_weights[row], 0)
