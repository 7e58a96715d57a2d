"""Finds where prompts and completions end in the ids of a text.

The rule: let S be the ids of a turn's text up to and including its terminator, and E(P) the ids of its prompt encoded
alone. If S begins with E(P), the prompt is these first ids; otherwise a merge crosses the boundary, and the turn
gets a separate sequence.

E(P) is not computed in full. Up to the end of P's last anchor it equals the ids of the text (see :class:`Anchors`).
Only the tail after that anchor is encoded, which in almost every template is one short header, the same for every turn.
"""

import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from packer.batches import Bool, Int32, Int64
from packer.literals import longest_of
from packer.model.model import AddedToken
from packer.tokenize.reference_encoder import Encoder

MAX_CACHED_BYTES = 2**24
"""Limit of a cache of tails and their ids. Usually they are a few short headers; without anchors, whole prompts."""


class Anchors:
    """Added tokens of one tokenizer at which it always splits a text.

    `tokenizers` first extracts added tokens that are not normalized from the raw text, leftmost and longest, and
    tokenizes the pieces between them separately. So the ids up to the end of an anchor do not depend on what follows,
    and the n-th anchor in the text is the n-th anchor id in the ids: byte positions become token positions without
    offsets from the encoder.
    """

    def __init__(self, added_tokens: Sequence[AddedToken], vocab_size: int, *, normalizes: bool) -> None:
        """`normalizes`: the tokenizer has a normalizer, so that normalized added tokens are found only after it."""
        tokens = [token for token in added_tokens if not token.single_word and not (token.normalized and normalizes)]
        contents = [token.content for token in tokens]
        self._pattern = re.compile(longest_of(contents).encode()) if contents else None
        self.is_anchor: Bool = np.zeros(vocab_size, np.bool_)
        self.is_anchor[[token.id for token in tokens]] = True

    def find(self, text: bytes) -> tuple[list[int], list[int]]:
        """Return the byte positions where anchors start and end in a text, in order."""
        if self._pattern is None:
            return [], []
        starts, ends = [], []
        for match in self._pattern.finditer(text):
            starts.append(match.start())
            ends.append(match.end())
        return starts, ends


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


class BoundaryFinder:
    """Finds boundaries under one tokenizer."""

    def __init__(
        self, encoder: Encoder, continuation_encoder: Callable[[], Encoder], anchors: Anchors, stop_ids: Sequence[int]
    ) -> None:
        """`continuation_encoder` returns an encoder without start-of-text effects, for completions; rarely used."""
        self._encoder = encoder
        self._continuation_encoder = continuation_encoder
        self._anchors = anchors
        self._stop_ids = np.array(sorted(stop_ids), np.int32)
        self._tails: dict[bytes, Int32] = {}
        self._num_bytes = 0

    def find(self, texts: Sequence[EncodedText]) -> list[list[Boundary]]:
        """Return the boundaries of every turn of every text."""
        located = [self._anchors.find(text.text) if text.turns else ([], []) for text in texts]
        self._encode_tails(texts, located)
        return [self._boundaries_of(text, anchor_spans) for text, anchor_spans in zip(texts, located, strict=True)]

    def _boundaries_of(self, text: EncodedText, anchor_spans: tuple[list[int], list[int]]) -> list[Boundary]:
        if not text.turns:
            return []
        anchor_tokens = np.flatnonzero(self._anchors.is_anchor[text.ids])
        if len(anchor_tokens) != len(anchor_spans[1]):
            return [self._boundary_by_encoding(text, *turn) for turn in text.turns]
        return [self._boundary(text, anchor_spans, anchor_tokens, turn) for turn in text.turns]

    def _encode_tails(self, texts: Sequence[EncodedText], located: Sequence[tuple[list[int], list[int]]]) -> None:
        if self._num_bytes > MAX_CACHED_BYTES:
            self._tails, self._num_bytes = {}, 0
        tails = dict.fromkeys(
            self._tail(text.text, anchor_spans, prompt_end)
            for text, anchor_spans in zip(texts, located, strict=True)
            for prompt_end, _ in text.turns
        )
        new = [tail for tail in tails if tail not in self._tails]
        ids, offsets = self._encoder.encode([tail.decode() for tail in new])
        for i, tail in enumerate(new):
            self._tails[tail] = ids[offsets[i] : offsets[i + 1]].copy()
            self._num_bytes += 2 * len(tail) + 256

    def _tail(self, text: bytes, anchor_spans: tuple[list[int], list[int]], prompt_end: int) -> bytes:
        """Return the prompt from its last anchor on: the only part that a longer text could tokenize differently."""
        starts, ends = anchor_spans
        count = bisect_right(ends, prompt_end)
        return text[starts[count - 1] if count else 0 : prompt_end]

    def _boundary(
        self, text: EncodedText, anchor_spans: tuple[list[int], list[int]], anchor_tokens: Int64, turn: tuple[int, int]
    ) -> Boundary:
        prompt_end, completion_end = turn
        ends = anchor_spans[1]
        num_before, num_through = bisect_right(ends, prompt_end), bisect_right(ends, completion_end)
        if num_through == 0 or ends[num_through - 1] != completion_end:
            return self._boundary_by_encoding(text, prompt_end, completion_end)
        tail = self._tails[self._tail(text.text, anchor_spans, prompt_end)]
        begin = int(anchor_tokens[num_before - 1]) if num_before else 0
        prompt_tokens, completion_tokens = begin + len(tail), int(anchor_tokens[num_through - 1]) + 1
        if prompt_tokens < completion_tokens and np.array_equal(text.ids[begin:prompt_tokens], tail):
            return Boundary(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
        return self._separate_sequence(text.text, prompt_end, completion_end)

    def _boundary_by_encoding(self, text: EncodedText, prompt_end: int, completion_end: int) -> Boundary:
        """Apply the rule literally, for texts whose anchors cannot be trusted or whose terminator is not an anchor."""
        (whole, prompt) = self._encode_each(text.text[:completion_end], text.text[:prompt_end])
        stops = np.flatnonzero(np.isin(whole[len(prompt) :], self._stop_ids))
        if len(stops) == 0 or not np.array_equal(whole[: len(prompt)], prompt):
            return self._separate_sequence(text.text, prompt_end, completion_end)
        end = len(prompt) + int(stops[0]) + 1
        different_ids = None if np.array_equal(text.ids[:end], whole[:end]) else whole[:end]
        return Boundary(prompt_tokens=len(prompt), completion_tokens=end, ids=different_ids)

    def _separate_sequence(self, text: bytes, prompt_end: int, completion_end: int) -> Boundary:
        """Encode the prompt and the completion separately; start-of-text effects apply only after an anchor."""
        completion = text[prompt_end:completion_end]
        starts, ends = self._anchors.find(completion)
        first, through = (starts[0], ends[0]) if starts else (len(completion), len(completion))
        prompt, rest = self._encode_each(text[:prompt_end], completion[first:])
        start, _ = self._continuation_encoder().encode([completion[:through].decode()])
        ids = np.concatenate([prompt, start, rest[1:]])  # the first anchor is in both
        return Boundary(prompt_tokens=len(prompt), completion_tokens=len(ids), ids=ids, merged=True)

    def _encode_each(self, *texts: bytes) -> list[Int32]:
        ids, offsets = self._encoder.encode([text.decode() for text in texts])
        return [ids[a:b] for a, b in itertools.pairwise(offsets)]
