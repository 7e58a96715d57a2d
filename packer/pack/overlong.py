"""Which tokens of which documents are packed: drops documents, cuts others into pieces, and reports what is dropped.

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
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from packer.batches import Bool, Int32, Int64
from packer.layout import concatenated_ranges, offsets_of
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
class Selection:
    """N documents, of which D are dropped."""

    length: npt.NDArray[np.integer]  # [N] tokens of each document, 0 if it is dropped
    pixels: Int64 | None = None  # [N] of the images of each document; None if none are counted
    dropped: Int64  # [D] numbers of the dropped ones, ascending
    dropped_length: Int64  # [D] their tokens


def select(lengths: npt.NDArray[np.integer], pack: Pack, pixels: Int64 | None = None) -> Selection:
    """Drop documents that are longer than a block if the rules reject them.

    A document with images is never cut: it is dropped if its tokens or its pixels exceed those of a block.

    Args:
        lengths: tokens of each document.  # integers [N], at least 0
        pack: the rules.
        pixels: of the images of each document, if the rules limit those of a block.  # int64[N]
    """
    is_dropped = lengths > (pack.block_len if pack.overlong == "reject" and pack.mode != "stream" else np.inf)
    if pixels is not None and pack.max_pixels is not None:
        is_dropped = is_dropped | (pixels > pack.max_pixels) | ((pixels > 0) & (lengths > pack.block_len))
    dropped = np.flatnonzero(is_dropped)
    return Selection(
        length=np.where(is_dropped, 0, lengths) if len(dropped) else lengths,
        pixels=pixels,
        dropped=dropped,
        dropped_length=lengths[dropped].astype(np.int64),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Pieces in source order: by document, and by start within a document. P pieces."""

    document: Int64  # [P]
    start: Int64  # [P]
    length: Int32  # [P]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """Ranges ``[start, end)`` of documents, each kept as a piece or dropped. R ranges."""

    document: Int64  # [R]
    start: Int64  # [R]
    end: Int64  # [R]
    reason: npt.NDArray[np.uint8]  # [R] index into REASONS; of no meaning where a range is kept

    @property
    def length(self) -> Int64:
        return self.end - self.start

    def where(self, mask: Bool) -> "Ranges":
        """Return the ranges where the mask is True."""
        return Ranges(
            document=self.document[mask], start=self.start[mask], end=self.end[mask], reason=self.reason[mask]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DropCount:
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

    @classmethod
    def of(cls, selected: Selection, count_trained: CountTrained, *, kept: Ranges, out: Ranges) -> "DroppedTokens":
        """Combine dropped documents and dropped ranges of others in source order; count their trained tokens.

        `kept` has at least the pieces of documents that are cut.
        """
        document = np.concatenate([out.document, selected.dropped])
        start = np.concatenate([out.start, np.zeros_like(selected.dropped)])
        end = np.concatenate([out.end, selected.dropped_length])
        reason = np.concatenate([out.reason, np.full(len(selected.dropped), OVERLONG, np.uint8)])
        order = np.lexsort([start, document])
        document, start, end = document[order], start[order], end[order]
        inner = kept.where(kept.start > 0)
        return cls(
            document=document,
            start=start,
            length=end - start,
            reason=reason[order],
            trained=count_trained(document, start, end),
            num_piece_start=int(count_trained(inner.document, inner.start, inner.start + 1).sum()),
        )

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


def cut(selected: Selection, pack: Pack, count_trained: CountTrained) -> tuple[Pieces, DroppedTokens]:
    """Cut documents into pieces of at most ``block_len`` tokens, in mode ``isolated``.

    Trained tokens are counted in dropped ranges and in documents that are cut, never in a whole document that is kept.
    """
    lengths = selected.length
    ranges = _cut_long(lengths, pack)
    asked = np.flatnonzero(ranges.reason == _KEPT)
    trained = count_trained(ranges.document[asked], ranges.start[asked] + 1, ranges.end[asked])
    ranges.reason[asked[trained == 0]] = UNTRAINED
    kept, out = ranges.where(ranges.reason == _KEPT), ranges.where(ranges.reason != _KEPT)
    whole = np.flatnonzero((lengths > 0) & (lengths <= pack.block_len))
    place = np.searchsorted(whole, kept.document)
    pieces = Pieces(
        document=np.insert(whole, place, kept.document),
        start=np.insert(np.zeros_like(whole), place, kept.start),
        length=np.insert(lengths[whole].astype(np.int32), place, kept.length),
    )
    return pieces, DroppedTokens.of(selected, count_trained, kept=kept, out=out)


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


def _cut_long(lengths: npt.NDArray[np.integer], pack: Pack) -> Ranges:
    """Cut documents that are longer than a block: into what is kept and what is TRUNCATED, or into pieces, in source
    order.

    Worked example, ``block_len`` 4: a document of 9 tokens is cut into [0, 4), [4, 9) by truncate_right, and into
    [0, 4), [4, 8), [8, 9) by split.
    """
    block_len = pack.block_len
    document = np.flatnonzero(lengths > block_len)
    whole = lengths[document].astype(np.int64)
    num_ranges = -(-whole // block_len) if pack.overlong == "split" else np.full(len(document), 2, np.int64)
    number = concatenated_ranges(np.zeros(len(document), np.int64), num_ranges)
    whole = np.repeat(whole, num_ranges)
    start = number * block_len
    is_last = number == np.repeat(num_ranges, num_ranges) - 1
    end = np.where(is_last, whole, start + block_len)
    is_beyond = (number > 0) & (pack.overlong == "truncate_right")
    reason = np.where(is_beyond, TRUNCATED, _KEPT).astype(np.uint8)
    return Ranges(document=np.repeat(document, num_ranges), start=start, end=end, reason=reason)
