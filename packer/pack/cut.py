"""Pieces of documents, cut before they are placed, and the ledger of what is left out.

A document that fits in a block is one piece. One that does not is

- ``reject``: left out;
- ``truncate_right``: its first ``block_len`` tokens;
- ``truncate_left``: its last ``block_len`` tokens;
- ``split``: consecutive pieces of ``block_len`` tokens, the last one shorter.

A piece is a range of its document's tokens: nothing is appended, so a reply that is cut never gets a terminator it did
not have. The first token of a piece is never trained, as nothing before it is in the block. A piece of a document that
was cut is left out where that leaves it nothing to train, and so is one shorter than ``min_length``.

Every token of every document is in exactly one piece or in exactly one range of the ledger; every trained token is
trained in a piece, or in a range of the ledger, or is the first token of a piece and counted as ``piece_start``.

Worked example, ``block_len`` 4, ``split``: a document of 9 tokens with tokens 1, 2 and 4 trained is cut into [0, 4),
[4, 8) and [8, 9). The first trains two tokens. In the second, token 4 is the first, and nothing else is trained: it is
left out with its trained token, as ``nothing_trained``; and so is the third.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from packer.batches import Int32, Int64
from packer.layout import concatenated_ranges, offsets_of

Overlong: TypeAlias = Literal["reject", "truncate_left", "truncate_right", "split"]

OVERLONG: tuple[Overlong, ...] = ("reject", "truncate_left", "truncate_right", "split")

REASONS = ("too_short", "overlong", "truncated", "nothing_trained")
"""Why a range is left out: it, or its document, has fewer than ``min_length`` tokens; its document is longer than a
block and rejected; it is beyond what is kept of a truncated document; it would train nothing."""

CountTrained: TypeAlias = Callable[[Int64, Int64, Int64], Int64]
"""Trained tokens of the ranges ``[start, end)`` of documents: ``count(document, start, end)``, each int64[Q]."""

_TOO_SHORT, _OVERLONG, _TRUNCATED, _NOTHING_TRAINED = range(4)
_KEPT = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Pieces in source order: by document, and by start within a document. P pieces of N documents."""

    document: Int64  # [P]
    start: Int64  # [P]
    length: Int32  # [P]
    num_documents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a reason costs."""

    num_tokens: int
    num_trained: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """The ledger: Q ranges of tokens that are in no piece, in source order."""

    document: Int64  # [Q]
    start: Int64  # [Q]
    length: Int64  # [Q]
    reason: npt.NDArray[np.uint8]  # [Q] index into REASONS
    trained: Int64  # [Q] trained tokens of the range, in its document
    num_piece_start: int
    """Trained tokens that are kept but not trained, as the first token of a piece."""

    def losses(self) -> dict[str, Loss]:
        """What each reason costs, ``piece_start`` among them; reasons that cost nothing too."""
        of_reason = [self.reason == number for number in range(len(REASONS))]
        return {
            **{
                name: Loss(num_tokens=int(self.length[mine].sum()), num_trained=int(self.trained[mine].sum()))
                for name, mine in zip(REASONS, of_reason, strict=True)
            },
            "piece_start": Loss(num_tokens=0, num_trained=self.num_piece_start),
        }


def cut(
    lengths: npt.NDArray[np.integer],
    block_len: int,
    count_trained: CountTrained,
    *,
    overlong: Overlong = "reject",
    min_length: int = 1,
) -> tuple[Pieces, LeftOut]:
    """Cut documents into pieces of at most ``block_len`` tokens.

    Args:
        lengths: tokens of each document.  # integers [N], at least 0
        block_len: tokens of a block, at least 1.
        count_trained: asked about ranges that are left out and about pieces of documents that are cut, never
            about a whole document that is kept; see :func:`trained_counter`.
        overlong: what becomes of a document longer than a block.
        min_length: shorter documents and pieces are left out.

    Raises:
        ValueError: an unknown ``overlong``, ``block_len`` or ``min_length`` below 1.

    """
    if overlong not in OVERLONG:
        raise ValueError(f"overlong is '{overlong}'; expected one of {', '.join(OVERLONG)}")
    if block_len < 1 or min_length < 1:
        raise ValueError(f"block_len is {block_len} and min_length {min_length}; expected at least 1")
    sizes: Int64 = lengths.astype(np.int64, copy=False)
    document, start, length = _ranges(sizes, block_len, overlong)
    whole = sizes[document]
    reason = _reasons(start, length, whole, block_len=block_len, overlong=overlong, min_length=min_length)
    is_cut = np.flatnonzero((reason == _KEPT) & (length < whole))
    trained = count_trained(document[is_cut], start[is_cut] + 1, start[is_cut] + length[is_cut])
    reason[is_cut[trained == 0]] = _NOTHING_TRAINED
    kept, out = reason == _KEPT, np.flatnonzero(reason != _KEPT)
    inner = np.flatnonzero(kept & (start > 0))
    pieces = Pieces(
        document=document[kept],
        start=start[kept],
        length=length[kept].astype(np.int32),
        num_documents=len(lengths),
    )
    left_out = LeftOut(
        document=document[out],
        start=start[out],
        length=length[out],
        reason=reason[out],
        trained=count_trained(document[out], start[out], start[out] + length[out]),
        num_piece_start=int(count_trained(document[inner], start[inner], start[inner] + 1).sum()),
    )
    return pieces, left_out


def trained_counter(
    offsets: Int64, run_offsets: Int64, run_start: npt.NDArray[np.integer], run_end: npt.NDArray[np.integer]
) -> CountTrained:
    """Count trained tokens by the trained runs of documents, in the arrays of a ``DocumentBatch``.

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


def _ranges(lengths: Int64, block_len: int, overlong: Overlong) -> tuple[Int64, Int64, Int64]:
    """Document, start and length of the ranges that documents are cut into, kept or not.  # int64[R] each

    A document that is cut has its first cut at ``block_len``, or so that ``block_len`` tokens follow (truncate_left);
    split goes on cutting every ``block_len`` tokens. Worked example, ``block_len`` 4: a document of 9 tokens is cut
    into [0, 4), [4, 9) by truncate_right, [0, 5), [5, 9) by truncate_left and [0, 4), [4, 8), [8, 9) by split.
    """
    num_ranges = np.minimum(lengths, 1)
    if overlong != "reject":
        long = np.flatnonzero(lengths > block_len)
        num_ranges[long] = -(-lengths[long] // block_len) if overlong == "split" else 2
    document = np.repeat(np.arange(len(lengths)), num_ranges)
    number = concatenated_ranges(np.zeros(len(lengths), np.int64), num_ranges)
    whole = lengths[document]
    first_cut = whole - block_len if overlong == "truncate_left" else block_len
    start = np.where(number == 0, 0, first_cut + (number - 1) * block_len)
    end = np.where(number == num_ranges[document] - 1, whole, first_cut + number * block_len)
    return document, start, end - start


def _reasons(
    start: Int64, length: Int64, whole: Int64, *, block_len: int, overlong: Overlong, min_length: int
) -> npt.NDArray[np.uint8]:
    """Why each range is left out, as far as lengths say; ``_KEPT`` where they do not.  # uint8[R]"""
    reason = np.full(len(length), _KEPT, np.uint8)
    if overlong == "truncate_left":
        reason[start + length < whole] = _TRUNCATED
    elif overlong == "truncate_right":
        reason[start > 0] = _TRUNCATED
    elif overlong == "reject":
        reason[length > block_len] = _OVERLONG
    reason[(reason == _KEPT) & (length < min_length)] = _TOO_SHORT
    reason[whole < min_length] = _TOO_SHORT
    return reason
