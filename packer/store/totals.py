"""The counts of a cache, on which the conservation laws hold."""

from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Cut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is in no block, for one reason."""

    documents: Count
    """Documents of which nothing is in a block."""

    parts: Count
    """Ranges of tokens, whole documents among them; a line of rejected.jsonl each."""

    tokens: Count
    trained: Count
    """Those of the tokens that are trained in their document."""


class Totals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The conservation laws hold on these numbers; every build and `verify` checks them.

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
    """Documents of which something is in a block."""

    cut: dict[str, Cut]
    """What is in no block, by code."""

    piece_starts: Count
    """Trained tokens that are in a block and not trained there: the first of a piece that continues its document."""

    blocks: Count
    slots: Count
    separators: Count
    """Slots with an EOS between documents."""

    padding: Count
    """Slots with nothing: at the end of blocks, and after documents where they are aligned."""

    unused_keys: dict[str, Count] = {}
    """Keys of messages that no schema knows, and how many messages have them."""

    @property
    def cut_tokens(self) -> int:
        """Tokens that are in no block."""
        return sum(cut.tokens for cut in self.cut.values())
