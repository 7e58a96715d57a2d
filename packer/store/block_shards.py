"""Read blocks: gather rows from any shards in the requested order, checking each row's digest on first access."""

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.batches import BlockBatch, Int64
from packer.layout import concatenated_ranges, offsets_of
from packer.store.arrow_columns import BlockRows, block_rows
from packer.store.entries import BLOCK_PIECES, Kind
from packer.store.mapping import MappedShard, check_blocks
from packer.store.numbered_rows import FoundRows, NumberedRows

_TOKENS = ("input_ids", "labels", "position_ids")
_SCALARS = ("length", "num_trained")


class FoundBlocks(FoundRows[BlockRows]):
    """Blocks that were located and whose digests were checked."""

    __slots__ = ()

    def doc_ids(self) -> list[Int64]:
        """Return the ids of the documents in each block, in the order of their pieces.  # int64[P] each"""
        return [ids.astype(np.int64) for ids in self.values("doc_ids")]


class BlockShards(NumberedRows[BlockRows]):
    """The blocks of several shards of one block length, numbered consecutively."""

    kind: ClassVar[Kind] = "blocks"

    @cached_property
    def block_len(self) -> int:
        """Tokens per block; 0 if there are no shards."""
        return self.mapped(0).block_len if self.shards else 0

    def read(self, indices: Int64) -> BlockBatch:
        """Read blocks by index, in any order, repeats allowed; the arrays are copies and may be written to.

        Raises:
            IndexError: an index is out of range.
        """
        found = self.locate(indices)
        shape = (len(found), self.block_len)
        tokens = {name: _join(found.values(name), np.int32)[0].reshape(shape) for name in _TOKENS}
        weights = _join(found.values("loss_weights"), np.float32)[0].reshape(shape) if self.weighted else None
        seq_lengths, seq_offsets = _join(found.values("seq_lengths"), np.int32)
        doc_ids, doc_offsets = _join(found.values("doc_ids"), np.int64)
        pieces = {name: _join(found.values(name), np.int32)[0] for name in BLOCK_PIECES[1:]}
        return BlockBatch(
            **tokens,
            **{name: np.array(found.values(name), np.int32) for name in _SCALARS},
            loss_weights=weights,
            seq_lengths=seq_lengths,
            seq_offsets=seq_offsets,
            doc_ids=doc_ids,
            **pieces,
            doc_offsets=doc_offsets,
        )

    def squares(self, indices: Int64) -> Int64:
        """Return the sum of the squares of each block's sequence lengths; digests are not checked here.  # int64[R]"""
        squares = np.empty(len(indices), np.int64)
        for chunk, places, rows in self._by_chunk(self.stored_numbers(indices)):
            column = self.chunk(chunk)[0].seq_lengths
            starts, ends = column.offsets[rows], column.offsets[rows + 1]
            lengths = column.values[concatenated_ranges(starts, ends - starts)].astype(np.int64)
            squares[places] = np.add.reduceat(lengths * lengths, offsets_of(ends - starts)[:-1])
        return squares

    def locate(self, indices: Int64) -> FoundBlocks:
        """Locate blocks as :meth:`read` does, and check their digests; nothing is copied yet."""
        return FoundBlocks(*self._found(indices))

    def _view(self, batch: pa.RecordBatch, mapped: MappedShard) -> BlockRows:
        if mapped.block_len != self.block_len:
            raise ValueError(f"expected blocks of {self.block_len} tokens, found {mapped.block_len}")
        rows = block_rows(batch)
        check_blocks(rows, mapped.shard)
        return rows


def _join(parts: list[npt.NDArray[Any]], dtype: type[np.number]) -> tuple[npt.NDArray[Any], Int64]:
    """Concatenate the rows of a list column, and return their offsets: [7, 8], [9] become [7, 8, 9] and [0, 2, 3]."""
    return np.concatenate([np.zeros(0, dtype), *parts]), offsets_of([len(part) for part in parts])
