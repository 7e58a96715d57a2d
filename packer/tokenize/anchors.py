"""Anchors: added tokens at which a tokenizer always cuts a text.

`tokenizers` takes added tokens that are not normalized out of the raw text first, leftmost and longest, and tokenizes
the stretches between them one by one. So the ids up to the end of an anchor do not depend on what follows, and the
place of the n-th anchor in the text is the place of the n-th anchor id in the ids. That turns byte positions into token
positions without asking the encoder for offsets.
"""

import re
from collections.abc import Sequence

import numpy as np

from packer.batches import Bool
from packer.literals import longest_of
from packer.model import AddedToken


class Anchors:
    """The anchors of one tokenizer."""

    def __init__(self, added_tokens: Sequence[AddedToken], vocab_size: int, *, normalizes: bool) -> None:
        """`normalizes`: the tokenizer has a normalizer, so that normalized added tokens are found only after it."""
        tokens = [token for token in added_tokens if not token.single_word and not (token.normalized and normalizes)]
        contents = [token.content for token in tokens]
        self._pattern = re.compile(longest_of(contents).encode()) if contents else None
        self.is_anchor: Bool = np.zeros(vocab_size, np.bool_)
        self.is_anchor[[token.id for token in tokens]] = True

    def find(self, text: bytes) -> tuple[list[int], list[int]]:
        """Where anchors start and end in a text, in bytes, in order."""
        if self._pattern is None:
            return [], []
        starts, ends = [], []
        for match in self._pattern.finditer(text):
            starts.append(match.start())
            ends.append(match.end())
        return starts, ends
