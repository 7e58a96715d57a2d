"""The stream: documents concatenated and cut wherever a block ends.

A document continues in the next block; nothing is overlong, and only the last block of a group has padding. Each part
of a document in a block is a piece, and its first token is masked as everywhere: in a new block there is nothing before
it to predict it from, and after another document it would be predicted from that.

Documents come in the order of a keyed hash, so that a block mixes sources. Blocks are stored in such an order too,
since a long document fills many consecutive ones. With ``sequential``, both stay in source order. Groups of consecutive
documents are separate streams. A block that would train nothing is left out.
"""

from itertools import pairwise

import numpy as np

from packer.batches import Int64, PackPlan
from packer.layout import concatenated_ranges, offsets_of
from packer.pack.keyed_order import order_key, shuffled
from packer.pack.overlong import CountTrained, DroppedTokens
from packer.pack.pack_plan import group_bounds
from packer.pack.select import UNTRAINED, Selection
from packer.recipe import Pack


def stream(
    selected: Selection, pack: Pack, count_trained: CountTrained, *, first_group: int = 0
) -> tuple[PackPlan, DroppedTokens]:
    """Cut the stream of some documents into blocks.

    Args:
        selected: the documents, from :func:`packer.pack.select.select`.
        pack: the recipe's packing rules.
        count_trained: called for every piece; see :func:`packer.pack.overlong.trained_counter`.
        first_group: number of the group that the documents begin with.

    Returns:
        the plan, and what is dropped: documents that are too short, and the pieces of blocks that would train nothing
    """
    sizes: Int64 = selected.length.astype(np.int64)
    parts = [
        _stream_of(
            np.arange(first, last), sizes, pack.block_len, None if pack.strategy == "sequential" else (pack.seed, group)
        )
        for group, (first, last) in enumerate(
            pairwise(group_bounds(len(sizes), pack.group_documents).tolist()), start=first_group
        )
    ]
    nothing = (np.zeros(0, np.int64),) * 4
    document, start, length, num_pieces = (np.concatenate(columns) for columns in zip(nothing, *parts, strict=True))
    block = np.repeat(np.arange(len(num_pieces)), num_pieces)
    targets = count_trained(document, start + 1, start + length)
    is_kept = np.bincount(block, targets, minlength=len(num_pieces)) > 0
    kept = is_kept[block]
    dropped = DroppedTokens.of(
        selected,
        count_trained,
        kept=(document[kept], start[kept]),
        document=document[~kept],
        start=start[~kept],
        end=(start + length)[~kept],
        reason=np.full(np.count_nonzero(~kept), UNTRAINED, np.uint8),
    )
    tokens = length[kept].astype(np.int32)
    return (
        PackPlan(
            document=document[kept],
            start=start[kept],
            length=tokens,
            slots=tokens,
            block_offsets=offsets_of(num_pieces[is_kept]),
        ),
        dropped,
    )


def _stream_of(
    documents: Int64, sizes: Int64, block_len: int, seed_and_group: tuple[int, int] | None
) -> tuple[Int64, Int64, Int64, Int64]:
    """Cut one stream: document, start and length of its pieces in stored order, and the number of pieces in each block.

    A piece begins where a document or a block does. Worked example, ``block_len`` 4, documents of 3, 4 and 1 tokens:
    documents begin at 0, 3, 7 and blocks at 0, 4; pieces at 0, 3, 4 and 7, of documents 0, 1, 1, 2.
    """
    if seed_and_group is not None:
        documents = documents[shuffled(len(documents), order_key("pack.stream", *seed_and_group))]
    documents = documents[sizes[documents] > 0]
    begins = offsets_of(sizes[documents])
    total = int(begins[-1])
    place = np.union1d(begins[:-1], np.arange(0, total, block_len))
    which = np.searchsorted(begins, place, side="right") - 1
    start, length = place - begins[which], np.diff(place, append=total)
    num_pieces = np.bincount(place // block_len)
    if seed_and_group is not None:
        stored = shuffled(len(num_pieces), order_key("pack.stream.store", *seed_and_group))
        moved = concatenated_ranges(offsets_of(num_pieces)[:-1][stored], num_pieces[stored])
        which, start, length, num_pieces = which[moved], start[moved], length[moved], num_pieces[stored]
    return documents[which], start, length, num_pieces
