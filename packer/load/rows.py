"""Blocks as the arrays of a micro-batch, on the host: flattened for variable-length attention, or row by row.

Everything stays int32 here, as stored; ids, labels and positions are widened where they are placed, so that a copy
to a device moves half the bytes.
"""

from typing import Any, TypeAlias

import numpy as np

from packer.batches import BlockBatch
from packer.layout import MASKED, cu_seq_lens, sequence_numbers

HostBatch: TypeAlias = dict[str, Any]
"""numpy arrays and ints by name."""

WIDENED = frozenset({"input_ids", "labels", "position_ids"})
"""int32 in the cache, int64 for models: an embedding and a cross entropy index with int64."""


def flattened(blocks: BlockBatch, *, weighted: bool) -> HostBatch:
    """B blocks as one row, the form of variable-length attention with batch size 1.

    Every padding run is a sequence of its own, so padding sees only padding. S is the number of sequences.

    Returns:
        ``input_ids, labels, position_ids`` int32 [1, B·L], ``cu_seq_lens_q, cu_seq_lens_k`` int32 [S + 1],
        ``max_length_q, max_length_k`` int, and ``loss_weights`` float32 [1, B·L] where `weighted`

    """
    bounds = cu_seq_lens(blocks.seq_lengths)
    longest = int(blocks.seq_lengths.max())
    return {
        **{name: array.reshape(1, -1) for name, array in _columns(blocks, weighted=weighted).items()},
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds.copy(),
        "max_length_q": longest,
        "max_length_k": longest,
    }


def stacked(blocks: BlockBatch, *, weighted: bool) -> HostBatch:
    """B blocks as B rows, for models that take a mask of their own.

    Returns:
        ``input_ids, labels, position_ids`` int32 [B, L], ``document_ids`` int32 [B, L], the number of each position's
        sequence within the micro-batch (a padding run is one), and ``loss_weights`` float32 [B, L] where `weighted`

    """
    columns = _columns(blocks, weighted=weighted)
    return {**columns, "document_ids": sequence_numbers(blocks.seq_lengths).reshape(blocks.input_ids.shape)}


def with_padding_rows(blocks: BlockBatch | None, *, num_rows: int, block_len: int, pad_id: int) -> BlockBatch:
    """The blocks, then rows of nothing but padding, up to `num_rows`: pad id, -100, positions from 0, one sequence."""
    present = 0 if blocks is None else blocks.num_blocks
    missing = num_rows - present
    if blocks is not None and missing == 0:
        return blocks
    shape = (missing, block_len)
    ones = np.ones(missing, np.int64)
    padding = BlockBatch(
        input_ids=np.full(shape, pad_id, np.int32),
        labels=np.full(shape, MASKED, np.int32),
        position_ids=np.tile(np.arange(block_len, dtype=np.int32), (missing, 1)),
        loss_weights=np.zeros(shape, np.float32),
        seq_lengths=np.full(missing, block_len, np.int32),
        seq_offsets=np.arange(missing + 1, dtype=np.int64),
        doc_ids=np.zeros(0, np.int64),
        doc_starts=np.zeros(0, np.int32),
        doc_lengths=np.zeros(0, np.int32),
        doc_places=np.zeros(0, np.int32),
        doc_offsets=np.zeros(missing + 1, np.int64),
        length=np.zeros(missing, np.int32),
        num_trained=np.zeros(missing, np.int32),
    )
    if blocks is None:
        return padding
    return BlockBatch(
        input_ids=np.concatenate([blocks.input_ids, padding.input_ids]),
        labels=np.concatenate([blocks.labels, padding.labels]),
        position_ids=np.concatenate([blocks.position_ids, padding.position_ids]),
        loss_weights=_concatenated(blocks.loss_weights, padding.loss_weights),
        seq_lengths=np.concatenate([blocks.seq_lengths, padding.seq_lengths]),
        seq_offsets=np.concatenate([blocks.seq_offsets, blocks.seq_offsets[-1] + np.cumsum(ones)]),
        doc_ids=blocks.doc_ids,
        doc_starts=blocks.doc_starts,
        doc_lengths=blocks.doc_lengths,
        doc_places=blocks.doc_places,
        doc_offsets=np.concatenate([blocks.doc_offsets, np.full(missing, blocks.doc_offsets[-1])]),
        length=np.concatenate([blocks.length, padding.length]),
        num_trained=np.concatenate([blocks.num_trained, padding.num_trained]),
    )


def rows_between(blocks: BlockBatch, start: int, stop: int) -> BlockBatch:
    """Rows ``[start, stop)``; the arrays of tokens and of values are views.

    Worked example: seq_lengths [8, 5, 3, 8], seq_offsets [0, 1, 3, 4], rows [1, 3): the offsets [1, 3, 4] name the
    values [5, 3, 8], among which they are [0, 2, 3].
    """
    seq_offsets, doc_offsets = blocks.seq_offsets[start : stop + 1], blocks.doc_offsets[start : stop + 1]
    sequences, documents = slice(seq_offsets[0], seq_offsets[-1]), slice(doc_offsets[0], doc_offsets[-1])
    return BlockBatch(
        input_ids=blocks.input_ids[start:stop],
        labels=blocks.labels[start:stop],
        position_ids=blocks.position_ids[start:stop],
        loss_weights=None if blocks.loss_weights is None else blocks.loss_weights[start:stop],
        seq_lengths=blocks.seq_lengths[sequences],
        seq_offsets=seq_offsets - seq_offsets[0],
        doc_ids=blocks.doc_ids[documents],
        doc_starts=blocks.doc_starts[documents],
        doc_lengths=blocks.doc_lengths[documents],
        doc_places=blocks.doc_places[documents],
        doc_offsets=doc_offsets - doc_offsets[0],
        length=blocks.length[start:stop],
        num_trained=blocks.num_trained[start:stop],
    )


def weights_of(blocks: BlockBatch) -> Any:
    """Loss weight of every target: as stored, 1 where a cache stores none, 0 where masked.  # float32[B, L]"""
    trained = blocks.labels != MASKED
    if blocks.loss_weights is None:
        return trained.astype(np.float32)
    return np.where(trained, blocks.loss_weights, np.float32(0))


def _columns(blocks: BlockBatch, *, weighted: bool) -> HostBatch:
    columns: HostBatch = {
        "input_ids": blocks.input_ids,
        "labels": blocks.labels,
        "position_ids": blocks.position_ids,
    }
    if weighted:
        columns["loss_weights"] = weights_of(blocks)
    return columns


def _concatenated(first: Any, second: Any) -> Any:
    return None if first is None else np.concatenate([first, second])
