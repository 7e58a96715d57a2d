"""The packing plan: which piece of which document lies in which block.

The plan is a pure function of its arguments. Documents are packed group by group, each group of consecutive documents
by itself, and the blocks of a group come before those of the next; so however large a corpus is, a block is gathered
from a bounded part of it.

With ``best_fit`` and ``first_fit``, documents of equal length are ordered by a keyed hash, so that neighbours of the
source land in blocks far apart, and the blocks of a group are stored in a keyed-permuted order, so that reading them in
order gives a mixture. In a block longer documents come first, equal ones in
source order. ``sequential`` keeps documents and blocks in source order.

With ``align``, a piece takes a multiple of that many slots: it is packed by its padded length.
"""

import numpy as np

from packer.batches import Int32, Int64, PackPlan
from packer.layout import offsets_of
from packer.pack.overlong import Pieces
from packer.pack.place import Placed, place
from packer.recipe import Pack


def plan(pieces: Pieces, pack: Pack, *, slots: Int32 | None = None) -> PackPlan:
    """Place pieces of documents in blocks. Every piece is in exactly one.

    Args:
        pieces: from :func:`packer.pack.overlong.cut`; none is longer than a block.
        pack: the rules, as a recipe may have them; its mode is ``isolated`` or ``eos``.
        slots: that each piece needs, where it needs more than its length; at most those of a block.  # int32[P]

    """
    needed = pieces.length if slots is None else slots
    if pack.align > 1:
        needed = -(-needed // np.int32(pack.align))
    bounds = np.searchsorted(pieces.document, group_bounds(pieces.num_documents, pack.group_documents))
    placed = _place_groups(needed, bounds, pack)
    # Looking up numbers in no order costs more than placing: it is left out where the answer is known.
    are_documents = _are_documents(pieces)
    return PackPlan(
        document=placed.piece if are_documents else pieces.document[placed.piece],
        start=_starts(pieces, placed.piece),
        length=placed.slots if slots is None and pack.align == 1 else pieces.length[placed.piece],
        slots=placed.slots * np.int32(pack.align) if pack.align > 1 else placed.slots,
        block_offsets=offsets_of(placed.num_pieces),
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


def group_bounds(num_documents: int, group_documents: int) -> Int64:
    """First document of each group, and the end of the last.  # int64[G + 1]"""
    return np.append(np.arange(0, num_documents, group_documents, dtype=np.int64), num_documents)


def _place_groups(slots: Int32, bounds: Int64, pack: Pack) -> Placed:
    """Place each group by itself; the blocks of a group are numbered from where those before it end."""
    placed: list[Placed] = []
    num_blocks = 0
    for group, (first, last) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        part = place(
            slots[first:last],
            pack.block_len // pack.align,
            strategy=pack.strategy,
            max_pieces=pack.max_documents,
            seed=pack.seed,
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
