"""Gathers the blocks of a plan from the documents' columns."""

from typing import Any

import numpy as np
import numpy.typing as npt

from packer.batches import BlockBatch, DocumentColumns, Int32, Int64, PackPlan
from packer.layout import MASKED, offsets_of, positions


def gather(
    plan: PackPlan,
    columns: DocumentColumns,
    *,
    block_len: int,
    pad_id: int,
    one_run: bool = False,
) -> BlockBatch:
    """Lay out the blocks of a plan.

    A block consists of its pieces one after another and then a padding run: ``pad_id``, label -100, weight 0, positions
    of its own. The first token of every piece is masked, whatever its label in the columns. The result does not
    depend on how the documents are divided into chunks.

    If a piece takes more slots than it has tokens, the extra slots are filled with ``pad_id`` and masked. They
    belong to the piece's run: positions continue, and ``seq_lengths`` counts them, as
    kernels for context parallelism require; ``doc_lengths`` does not.

    A call reads each chunk once, from beginning to end, so a few calls for many blocks each cause less random access
    than many calls for a few.

    Worked example for the places of pieces, block_len 8: blocks of lengths [3, 2] and [5]. The slots before each piece
    are [0, 3, 5], those before its block [0, 0, 5]; the difference is its place in the block, [0, 3, 0], to which the
    start of the block is added: [0, 3, 8].

    With `one_run`, all pieces of a block are one run with continuous positions; otherwise each is its own run.

    Raises:
        ValueError: a block of more than ``block_len`` slots.
    """
    length, slots, offsets = plan.length.astype(np.int64), plan.slots.astype(np.int64), plan.block_offsets
    before = offsets_of(slots)
    filled = np.diff(before[offsets])
    if filled.size and int(filled.max()) > block_len:
        raise ValueError(f"block {filled.argmax()} takes {filled.max()} slots; expected at most {block_len}")
    place_in_block = before[:-1] - np.repeat(before[offsets[:-1]], np.diff(offsets))
    place = place_in_block + np.repeat(np.arange(plan.num_blocks) * block_len, np.diff(offsets))
    seq_lengths, seq_offsets = _runs(filled, slots, offsets, block_len, one_run=one_run)
    shape = (plan.num_blocks, block_len)
    input_ids, labels = np.full(shape, pad_id, np.int32), np.full(shape, MASKED, np.int32)
    weights = None if columns.loss_weights is None else np.zeros(shape, np.float32)
    copies = _copies(plan, place, columns)
    _copy(copies, columns.input_ids, input_ids)
    _copy(copies, columns.labels, labels)
    labels.reshape(-1)[place] = MASKED
    if columns.loss_weights is not None and weights is not None:
        _copy(copies, columns.loss_weights, weights)
        weights.reshape(-1)[place] = 0
    return BlockBatch(
        input_ids=input_ids,
        labels=labels,
        position_ids=positions(seq_lengths).reshape(shape),
        loss_weights=weights,
        seq_lengths=seq_lengths,
        seq_offsets=seq_offsets,
        doc_ids=columns.doc_id[plan.document],
        doc_starts=plan.start.astype(np.int32),
        doc_lengths=plan.length,
        doc_places=place_in_block.astype(np.int32),
        doc_offsets=offsets,
        length=np.diff(offsets_of(length)[offsets]).astype(np.int32),
        num_trained=(labels != MASKED).sum(axis=1, dtype=np.int32),
    )


def _copies(plan: PackPlan, place: Int64, columns: DocumentColumns) -> list[tuple[int, ...]]:
    """Return each piece's chunk, range in it and range in the flat blocks, ordered by chunk and position."""
    chunk = columns.chunk[plan.document]
    source = columns.start[plan.document] + plan.start
    order = np.lexsort([source, chunk])
    bounds = (chunk, source, source + plan.length, place, place + plan.length)
    return list(zip(*(column[order].tolist() for column in bounds), strict=True))


def _copy(copies: list[tuple[int, ...]], chunks: tuple[npt.NDArray[Any], ...], blocks: npt.NDArray[Any]) -> None:
    # Slicing a memoryview costs half as much as slicing an array, and most documents are short.
    sources, flat = [chunk.data for chunk in chunks], blocks.reshape(-1).data
    for number, start, end, place, place_end in copies:
        flat[place:place_end] = sources[number][start:end]


def _runs(filled: Int64, slots: Int64, offsets: Int64, block_len: int, *, one_run: bool) -> tuple[Int32, Int64]:
    """Return the lengths and offsets of all runs; a padding run is the last of its block.  # int32[M], int64[B + 1]

    Worked example, block_len 8: blocks [3, 2] and [8] give [3, 2, 3, 8] with offsets [0, 3, 4]; as one run each,
    [5, 3, 8] with offsets [0, 2, 3].
    """
    runs = filled if one_run else slots
    seq_offsets = np.arange(len(filled) + 1) if one_run else offsets.copy()
    padding = block_len - filled
    padded = padding > 0
    seq_lengths = np.insert(runs, seq_offsets[1:][padded], padding[padded]).astype(np.int32)
    seq_offsets[1:] += np.cumsum(padded)
    return seq_lengths, seq_offsets
