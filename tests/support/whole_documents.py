"""Plans by rules that are named one by one, of pieces and of documents that are not cut; how mixed their blocks are."""

from dataclasses import dataclass

import numpy as np

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixing:
    """How mixed blocks are by source: pairs of pieces, and those of them that share a source.

    Draw two different pieces from one window of consecutive blocks; how likely do they come from one source? That is held
    against two pieces drawn from the whole plan (Simpson's index, within and overall). Where every window is a fair sample,
    both are the same and the plan is mixed, 1; where every window holds a single source, it is 0.

    What a source is, the caller says: the file of each document, or a stretch of the source order.

    Worked example: sources [0, 0, 1, 1], blocks {0, 1} and {2, 3}. Overall, 2 of 6 pairs share a source; within blocks both
    of 2 do. The mixing is (1 - 1) / (1 - 1/3) = 0. With blocks {0, 2} and {1, 3} it is (1 - 0) / (1 - 1/3) = 1.5: more
    even than chance.
    """

    pairs_within: int
    """Pairs in one window."""

    same_within: int
    pairs_overall: int
    same_overall: int

    @property
    def index(self):
        """1 where windows are mixed as by chance, 0 where each holds one source; above 1 where they are more even.

        Without two sources, or without a window of two pieces, there is nothing to mix, and it is 1.
        """
        if not self.pairs_within or self.same_overall == self.pairs_overall:
            return 1.0
        return (1 - self.same_within / self.pairs_within) / (1 - self.same_overall / self.pairs_overall)


def mixing(window, source):
    """Count the pairs of pieces that share a source.

    Args:
        window: of each piece, from 0.  # int64[P]
        source: of each piece, from 0.  # integers [P]

    """
    mine = source.astype(np.int64)
    num_sources = int(mine.max(initial=-1)) + 1
    return Mixing(
        pairs_within=_pairs(np.bincount(window)),
        same_within=_pairs(np.unique(window * num_sources + mine, return_counts=True)[1]),
        pairs_overall=_pairs(np.array([len(mine)], np.int64)),
        same_overall=_pairs(np.bincount(mine)),
    )


def _pairs(counts):
    return int((counts * (counts - 1) // 2).sum())
