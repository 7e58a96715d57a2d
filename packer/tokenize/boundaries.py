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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import Literal, TypeAlias

import numpy as np

from packer.batches import Bool, Int32, Int64
from packer.literals import longest_of
from packer.model.model import AddedToken
from packer.tokenize.reference_encoder import Encoder

_MAX_CACHED_BYTES = 2**24
"""Limit of a cache of tails and their ids. Usually they are a few short headers; without anchors, whole prompts."""


class Tails:
    """The ids of the ends of prompts, each encoded alone, and once if it occurs again soon."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._ids: dict[bytes, Int32] = {}
        self._num_bytes = 0

    def ids(self, tails: Sequence[bytes]) -> list[Int32]:
        """Return the ids of each tail."""
        if self._num_bytes > _MAX_CACHED_BYTES:
            self._ids, self._num_bytes = {}, 0
        new = [tail for tail in dict.fromkeys(tails) if tail not in self._ids]
        for tail, ids in zip(new, _encode_each(self._encoder, new), strict=True):
            self._ids[tail] = ids.copy()
            self._num_bytes += 2 * len(tail) + 256
        return [self._ids[tail] for tail in tails]


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


_Open: TypeAlias = Literal["unclear", "apart"]
"""Why anchors do not tell a boundary: ids have to tell it, or the prompt's ids do not begin those of the text."""

_Spans: TypeAlias = tuple[list[int], list[int]]
_Found: TypeAlias = Boundary | _Open
_Turn: TypeAlias = tuple[EncodedText, int, int]
_Decide: TypeAlias = Callable[[Sequence[_Turn]], list[_Found]]

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
        tails: Tails | None = None,
    ) -> None:
        """`continuation_encoder` returns an encoder without start-of-text effects, for completions; rarely used."""
        self._encoder = encoder
        self._continuation_encoder = continuation_encoder
        self._anchors = anchors
        self._stop_ids = np.array(sorted(stop_ids), np.int32)
        self._tails = tails or Tails(encoder)

    def find(self, texts: Sequence[EncodedText]) -> list[list[Boundary]]:
        """Return the boundaries of every turn of every text."""
        located = [self._anchors.find(text.text) if text.turns else ([], []) for text in texts]
        places = [*zip(texts, located, strict=True)]
        tails = iter(self._tails.ids([_tail(text.text, spans, end) for text, spans in places for end, _ in text.turns]))
        found = [each for text, spans in places for each in self._boundaries_of(text, spans, tails)]
        turns = [(text, *turn) for text in texts for turn in text.turns]
        self._replace(found, "unclear", turns, self._by_encoding)
        self._replace(found, "apart", turns, self._separate_sequences)
        boundaries = iter(found)
        return [[each for each in islice(boundaries, len(text.turns)) if isinstance(each, Boundary)] for text in texts]

    def _replace(self, found: list[_Found], what: _Open, turns: Sequence[_Turn], decide: _Decide) -> None:
        """Decide about all turns that were left open for one reason, many in one call of an encoder."""
        waiting = [number for number, each in enumerate(found) if each == what]
        calls = np.cumsum([turns[number][2] for number in waiting]) // _CALL_BYTES
        for _, call in groupby(zip(calls.tolist(), waiting, strict=True), key=itemgetter(0)):
            numbers = [number for _, number in call]
            for number, boundary in zip(numbers, decide([turns[number] for number in numbers]), strict=True):
                found[number] = boundary

    def _boundaries_of(self, text: EncodedText, anchor_spans: _Spans, tails: Iterator[Int32]) -> Sequence[_Found]:
        if not text.turns:
            return []
        own = zip(text.turns, islice(tails, len(text.turns)), strict=True)
        anchor_tokens = np.flatnonzero(self._anchors.is_anchor[text.ids])
        if len(anchor_tokens) != len(anchor_spans[1]):
            return ["unclear" for _ in own]
        return [_boundary(text.ids, anchor_spans[1], anchor_tokens, *each) for each in own]

    def _by_encoding(self, turns: Sequence[_Turn]) -> list[_Found]:
        """Apply the rule literally, for texts whose anchors cannot be trusted or whose terminator is not an anchor."""
        ids = _encode_each(self._encoder, [text.text[:end] for text, *ends in turns for end in ends])
        around = zip(turns, ids[::2], ids[1::2], strict=True)
        return [self._by_ids(text, prompt, whole) for (text, *_), prompt, whole in around]

    def _by_ids(self, text: EncodedText, prompt: Int32, whole: Int32) -> _Found:
        stops = np.flatnonzero(np.isin(whole[len(prompt) :], self._stop_ids))
        if len(stops) == 0 or not np.array_equal(whole[: len(prompt)], prompt):
            return "apart"
        end = len(prompt) + int(stops[0]) + 1
        different_ids = None if np.array_equal(text.ids[:end], whole[:end]) else whole[:end]
        return Boundary(prompt_tokens=len(prompt), completion_tokens=end, ids=different_ids)

    def _separate_sequences(self, turns: Sequence[_Turn]) -> list[_Found]:
        """Encode prompts and completions separately; start-of-text effects apply only after an anchor."""
        around, starts = [], []
        for text, prompt_end, completion_end in turns:
            completion = text.text[prompt_end:completion_end]
            found, ends = self._anchors.find(completion)
            first, through = (found[0], ends[0]) if found else (len(completion), len(completion))
            around += [text.text[:prompt_end], completion[first:]]
            starts.append(completion[:through])
        ids, after = self._tails.ids(around), _encode_each(self._continuation_encoder(), starts)
        return [
            Boundary(
                prompt_tokens=len(prompt),
                completion_tokens=len(prompt) + len(start) + max(0, len(rest) - 1),
                ids=np.concatenate([prompt, start, rest[1:]]),  # the first anchor is in both
                merged=True,
            )
            for prompt, start, rest in zip(ids[::2], after, ids[1::2], strict=True)
        ]


def _tail(text: bytes, anchor_spans: _Spans, prompt_end: int) -> bytes:
    """Return the prompt from its last anchor on: the only part that a longer text could tokenize differently."""
    starts, ends = anchor_spans
    count = bisect_right(ends, prompt_end)
    return text[starts[count - 1] if count else 0 : prompt_end]


def _boundary(ids: Int32, ends: list[int], anchor_tokens: Int64, turn: tuple[int, int], tail: Int32) -> _Found:
    prompt_end, completion_end = turn
    num_before, num_through = bisect_right(ends, prompt_end), bisect_right(ends, completion_end)
    if num_through == 0 or ends[num_through - 1] != completion_end:
        return "unclear"
    begin = int(anchor_tokens[num_before - 1]) if num_before else 0
    prompt_tokens, completion_tokens = begin + len(tail), int(anchor_tokens[num_through - 1]) + 1
    if prompt_tokens < completion_tokens and np.array_equal(ids[begin:prompt_tokens], tail):
        return Boundary(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
    return "apart"


def _encode_each(encoder: Encoder, texts: Sequence[bytes]) -> list[Int32]:
    ids, offsets = encoder.encode([text.decode() for text in texts])
    return [ids[a:b] for a, b in itertools.pairwise(offsets.tolist())]
