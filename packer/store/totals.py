"""The counts of a cache, which the conservation laws relate to each other."""

from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""Up to what every reader of JSON keeps exactly; sums of counts that add up to one fit 64 bits, too."""


class Cut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is left out of all blocks for one reason."""

    documents: Count
    """Documents without any token in a block."""

    parts: Count
    """Ranges of tokens, including whole documents; each has a line in rejected.jsonl."""

    tokens: Count
    trained: Count
    """Tokens of the parts that are trained in their document."""


class Totals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The counts of a cache. Every build and `verify` check these conservation laws:

    rows = kept + Σ rejected; tokens = trained + masked; documents = packed + Σ cut;
    tokens = tokens in blocks + Σ cut; trained = trained in blocks + Σ cut + piece_starts;
    slots = tokens in blocks + separators + padding.
    """

    rows: Count
    kept: Count
    rejected: dict[str, Count]
    documents: Count
    tokens: Count
    trained: Count
    masked: Count
    merged: Count
    skipped: Count = 0
    packed: Count
    """Documents with at least a part in a block."""

    cut: dict[str, Cut]
    """What is left out of all blocks, by code."""

    piece_starts: Count
    """Trained tokens that are in a block but not trained there: the first of a piece that continues its document."""

    blocks: Count
    slots: Count
    separators: Count
    """Slots with an EOS between documents."""

    padding: Count
    """Empty slots: at the end of blocks, and after documents if they are aligned."""

    unused_keys: dict[str, Count] = {}
    """Only of caches that were written before rules 19: keys of messages that no schema knows."""

    @property
    def cut_tokens(self) -> int:
        """Tokens that are in no block."""
        return sum(cut.tokens for cut in self.cut.values())
