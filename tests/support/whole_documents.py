"""Plans by rules that are named one by one, of pieces and of documents that are not cut; how mixed their blocks are."""

import numpy as np
from mixing import mixing

from packer.pack.pack_plan import plan, stream
from packer.pack.pieces import Pieces, cut
from packer.recipe.groups import Pack


def rules_of(block_len, **rules):
    return Pack(block_len=block_len, **{name: value for name, value in rules.items() if value is not None})


def plan_pieces(pieces, block_len, **rules):
    return plan(pieces, rules_of(block_len, **rules))


def plan_whole(lengths, block_len, **rules):
    """Documents that are empty or longer than a block are in no block."""
    lengths = np.asarray(lengths)
    document = np.flatnonzero((lengths > 0) & (lengths <= block_len))
    pieces = Pieces(
        document=document,
        start=np.zeros(len(document), np.int64),
        length=lengths[document].astype(np.int32),
    )
    return plan_pieces(pieces, block_len, **rules)


def cut_documents(lengths, block_len, count_trained, **rules):
    """Pieces of documents, and what is dropped of them."""
    return cut(np.asarray(lengths), rules_of(block_len, **rules), count_trained)


def stream_of(lengths, block_len, count_trained, *, group=0, **rules):
    pack = rules_of(block_len, mode="stream", **rules)
    return stream(np.asarray(lengths), pack, count_trained, group=group)


def mixing_of(planned, source, *, blocks=1):
    """Of windows of some consecutive blocks, from the first one on; the last window may have fewer."""
    window_of_block = np.arange(planned.num_blocks) // blocks
    return mixing(np.repeat(window_of_block, np.diff(planned.block_offsets)), source[planned.document])
