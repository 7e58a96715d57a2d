"""Which tokens of which documents lie in which block, by the rules of a recipe: cutting and placing, for every mode.

``isolated`` and ``eos`` place whole documents, or pieces of those that are longer than a block; ``stream`` cuts
wherever a block ends. In ``eos`` documents see each other, and where one does not end in a stop id, an EOS follows it
before the next begins. It takes a slot, is not trained (the document never ended there), and is left out after a
piece that fills a block alone.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from packer.batches import Bool, Int32, Int64, PackPlan
from packer.pack.overlong import CountTrained, DroppedTokens, Pieces, cut
from packer.pack.pack_plan import plan
from packer.pack.select import Selection
from packer.pack.stream import stream
from packer.recipe import Pack

EndsOpen: TypeAlias = Callable[[Int64, Int64], Bool]
"""Whether the token before an end is no stop id: ``ends_open(document, end)``, each int64[Q]."""


def arrange(
    selected: Selection, pack: Pack, count_trained: CountTrained, ends_open: EndsOpen, *, first_group: int = 0
) -> tuple[PackPlan, DroppedTokens]:
    """Plan the blocks of some documents.

    Args:
        selected: the documents, from :func:`packer.pack.select.select`.
        pack: the rules, as a recipe may have them; its mode is not ``none``.
        count_trained: see :func:`packer.pack.overlong.trained_counter`.
        ends_open: asked in mode ``eos`` alone, about every piece.
        first_group: number of the group that the documents begin with.

    Returns:
        the plan, and what is dropped

    """
    if pack.mode == "stream":
        return stream(selected, pack, count_trained, first_group=first_group)
    pieces, dropped = cut(selected, pack, count_trained)
    slots = _with_separators(pieces, pack.block_len, ends_open) if pack.mode == "eos" else None
    return plan(pieces, pack, slots=slots, first_group=first_group), dropped


def _with_separators(pieces: Pieces, block_len: int, ends_open: EndsOpen) -> Int32:
    """Slots of each piece with the EOS that follows it.  # int32[P]"""
    open_ended = ends_open(pieces.document, pieces.start + pieces.length)
    slots: Int32 = np.minimum(pieces.length + open_ended, block_len).astype(np.int32)
    return slots
