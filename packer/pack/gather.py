"""The blocks of a plan, gathered from the documents' columns."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from packer.batches import BlockBatch, DocumentColumns, Float32, Int32, Int64, PackPlan
from packer.layout import MASKED, concatenated_ranges, offsets_of, positions
from packer.pack.copy import copy_ranges

_COPY_TOKENS = 2**17  # tokens copied at a time: half a MiB of windows on their way
_INDEX_SLOTS = 2**16  # slots indexed one by one at a time: half a MiB an index array


def gather(
    plan: PackPlan,
    first_block: int,
    last_block: int,
    columns: DocumentColumns,
    *,
    block_len: int,
    pad_id: int,
    separator_id: int | None = None,
    one_run: bool = False,
) -> BlockBatch:
    """Lay out the blocks ``[first_block, last_block)`` of a plan.

    A block holds its pieces one after another and then a padding run: ``pad_id``, label -100, weight 0, positions
    of its own. The first token of every piece is masked, whatever its label in the columns. The result does not
    depend on how the documents are divided into chunks.

    A piece that takes more slots than it has tokens is followed by ``separator_id`` in them, masked; by ``pad_id``
    where there is none. They belong to the piece's run: positions run on, and ``seq_lengths`` counts them, as kernels
    for context parallel ask; ``doc_lengths`` does not.

    Memory beside the blocks is a few numbers for each piece and a few MiB, whatever the number of tokens. A call reads
    each chunk once, from its beginning to its end, so few calls for many blocks read less at random than many for few.

    Args:
        plan: of the documents.
        first_block: number of the first one.
        last_block: one past the last.
        columns: of the documents.
        block_len: slots of a block.
        pad_id: id of padding.
        separator_id: id of the slots behind a piece.
        one_run: all pieces of a block are one run, with positions that go through; else each is a run of its own.

    Raises:
        ValueError: blocks the plan does not have, or a block of more than ``block_len`` tokens.

    """
    pieces = _Pieces.of(plan, first_block, last_block, block_len)
    seq_lengths, seq_offsets = _runs(pieces, block_len, one_run=one_run)
    shape = (pieces.num_blocks, block_len)
    input_ids, labels, position_ids = (np.empty(shape, np.int32) for _ in range(3))
    weights = None if columns.loss_weights is None else np.empty(shape, np.float32)
    num_trained = np.empty(pieces.num_blocks, np.int32)
    _copy_pieces(pieces, columns, input_ids.reshape(-1), labels.reshape(-1), weights)
    for rows in _row_slices(pieces.num_blocks, _INDEX_SLOTS // block_len):
        behind, padding = _empty_slots(pieces, rows, block_len)
        input_ids[rows].reshape(-1)[behind] = pad_id if separator_id is None else separator_id
        input_ids[rows].reshape(-1)[padding] = pad_id
        for slots in (behind, padding):
            labels[rows].reshape(-1)[slots] = MASKED
            if weights is not None:
                weights[rows].reshape(-1)[slots] = 0
        runs = seq_lengths[seq_offsets[rows.start] : seq_offsets[rows.stop]]
        position_ids[rows] = positions(runs).reshape(-1, block_len)
        num_trained[rows] = (labels[rows] != MASKED).sum(axis=1, dtype=np.int32)
    row_place = np.repeat(np.arange(pieces.num_blocks) * block_len, np.diff(pieces.offsets))
    return BlockBatch(
        input_ids=input_ids,
        labels=labels,
        position_ids=position_ids,
        loss_weights=weights,
        seq_lengths=seq_lengths,
        seq_offsets=seq_offsets,
        doc_ids=columns.doc_id[pieces.document],
        doc_starts=pieces.start.astype(np.int32),
        doc_lengths=pieces.length.astype(np.int32),
        doc_places=(pieces.place - row_place).astype(np.int32),
        doc_offsets=pieces.offsets,
        length=pieces.tokens.astype(np.int32),
        num_trained=num_trained,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pieces:
    """The pieces of some blocks, P in B blocks, and where they go in the flat blocks."""

    document: Int64  # [P]
    start: Int64  # [P]
    length: Int64  # [P]
    slots: Int64  # [P] that the piece takes
    place: Int64  # [P] of the first token in the flat blocks, padding counted
    offsets: Int64  # [B + 1] pieces of each block
    filled: Int64  # [B] slots of the pieces, without the padding run
    tokens: Int64  # [B]

    @property
    def num_blocks(self) -> int:
        return len(self.filled)

    @classmethod
    def of(cls, plan: PackPlan, first_block: int, last_block: int, block_len: int) -> "_Pieces":
        """Take the pieces of ``[first_block, last_block)``.

        Worked example for place, block_len 8: blocks of lengths [3, 2] and [5]. The slots before each piece are
        [0, 3, 5], those before its block [0, 0, 5]; the difference is its place in the block, [0, 3, 0], to which the
        block's own place is added: [0, 3, 8].
        """
        if not 0 <= first_block <= last_block <= plan.num_blocks:
            raise ValueError(f"blocks [{first_block}, {last_block}) of a plan of {plan.num_blocks} blocks")
        offsets = plan.block_offsets[first_block : last_block + 1]
        taken = slice(int(offsets[0]), int(offsets[-1]))
        offsets = offsets - offsets[0]
        length = plan.length[taken].astype(np.int64)
        slots = plan.slots[taken].astype(np.int64)
        before = offsets_of(slots)
        filled = np.diff(before[offsets])
        if filled.size and int(filled.max()) > block_len:
            crowded = first_block + int(filled.argmax())
            raise ValueError(f"block {crowded} of the plan takes {filled.max()} slots; expected at most {block_len}")
        shift = np.arange(len(filled)) * block_len - before[offsets[:-1]]
        return cls(
            document=plan.document[taken],
            start=plan.start[taken],
            length=length,
            slots=slots,
            place=before[:-1] + np.repeat(shift, np.diff(offsets)),
            offsets=offsets,
            filled=filled,
            tokens=np.diff(offsets_of(length)[offsets]),
        )


def _copy_pieces(
    pieces: _Pieces, columns: DocumentColumns, input_ids: Int32, labels: Int32, weights: Float32 | None
) -> None:
    """Copy every piece to its place, reading each chunk once, from its beginning to its end."""
    chunk = columns.chunk[pieces.document]
    source = columns.start[pieces.document] + pieces.start
    before = np.cumsum([0, *map(len, columns.input_ids)])[:-1]  # tokens in the chunks before each
    order = np.argsort(before[chunk] + source)
    chunk, source, place, length = chunk[order], source[order], pieces.place[order], pieces.length[order]
    for part in _copy_slices(chunk, length):
        number = int(chunk[part.start])
        pairs: list[tuple[Int32 | Float32, Int32 | Float32]] = [
            (columns.input_ids[number], input_ids),
            (columns.labels[number], labels),
        ]
        if columns.loss_weights is not None and weights is not None:
            pairs.append((columns.loss_weights[number], weights.reshape(-1)))
        copy_ranges(pairs, source[part], place[part], length[part])
    labels[place] = MASKED
    if weights is not None:
        weights.reshape(-1)[place] = 0


def _copy_slices(chunk: Int32, length: Int64) -> Iterator[slice]:
    """Cut pieces, sorted by chunk, into slices of one chunk and of about ``_COPY_TOKENS`` tokens."""
    number = (np.cumsum(length) - length) // _COPY_TOKENS
    cuts = np.flatnonzero((np.diff(chunk) != 0) | (np.diff(number) != 0)) + 1
    bounds = [0, *cuts.tolist(), len(chunk)] if len(chunk) else [0]
    return map(slice, bounds[:-1], bounds[1:])


def _empty_slots(pieces: _Pieces, rows: slice, block_len: int) -> tuple[Int64, Int64]:
    """Slots that hold no token in some blocks, counted from the first of them: behind pieces, and of padding runs."""
    filled = pieces.filled[rows]
    mine = slice(int(pieces.offsets[rows.start]), int(pieces.offsets[rows.stop]))
    length = pieces.length[mine]
    behind = concatenated_ranges(pieces.place[mine] + length - rows.start * block_len, pieces.slots[mine] - length)
    return behind, concatenated_ranges(np.arange(len(filled)) * block_len + filled, block_len - filled)


def _runs(pieces: _Pieces, block_len: int, *, one_run: bool) -> tuple[Int32, Int64]:
    """Lengths of all runs, a padding run the last of its block, and their offsets.  # int32[M], int64[B + 1]

    Worked example, block_len 8: blocks [3, 2] and [8] give [3, 2, 3, 8] with offsets [0, 3, 4]; as one run each,
    [5, 3, 8] with offsets [0, 2, 3].
    """
    runs = pieces.filled if one_run else pieces.slots
    seq_offsets = np.arange(pieces.num_blocks + 1) if one_run else pieces.offsets.copy()
    padding = block_len - pieces.filled
    padded = padding > 0
    seq_lengths = np.insert(runs, seq_offsets[1:][padded], padding[padded]).astype(np.int32)
    seq_offsets[1:] += np.cumsum(padded)
    return seq_lengths, seq_offsets


def _row_slices(num_blocks: int, step: int) -> Iterator[slice]:
    step = max(1, step)
    return (slice(first, min(first + step, num_blocks)) for first in range(0, num_blocks, step))
