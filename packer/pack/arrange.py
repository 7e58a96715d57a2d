"""Plans which tokens of which documents go into which block: cuts and places them in any mode of a recipe.

``isolated`` and ``eos`` place whole documents, or pieces of those that are longer than a block; ``stream`` cuts
wherever a block ends. In ``eos`` documents attend to each other, and an EOS follows every document that does not end in
a stop id. It takes a slot, is not trained (the document never ended there), and is left out after a
piece that fills a block alone.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from packer.batches import Bool, Int32, Int64, PackPlan
from packer.pack.overlong import CountTrained, DroppedTokens, Pieces, Selection, cut
from packer.pack.pack_plan import plan
from packer.pack.stream import stream
from packer.recipe.pack_rules import Pack

EndsOpen: TypeAlias = Callable[[Int64, Int64], Bool]
"""Whether the token before each end is not a stop id: ``ends_open(document, end)``, each int64[Q]."""


def arrange(
    selected: Selection, pack: Pack, count_trained: CountTrained, ends_open: EndsOpen, *, group: int = 0
) -> tuple[PackPlan, DroppedTokens]:
    """Plan the blocks of a group of documents, which share blocks with no others.

    Args:
        selected: the documents.
        pack: the mode is not ``none``.
        count_trained: see :func:`packer.pack.overlong.trained_counter`.
        ends_open: called for every piece, in mode ``eos`` only.
        group: number of the group: each is mixed in an order of its own.
    """
    if pack.mode == "stream":
        return stream(selected, pack, count_trained, group=group)
    pieces, dropped = cut(selected, pack, count_trained)
    slots = _with_separators(pieces, pack.block_len, ends_open) if pack.mode == "eos" else None
    pixels = None if selected.pixels is None else selected.pixels[pieces.document]
    return plan(pieces, pack, slots=slots, pixels=pixels, group=group), dropped


def _with_separators(pieces: Pieces, block_len: int, ends_open: EndsOpen) -> Int32:
    """Return the slots of each piece, including the EOS that follows it.  # int32[P]"""
    open_ended = ends_open(pieces.document, pieces.start + pieces.length)
    slots: Int32 = np.minimum(pieces.length + open_ended, block_len).astype(np.int32)
    return slots
