"""Plans which tokens of which documents go into which block: cuts and places them in any mode of a recipe.

``isolated`` places whole documents, or pieces of those that are longer than a block; ``stream`` cuts wherever a block
ends.
"""

import numpy as np

from packer.batches import PackPlan
from packer.layout import concatenated_ranges, offsets_of
from packer.pack.keyed_order import order_key, shuffled
from packer.pack.overlong import UNTRAINED, CountTrained, DroppedTokens, Ranges, Selection, cut
from packer.pack.pack_plan import plan
from packer.recipe.groups import Pack


def arrange(
    selected: Selection, pack: Pack, count_trained: CountTrained, *, group: int = 0
) -> tuple[PackPlan, DroppedTokens]:
    """Plan the blocks of a group of documents, which share blocks with no others.

    Args:
        selected: the documents.
        pack: the mode is not ``none``.
        count_trained: see :func:`packer.pack.overlong.trained_counter`.
        group: number of the group: each is mixed in an order of its own.
    """
    if pack.mode == "stream":
        return stream(selected, pack, count_trained, group=group)
    pieces, dropped = cut(selected, pack, count_trained)
    pixels = None if selected.pixels is None else selected.pixels[pieces.document]
    return plan(pieces, pack, pixels=pixels, group=group), dropped


def stream(
    selected: Selection, pack: Pack, count_trained: CountTrained, *, group: int = 0
) -> tuple[PackPlan, DroppedTokens]:
    """Cut the stream of a group of documents into blocks.

    A document continues in the next block; nothing is overlong, and only the last block has padding. Each part of a
    document in a block is a piece, and its first token is masked as everywhere: in a new block there is nothing before
    it to predict it from, and after another document it would be predicted from that.

    Documents come in the order of a keyed hash, so that a block mixes sources. Blocks are stored in such an order too,
    since a long document fills many consecutive ones. A block that would train nothing is left out.

    A piece begins where a document or a block does. Worked example, ``block_len`` 4, documents of 3, 4 and 1 tokens:
    documents begin at 0, 3, 7 and blocks at 0, 4; pieces at 0, 3, 4 and 7, of documents 0, 1, 1, 2.

    Returns:
        the plan, and what is dropped: the pieces of blocks that would train nothing
    """
    sizes = selected.length.astype(np.int64)
    documents = shuffled(len(sizes), order_key("pack.stream", pack.seed, group))
    documents = documents[sizes[documents] > 0]
    begins = offsets_of(sizes[documents])
    total = int(begins[-1])
    place = np.union1d(begins[:-1], np.arange(0, total, pack.block_len))
    which = np.searchsorted(begins, place, side="right") - 1
    start, length = place - begins[which], np.diff(place, append=total)
    num_pieces = np.bincount(place // pack.block_len)
    stored = shuffled(len(num_pieces), order_key("pack.stream.store", pack.seed, group))
    moved = concatenated_ranges(offsets_of(num_pieces)[:-1][stored], num_pieces[stored])
    which, start, length, num_pieces = which[moved], start[moved], length[moved], num_pieces[stored]
    block = np.repeat(np.arange(len(num_pieces)), num_pieces)
    document, end = documents[which], start + length
    targets = count_trained(document, start + 1, end)
    is_kept = np.bincount(block, targets, minlength=len(num_pieces)) > 0
    pieces = Ranges(document=document, start=start, end=end, reason=np.full(len(document), UNTRAINED, np.uint8))
    kept, out = pieces.where(is_kept[block]), pieces.where(~is_kept[block])
    tokens = kept.length.astype(np.int32)
    return (
        PackPlan(
            document=kept.document,
            start=kept.start,
            length=tokens,
            slots=tokens,
            block_offsets=offsets_of(num_pieces[is_kept]),
        ),
        DroppedTokens.of(selected, count_trained, kept=kept, out=out),
    )
