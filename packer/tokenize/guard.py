"""Encoding of texts in which people typed control tokens.

Such a text contains some control tokens that are real (written by the template) and some that are not. In a copy of the
tokenizer every control token is renamed to an alias of private-use characters; in the text the real ones are replaced
by their alias, the typed ones stay. So one encoding of the whole text treats the real ones as control tokens and the
typed ones as ordinary text, and leaves everything around them unaffected.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from packer.batches import Int32
from packer.literals import longest_of, replaced
from packer.model.backend import load_backend
from packer.model.model import AddedToken


class Aliases:
    """The aliased copy of a tokenizer."""

    def __init__(self, tokenizer_json: bytes, control: Mapping[str, int], added_tokens: Sequence[AddedToken]) -> None:
        """`control`: text → id of the control tokens; only added tokens among them can be aliased."""
        contents = {token.content for token in added_tokens}
        self._alias = {
            content: f"\ue0f2{chr(0xE200 + number)}\ue0f3"
            for number, content in enumerate(control)
            if content in contents
        }
        definition = json.loads(tokenizer_json)
        for token in definition["added_tokens"]:
            token["content"] = self._alias.get(token["content"], token["content"])
        self.tokenizer_json = json.dumps(definition).encode()
        backend = load_backend(self.tokenizer_json)
        aliased = {self._alias.get(token.content, token.content): token for token in added_tokens}
        # Added tokens that are also in the model's vocabulary get a new id under their alias: map it back.
        self._original = np.arange(max(backend.get_vocab(with_added_tokens=True).values()) + 1, dtype=np.int32)
        for content, token in aliased.items():
            self._original[backend.token_to_id(content)] = token.id
        self.added_tokens = tuple(replace(token, content=content) for content, token in aliased.items())
        self._pattern = re.compile(longest_of(self._alias).encode())

    def original(self, ids: Int32) -> Int32:
        """Map ids of the copy to ids of the tokenizer."""
        mapped: Int32 = self._original[ids]
        return mapped

    def replace(self, text: bytes, guarded: Sequence[tuple[int, int]]) -> tuple[bytes, Callable[[int], int]]:
        """Replace the control tokens outside the guarded byte ranges, which are ascending, by their aliases.

        Returns:
            The text, and a function that maps a position in the old one, in bytes, to that in it.
        """
        begins = [begin for begin, _ in guarded]

        def alias(match: re.Match[bytes]) -> bytes:
            number = bisect_left(begins, match.end())
            is_typed = number > 0 and match.start() < guarded[number - 1][1]
            return match[0] if is_typed else self._alias[match[0].decode()].encode()

        aliased, _, moved = replaced(text, self._pattern, alias)
        return aliased, moved
