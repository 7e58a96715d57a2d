"""Pairs in blocks: a pair is placed as one piece, its chosen answer right before its rejected one.

Documents 2i and 2i + 1 are pair i. A block contains whole pairs: their answers are compared with each other, so none is
cut, and a pair longer than a block is dropped. A pair takes the slots of both its documents.
"""

import msgspec
import numpy as np
import numpy.typing as npt

from packer.batches import Bool, Int64, PackPlan
from packer.pack.overlong import CountTrained, DroppedTokens, Pieces
from packer.pack.pack_plan import plan
from packer.pack.select import OVERLONG, TOO_SHORT
from packer.recipe import Pack

_SIDES = 2


def arrange_pairs(
    lengths: npt.NDArray[np.integer], pack: Pack, count_trained: CountTrained, *, group: int = 0
) -> tuple[PackPlan, DroppedTokens]:
    """Plan the blocks of a group of pairs.

    Args:
        lengths: tokens of each document, two for each pair.  # integers [N]
        pack: the mode is ``isolated``, and ``overlong`` is ``reject``.
        count_trained: see :func:`packer.pack.overlong.trained_counter`.
        group: see :func:`packer.pack.arrange.arrange`.

    Returns:
        the plan, of documents, and what is dropped: both documents of a pair that is longer than a block (`overlong`),
        or of which one is shorter than ``min_length`` (`too_short`)
    """
    slots = _aligned(lengths, pack.align)
    of_pair = slots_of_pairs(lengths, pack.align)
    is_short: Bool = lengths.reshape(-1, _SIDES).min(axis=1) < pack.min_length
    is_long = of_pair > pack.block_len
    pair = np.flatnonzero(~is_short & ~is_long)
    pieces = Pieces(document=pair, start=np.zeros_like(pair), length=of_pair[pair].astype(np.int32))
    placed = plan(pieces, _rules_of_pairs(pack), group=group)
    document = _documents(placed.document)
    dropped = np.flatnonzero(is_short | is_long)
    left_out = _documents(dropped)
    start, length = np.zeros_like(left_out), lengths[left_out].astype(np.int64)
    return (
        PackPlan(
            document=document,
            start=np.zeros_like(document),
            length=lengths[document].astype(np.int32),
            slots=slots[document].astype(np.int32),
            block_offsets=_SIDES * placed.block_offsets,
        ),
        DroppedTokens(
            document=left_out,
            start=start,
            length=length,
            reason=np.repeat(np.where(is_short[dropped], TOO_SHORT, OVERLONG), _SIDES).astype(np.uint8),
            trained=count_trained(left_out, start, length),
            num_piece_start=0,
        ),
    )


def slots_of_pairs(lengths: npt.NDArray[np.integer], align: int) -> Int64:
    """Return the slots that each pair takes in a block, given the lengths of its documents.  # int64[N / 2]"""
    of_pair: Int64 = _aligned(lengths, align).reshape(-1, _SIDES).sum(axis=1)
    return of_pair


def _aligned(lengths: npt.NDArray[np.integer], align: int) -> Int64:
    return -(-lengths.astype(np.int64) // align) * align


def _rules_of_pairs(pack: Pack) -> Pack:
    """Return the rules with each pair as one document, whose slots are already aligned."""
    most = None if pack.max_documents is None else max(1, pack.max_documents // _SIDES)
    return msgspec.structs.replace(pack, align=1, max_documents=most)


def _documents(pair: Int64) -> Int64:
    """Return the documents of some pairs: [6, 7, 0, 1] for [3, 0]."""
    return (_SIDES * pair[:, None] + np.arange(_SIDES)).reshape(-1)
