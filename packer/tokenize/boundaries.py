"""Finds where prompts and completions end in the ids of a text.

The rule: let S be the ids of a turn's text up to and including its terminator, and E(P) the ids of its prompt encoded
alone. If S begins with E(P), the prompt is these first ids; otherwise a merge crosses the boundary, and the turn
gets a separate sequence.

Here the rule is applied word for word, to texts for which :mod:`packer.tokenize.vectorized` is inconclusive. Both are
encoded for each turn, which takes long conversations several times as long as a single encoding.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

import numpy as np

from packer.batches import Bool, Int32
from packer.literals import longest_of
from packer.model.model import AddedToken
from packer.tokenize.reference_encoder import Encoder


class Anchors:
    """Added tokens of one tokenizer at which it always splits a text.

    `tokenizers` first extracts added tokens that are not normalized from the raw text, leftmost and longest, and
    tokenizes the pieces between them separately. So the ids up to the end of an anchor do not depend on what follows.
    """

    def __init__(self, added_tokens: Sequence[AddedToken], vocab_size: int, *, normalizes: bool) -> None:
        """`normalizes`: the tokenizer has a normalizer, so that normalized added tokens are found only after it."""
        tokens = [token for token in added_tokens if not token.single_word and not (token.normalized and normalizes)]
        contents = [token.content for token in tokens]
        self._pattern = re.compile(longest_of(contents).encode()) if contents else None
        self.is_anchor: Bool = np.zeros(vocab_size, np.bool_)
        self.is_anchor[[token.id for token in tokens]] = True

    def first(self, text: bytes) -> tuple[int, int]:
        """Return where the first anchor of a text starts and ends, in bytes; its length for both if it has none."""
        match = None if self._pattern is None else self._pattern.search(text)
        return (len(text), len(text)) if match is None else match.span()


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedText:
    """One text with its ids, and the turns in it as pairs of byte positions (prompt end, completion end)."""

    text: bytes
    ids: Int32
    turns: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Where a turn's prompt and completion end, in tokens; `ids` if the turn needs a separate sequence."""

    prompt_tokens: int
    completion_tokens: int
    ids: Int32 | None = None
    merged: bool = False


_Turn: TypeAlias = tuple[EncodedText, int, int]

_CALL_BYTES = 2**22
"""Bounds what is encoded at once; the turns of a long text begin with nearly all of it, each."""


class BoundaryFinder:
    """Finds boundaries under one tokenizer."""

    def __init__(
        self,
        encoder: Encoder,
        continuation_encoder: Callable[[], Encoder],
        anchors: Anchors,
        stop_ids: Sequence[int],
    ) -> None:
        """`continuation_encoder` returns an encoder without start-of-text effects, for completions; rarely used."""
        self._encoder = encoder
        self._continuation_encoder = continuation_encoder
        self._anchors = anchors
        self._stop_ids = np.array(sorted(stop_ids), np.int32)

    def find(self, texts: Sequence[EncodedText]) -> list[list[Boundary]]:
        """Return the boundaries of every turn of every text."""
        turns = [(text, *turn) for text in texts for turn in text.turns]
        sizes = np.cumsum([prompt_end + completion_end for _, prompt_end, completion_end in turns]) // _CALL_BYTES
        found: list[Boundary] = []
        for _, call in groupby(zip(sizes.tolist(), turns, strict=True), key=itemgetter(0)):
            found += self._found([turn for _, turn in call])
        boundaries = iter(found)
        return [[*itertools.islice(boundaries, len(text.turns))] for text in texts]

    def _found(self, turns: Sequence[_Turn]) -> list[Boundary]:
        ids = _encode_each(self._encoder, [text.text[:end] for text, *ends in turns for end in ends])
        found = [self._within(*each) for each in zip(turns, ids[::2], ids[1::2], strict=True)]
        apart = [number for number, each in enumerate(found) if each is None]
        separate = iter(self._separate_sequences([turns[number] for number in apart], [ids[2 * n] for n in apart]))
        return [next(separate) if each is None else each for each in found]

    def _within(self, turn: _Turn, prompt: Int32, whole: Int32) -> Boundary | None:
        """Return where a turn is in its text; None if its ids do not begin with those of its prompt, or do not end."""
        if len(whole) <= len(prompt) or not np.array_equal(whole[: len(prompt)], prompt):
            return None
        end = len(whole)
        if not self._anchors.is_anchor[whole[-1]]:
            stops = np.flatnonzero(np.isin(whole[len(prompt) :], self._stop_ids))
            if not len(stops):
                return None
            end = len(prompt) + int(stops[0]) + 1
        different_ids = None if np.array_equal(turn[0].ids[:end], whole[:end]) else whole[:end]
        return Boundary(prompt_tokens=len(prompt), completion_tokens=end, ids=different_ids)

    def _separate_sequences(self, turns: Sequence[_Turn], prompts: Sequence[Int32]) -> list[Boundary]:
        """Encode completions apart from their prompts; start-of-text effects apply only after an anchor."""
        starts, rests = [], []
        for text, prompt_end, completion_end in turns:
            completion = text.text[prompt_end:completion_end]
            first, through = self._anchors.first(completion)
            starts.append(completion[:through])
            rests.append(completion[first:])
        begun = _encode_each(self._continuation_encoder(), starts) if turns else []
        return [
            Boundary(
                prompt_tokens=len(prompt),
                completion_tokens=len(prompt) + len(start) + max(0, len(rest) - 1),
                ids=np.concatenate([prompt, start, rest[1:]]),  # the first anchor is in both
                merged=True,
            )
            for prompt, start, rest in zip(prompts, begun, _encode_each(self._encoder, rests), strict=True)
        ]


def _encode_each(encoder: Encoder, texts: Sequence[bytes]) -> list[Int32]:
    ids, offsets = encoder.encode([text.decode() for text in texts])
    return [ids[a:b] for a, b in itertools.pairwise(offsets.tolist())]
