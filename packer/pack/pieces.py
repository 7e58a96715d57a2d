"""Pieces of documents: which tokens are packed and which are dropped, and the blocks that pieces are copied into.

A dropped document keeps its number; from here on, it counts as having no tokens.

A document that fits into a block is one piece. A longer one that was not dropped (``reject``) is cut:

- ``truncate_right``: its first ``block_len`` tokens;
- ``split``: consecutive pieces of ``block_len`` tokens, the last one shorter.

A piece is a range of its document's tokens: nothing is appended, so a reply that is cut never gets a terminator it did
not have. The first token of a piece is never trained, as nothing before it is in the block. A piece of a cut document
is dropped if this leaves nothing to train.

Every token of every document is in exactly one piece or in exactly one dropped range; every trained token is
trained in a piece, or in a dropped range, or is the first token of a piece and counted as ``piece_start``.

Worked example, ``block_len`` 4, ``split``: a document of 9 tokens with tokens 1, 2 and 4 trained is cut into [0, 4),
[4, 8) and [8, 9). The first trains two tokens. In the second, token 4 comes first, and nothing else is trained: the
piece is dropped with its trained token, as ``untrained``; and so is the third.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from packer.batches import BlockBatch, Bool, DocumentColumns, Int32, Int64, PackPlan
from packer.layout import MASKED, concatenated_ranges, offsets_of, positions
from packer.recipe.groups import Pack

REASONS = ("overlong", "untrained", "truncated")
"""Why tokens are dropped: their document is longer than a block and rejected; their piece would train nothing; they are
beyond what is kept of a truncated document. If a document loses parts for several reasons, the first of these decides.
"""

OVERLONG, UNTRAINED, TRUNCATED = range(3)

_KEPT = 255

CountTrained: TypeAlias = Callable[[Int64, Int64, Int64], Int64]
"""Counts trained tokens of the ranges ``[start, end)`` of documents: ``count(document, start, end)``, each int64[Q]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Pieces in source order: by document, and by start within a document. P pieces."""

    document: Int64  # [P]
    start: Int64  # [P]
    length: Int32  # [P]


class DropCount(NamedTuple):
    """Losses for one reason."""

    num_documents: int
    """Documents of which no block contains anything."""

    num_parts: int
    num_tokens: int
    num_trained: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedTokens:
    """The dropped-token report: Q ranges of tokens that are in no piece, in source order."""

    document: Int64  # [Q]
    start: Int64  # [Q]
    length: Int64  # [Q]
    reason: npt.NDArray[np.uint8]  # [Q] index into REASONS
    trained: Int64  # [Q] trained tokens of the range, in its document
    num_piece_start: int
    """Trained tokens that are kept but not trained, as the first token of a piece."""

    def counts(self, is_packed: Bool) -> dict[str, DropCount]:
        """Return the losses for each reason of :data:`REASONS`, including zero ones.

        A document that is in no block may have lost its parts for several reasons. It counts under the one
        that decided: what is beyond a truncated document would be left out in any case.

        Args:
            is_packed: whether some part of each document is in a block.  # bool[N]
        """
        nowhere = ~is_packed[self.document]
        firsts = np.flatnonzero(np.diff(self.document[nowhere], prepend=-1))
        decided = self.reason[nowhere]
        decided = np.minimum.reduceat(decided, firsts) if len(firsts) else decided
        losses = {}
        for number, name in enumerate(REASONS):
            mine = self.reason == number
            losses[name] = DropCount(
                num_documents=int((decided == number).sum()),
                num_parts=int(mine.sum()),
                num_tokens=int(self.length[mine].sum()),
                num_trained=int(self.trained[mine].sum()),
            )
        return losses


def cut(
    lengths: npt.NDArray[np.integer], pack: Pack, count_trained: CountTrained, pixels: Int64 | None = None
) -> tuple[Pieces, DroppedTokens]:
    """Cut documents into pieces of at most ``block_len`` tokens.

    A document with images is never cut: it is dropped if its tokens or its pixels exceed those of a block. Trained
    tokens are counted in dropped ranges and in documents that are cut, never in a whole document that is kept.

    Args:
        lengths: tokens of each document.  # integers [N], at least 0
        pack: the rules.
        count_trained: see :func:`trained_counter`.
        pixels: of the images of each document, if the rules limit those of a block.  # int64[N]
    """
    is_long = lengths > pack.block_len
    is_dropped = is_long & (pack.overlong == "reject")
    if pixels is not None and pack.max_pixels is not None:
        is_dropped |= (pixels > pack.max_pixels) | ((pixels > 0) & is_long)
    document, start, end, reason = _ranges(lengths, is_long | is_dropped, is_dropped, pack)
    asked = np.flatnonzero(reason == _KEPT)
    trained = count_trained(document[asked], start[asked] + 1, end[asked])
    reason[asked[trained == 0]] = UNTRAINED
    kept = reason == _KEPT
    whole = np.flatnonzero((lengths > 0) & ~(is_long | is_dropped))
    place = np.searchsorted(whole, document[kept])
    pieces = Pieces(
        document=np.insert(whole, place, document[kept]),
        start=np.insert(np.zeros_like(whole), place, start[kept]),
        length=np.insert(lengths[whole].astype(np.int32), place, (end - start)[kept]),
    )
    return pieces, dropped(document, start, end, reason=reason, kept=kept, count_trained=count_trained)


def dropped(
    document: Int64,
    start: Int64,
    end: Int64,
    *,
    reason: npt.NDArray[np.uint8],
    kept: Bool,
    count_trained: CountTrained,
) -> DroppedTokens:
    """Report those of some ranges that are not kept, with the trained first tokens of those that are."""
    out, inner = np.flatnonzero(~kept), kept & (start > 0)
    out = out[np.lexsort((start[out], document[out]))]
    return DroppedTokens(
        document=document[out],
        start=start[out],
        length=(end - start)[out],
        reason=reason[out],
        trained=count_trained(document[out], start[out], end[out]),
        num_piece_start=int(count_trained(document[inner], start[inner], start[inner] + 1).sum()),
    )


def _ranges(
    lengths: npt.NDArray[np.integer], chosen: Bool, is_dropped: Bool, pack: Pack
) -> tuple[Int64, Int64, Int64, npt.NDArray[np.uint8]]:
    """Return the ranges of the chosen documents in source order: document, start, end, and a reason or _KEPT.

    Worked example, ``block_len`` 4: a document of 9 tokens has the ranges [0, 4), [4, 9) by truncate_right, and
    [0, 4), [4, 8), [8, 9) by split; [0, 9) if it is dropped.
    """
    document = np.flatnonzero(chosen)
    whole = lengths[document].astype(np.int64)
    num_ranges = -(-whole // pack.block_len) if pack.overlong == "split" else np.full(len(document), 2, np.int64)
    num_ranges[is_dropped[document]] = 1
    number = concatenated_ranges(np.zeros(len(document), np.int64), num_ranges)
    document, start = np.repeat(document, num_ranges), number * pack.block_len
    is_last = number == np.repeat(num_ranges, num_ranges) - 1
    end = np.where(is_last, np.repeat(whole, num_ranges), start + pack.block_len)
    is_beyond = (number > 0) & (pack.overlong == "truncate_right")
    reason = np.where(is_dropped[document], OVERLONG, np.where(is_beyond, TRUNCATED, _KEPT))
    return document, start, end, reason.astype(np.uint8)


def trained_counter(
    offsets: Int64, run_offsets: Int64, run_start: npt.NDArray[np.integer], run_end: npt.NDArray[np.integer]
) -> CountTrained:
    """Return a function that counts trained tokens, from the trained runs of documents as in a ``DocumentBatch``.

    Args:
        offsets: tokens of each document.  # int64[D + 1]
        run_offsets: runs of each document.  # int64[D + 1]
        run_start: first token of each run within its document; runs of a document ascend and do not overlap.  # [U]
        run_end: one past its last token.  # [U]
    """
    document_start = np.repeat(offsets[:-1], np.diff(run_offsets))
    starts = document_start + run_start
    before = offsets_of(run_end.astype(np.int64) - run_start)

    def count_before(place: Int64) -> Int64:
        run = np.searchsorted(starts, place, side="right") - 1
        inside = np.minimum(place - starts[run], before[run + 1] - before[run])
        return np.where(run < 0, 0, before[run] + inside)

    def count(document: Int64, start: Int64, end: Int64) -> Int64:
        if not len(starts):
            return np.zeros(len(document), np.int64)
        return count_before(offsets[document] + end) - count_before(offsets[document] + start)

    return count


def gather(
    plan: PackPlan,
    columns: DocumentColumns,
    *,
    block_len: int,
    pad_id: int,
    one_run: bool = False,
) -> BlockBatch:
    """Lay out the blocks of a plan.

    A block consists of its pieces one after another and then a padding run: ``pad_id``, label -100, positions of its
    own. The first token of every piece is masked, whatever its label in the columns. The result does not
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
    copies = _copies(plan, place, columns)
    _copy(copies, columns.input_ids, input_ids)
    _copy(copies, columns.labels, labels)
    labels.reshape(-1)[place] = MASKED
    return BlockBatch(
        input_ids=input_ids,
        labels=labels,
        position_ids=positions(seq_lengths).reshape(shape),
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
