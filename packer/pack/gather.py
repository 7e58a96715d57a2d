"""The blocks of a plan, gathered from the documents' columns."""

from dataclasses import dataclass

import numpy as np

from packer.batches import BlockBatch, DocumentColumns, Float32, Int32, Int64, PackPlan
from packer.layout import MASKED, concatenated_ranges, offsets_of, positions


def gather(
    plan: PackPlan,
    columns: DocumentColumns,
    *,
    block_len: int,
    pad_id: int,
    separator_id: int | None = None,
    one_run: bool = False,
) -> BlockBatch:
    """Lay out the blocks of a plan.

    A block holds its pieces one after another and then a padding run: ``pad_id``, label -100, weight 0, positions
    of its own. The first token of every piece is masked, whatever its label in the columns. The result does not
    depend on how the documents are divided into chunks.

    A piece that takes more slots than it has tokens is followed by ``separator_id`` in them, masked; by ``pad_id``
    where there is none. They belong to the piece's run: positions run on, and ``seq_lengths`` counts them, as kernels
    for context parallel ask; ``doc_lengths`` does not.

    A call reads each chunk once, from its beginning to its end, so few calls for many blocks read less at random than
    many for few.

    Args:
        plan: of the documents.
        columns: of the documents.
        block_len: slots of a block.
        pad_id: id of padding.
        separator_id: id of the slots behind a piece.
        one_run: all pieces of a block are one run, with positions that go through; else each is a run of its own.

    Raises:
        ValueError: a block of more than ``block_len`` slots.

    """
    pieces = _Pieces.of(plan, block_len)
    seq_lengths, seq_offsets = _runs(pieces, block_len, one_run=one_run)
    shape = (pieces.num_blocks, block_len)
    input_ids, labels = np.full(shape, pad_id, np.int32), np.full(shape, MASKED, np.int32)
    weights = None if columns.loss_weights is None else np.zeros(shape, np.float32)
    flat_weights = None if weights is None else weights.reshape(-1)
    _copy_pieces(pieces, columns, input_ids.reshape(-1), labels.reshape(-1), flat_weights)
    if separator_id is not None:
        behind = concatenated_ranges(pieces.place + pieces.length, pieces.slots - pieces.length)
        input_ids.reshape(-1)[behind] = separator_id
    row_place = np.repeat(np.arange(pieces.num_blocks) * block_len, np.diff(pieces.offsets))
    return BlockBatch(
        input_ids=input_ids,
        labels=labels,
        position_ids=positions(seq_lengths).reshape(shape),
        loss_weights=weights,
        seq_lengths=seq_lengths,
        seq_offsets=seq_offsets,
        doc_ids=columns.doc_id[pieces.document],
        doc_starts=pieces.start.astype(np.int32),
        doc_lengths=pieces.length.astype(np.int32),
        doc_places=(pieces.place - row_place).astype(np.int32),
        doc_offsets=pieces.offsets,
        length=pieces.tokens.astype(np.int32),
        num_trained=(labels != MASKED).sum(axis=1, dtype=np.int32),
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
    def of(cls, plan: PackPlan, block_len: int) -> "_Pieces":
        """Find the places of a plan's pieces.

        Worked example for place, block_len 8: blocks of lengths [3, 2] and [5]. The slots before each piece are
        [0, 3, 5], those before its block [0, 0, 5]; the difference is its place in the block, [0, 3, 0], to which the
        block's own place is added: [0, 3, 8].
        """
        offsets = plan.block_offsets
        length, slots = plan.length.astype(np.int64), plan.slots.astype(np.int64)
        before = offsets_of(slots)
        filled = np.diff(before[offsets])
        if filled.size and int(filled.max()) > block_len:
            raise ValueError(f"block {filled.argmax()} takes {filled.max()} slots; expected at most {block_len}")
        shift = np.arange(len(filled)) * block_len - before[offsets[:-1]]
        return cls(
            document=plan.document,
            start=plan.start,
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
    order = np.lexsort([source, chunk])
    bounds = (chunk, source, source + pieces.length, pieces.place, pieces.place + pieces.length)
    rows = list(zip(*(column[order].tolist() for column in bounds), strict=True))
    for chunks, into in ((columns.input_ids, input_ids), (columns.labels, labels), (columns.loss_weights, weights)):
        if chunks is None or into is None:
            continue
        for number, start, end, place, place_end in rows:
            into[place:place_end] = chunks[number][start:end]
    labels[pieces.place] = MASKED
    if weights is not None:
        weights[pieces.place] = 0


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
