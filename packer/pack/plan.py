"""The packing plan: which piece of which document lies in which block.

The plan is a pure function of its arguments. Documents are packed group by group, each group of consecutive documents
by itself, and the blocks of a group come before those of the next; so however large a corpus is, a block is gathered
from a bounded stretch of it.

With ``best_fit`` and ``first_fit``, documents of equal length are ordered by a keyed hash, so that neighbours of the
source land in blocks far apart, and the blocks of a group are stored in a keyed-permuted order, so that reading them in
order gives a mixture; :mod:`packer.pack.mixing` measures it. In a block longer documents come first, equal ones in
source order. ``sequential`` keeps documents and blocks in source order.

With ``align``, a piece takes a multiple of that many slots: it is packed by its padded length.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packer.batches import Int32, Int64, PackPlan
from packer.pack.cut import Pieces
from packer.pack.keyed_order import MAX_ITEMS
from packer.pack.place import STRATEGIES, Placed, Strategy, place
from packer.recipe import MAX_BLOCK_LEN

MAX_GROUP_DOCUMENTS = MAX_ITEMS


def plan(
    lengths: npt.NDArray[np.integer],
    block_len: int,
    *,
    strategy: Strategy = "best_fit",
    seed: int = 0,
    group_documents: int | None = None,
    max_documents: int | None = None,
    align: int = 1,
) -> PackPlan:
    """Place whole documents in blocks of ``block_len`` tokens.

    Documents that are empty or longer than a block are in no block. The plan is a pure function of the arguments.

    Args:
        lengths: tokens of each document.  # integers [N]
        block_len: tokens of a block, 1 to 2^20.
        strategy: ``best_fit`` or ``first_fit``, both decreasing, or ``sequential``: next-fit in source order.
        seed: of the permutations.
        group_documents: pack this many consecutive documents at a time; the blocks of a group come before those
            of the next. None packs all of them together.
        max_documents: of a block at most; one that holds as many takes no more. None sets no limit.
        align: a document takes a multiple of so many slots; divides ``block_len``.

    Example:
        >>> packed = plan(np.array([3, 4, 1]), 4)
        >>> packed.num_blocks, int(packed.block_of[0]) == int(packed.block_of[2])
        (2, True)

    Raises:
        ValueError: lengths that are negative or no integers, a number out of range, an unknown strategy.

    """
    rules = _Rules.checked(block_len, strategy, seed, max_documents, align)
    lengths = checked_lengths(lengths)
    placed = _place_groups(rules.slots(lengths), group_bounds(len(lengths), group_documents), rules)
    return PackPlan(
        document=placed.piece,
        start=np.zeros(len(placed.piece), np.int64),
        length=placed.slots if align == 1 else lengths[placed.piece].astype(np.int32, copy=False),
        slots=placed.slots * np.int32(align) if align > 1 else placed.slots,
        block_offsets=np.concatenate([np.zeros(1, np.int64), placed.num_pieces]).cumsum(),
        block_of=placed.block_of,
    )


def plan_pieces(
    pieces: Pieces,
    block_len: int,
    *,
    strategy: Strategy = "best_fit",
    seed: int = 0,
    group_documents: int | None = None,
    max_documents: int | None = None,
    align: int = 1,
    slots: npt.NDArray[np.integer] | None = None,
) -> PackPlan:
    """Place pieces of documents in blocks, as :func:`plan` places whole ones.

    Every piece is in exactly one block. Pieces are placed one by one, wherever the others of their document are.

    Args:
        pieces: from :func:`packer.pack.cut.cut`; none longer than a block.
        block_len: tokens of a block, 1 to 2^20.
        strategy: as for :func:`plan`.
        seed: of the permutations.
        group_documents: pack the pieces of this many consecutive documents at a time.
        max_documents: pieces of a block at most.
        align: a piece takes a multiple of so many slots; divides ``block_len``.
        slots: that each piece needs, where it needs more than its length.  # integers [P], up to ``block_len``

    Raises:
        ValueError: as for :func:`plan`, and a piece that is empty, longer than a block or than its slots.

    """
    rules = _Rules.checked(block_len, strategy, seed, max_documents, align)
    needed = pieces.length if slots is None else np.asarray(slots)
    if needed.shape != pieces.length.shape:
        raise ValueError(f"{len(needed)} slots for {len(pieces.length)} pieces; expected one number a piece")
    wrong = (pieces.length < 1) | (needed > block_len)
    if slots is not None:
        wrong |= needed < pieces.length
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(
            f"piece {at} has length {pieces.length[at]} and takes {needed[at]} slots; expected 1 to {block_len}"
        )
    bounds = np.searchsorted(pieces.document, group_bounds(pieces.num_documents, group_documents))
    placed = _place_groups(rules.slots(needed), bounds, rules)
    # Looking up numbers in no order costs more than placing: it is left out where the answer is known.
    are_documents = _are_documents(pieces)
    return PackPlan(
        document=placed.piece if are_documents else pieces.document[placed.piece],
        start=_starts(pieces, placed.piece),
        length=placed.slots if slots is None and align == 1 else pieces.length[placed.piece],
        slots=placed.slots * np.int32(align) if align > 1 else placed.slots,
        block_offsets=np.concatenate([np.zeros(1, np.int64), placed.num_pieces]).cumsum(),
        block_of=placed.block_of if are_documents else _first_blocks(pieces, placed.block_of),
    )


def _are_documents(pieces: Pieces) -> bool:
    """Whether every document has one piece, so that a piece has the number of its document."""
    document = pieces.document
    return len(document) == pieces.num_documents and bool((document[1:] > document[:-1]).all())


def _starts(pieces: Pieces, piece: Int64) -> Int64:
    """Where some pieces start; most start where their document does.  # int64[M]"""
    start = np.zeros(len(piece), np.int64)
    is_inner = pieces.start > 0
    if is_inner.any():
        inner = np.flatnonzero(is_inner[piece])
        start[inner] = pieces.start[piece[inner]]
    return start


def _first_blocks(pieces: Pieces, block_of_piece: Int64) -> Int64:
    """Block of the first piece of each document.  # int64[N]"""
    block_of = np.full(pieces.num_documents, -1, np.int64)
    is_first = np.ones(len(pieces.document), np.bool_)
    np.not_equal(pieces.document[1:], pieces.document[:-1], out=is_first[1:])
    block_of[pieces.document[is_first]] = block_of_piece[is_first]
    return block_of


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """How to pack, with every number in its range."""

    block_len: int
    strategy: Strategy
    seed: int
    max_pieces: int | None
    align: int

    @classmethod
    def checked(cls, block_len: int, strategy: Strategy, seed: int, max_pieces: int | None, align: int) -> "_Rules":
        if not 1 <= block_len <= MAX_BLOCK_LEN:
            raise ValueError(f"block_len is {block_len}; expected 1 to {MAX_BLOCK_LEN}")
        if strategy not in STRATEGIES:
            raise ValueError(f"strategy is '{strategy}'; expected one of {', '.join(STRATEGIES)}")
        if max_pieces is not None and max_pieces < 1:
            raise ValueError(f"max_documents is {max_pieces}; expected at least 1")
        if align < 1 or block_len % align:
            raise ValueError(f"align is {align}; expected a divisor of block_len {block_len}")
        return cls(block_len=block_len, strategy=strategy, seed=seed, max_pieces=max_pieces, align=align)

    def slots(self, lengths: npt.NDArray[np.integer]) -> Int32:
        """Slots each length takes, in units of ``align``; 0 where it is longer than a block.  # int32[N]"""
        if lengths.size and int(lengths.max()) > self.block_len:
            lengths = np.where(lengths <= self.block_len, lengths, 0)
        slots: Int32 = lengths.astype(np.int32, copy=False)
        return slots if self.align == 1 else -(-slots // np.int32(self.align))


def checked_lengths(lengths: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    lengths = np.asarray(lengths)
    if lengths.ndim != 1 or (lengths.dtype.kind not in "iu" and lengths.size):
        raise ValueError(f"lengths are {lengths.dtype}{list(lengths.shape)}; expected one integer a document")
    if lengths.size and int(lengths.min()) < 0:
        raise ValueError(f"document {int(lengths.argmin())} has length {int(lengths.min())}; expected 0 or more")
    return lengths if lengths.size else np.empty(0, np.int32)


def group_bounds(num_documents: int, group_documents: int | None) -> Int64:
    """First document of each group, and the end of the last.  # int64[G + 1]"""
    if group_documents is None:
        group_documents = max(num_documents, 1)
    if not 1 <= group_documents <= MAX_GROUP_DOCUMENTS:
        raise ValueError(f"a group has {group_documents} documents; expected 1 to {MAX_GROUP_DOCUMENTS}")
    return np.append(np.arange(0, num_documents, group_documents, dtype=np.int64), num_documents)


def _place_groups(slots: Int32, bounds: Int64, rules: _Rules) -> Placed:
    """Place each group by itself; the blocks of a group are numbered from where those before it end."""
    placed: list[Placed] = []
    num_blocks = 0
    for group, (first, last) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        part = place(
            slots[first:last],
            rules.block_len // rules.align,
            strategy=rules.strategy,
            max_pieces=rules.max_pieces,
            seed=rules.seed,
            group=group,
        )
        if group:
            np.add(part.piece, first, out=part.piece)
            np.add(part.block_of, num_blocks, out=part.block_of, where=part.block_of >= 0)
        num_blocks += len(part.num_pieces)
        placed.append(part)
    return placed[0] if len(placed) == 1 else _joined(placed)


def _joined(placed: list[Placed]) -> Placed:
    none = np.empty(0, np.int64)
    return Placed(
        piece=np.concatenate([none, *(part.piece for part in placed)]),
        slots=np.concatenate([none.astype(np.int32), *(part.slots for part in placed)]),
        num_pieces=np.concatenate([none, *(part.num_pieces for part in placed)]),
        block_of=np.concatenate([none, *(part.block_of for part in placed)]),
    )
