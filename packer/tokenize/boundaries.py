"""Finds where prompts and completions end in the ids of a text.

The rule: let S be the ids of a turn's text up to and including its terminator, and E(P) the ids of its prompt encoded
alone. If S begins with E(P), the prompt is these first ids; otherwise a merge crosses the boundary, and the turn
gets a separate sequence.

:class:`VectorizedBoundaries` applies it to a whole batch in one pass. If ids spell a text byte for byte
(`TokenBytes.spell`, which leaves out the spaces that a tokenizer inserts), each byte belongs to a known id, and so do
the ends of prompts and completions. An added token whose id no merge produces (`TokenBytes.is_whole`) was extracted
from the raw text before anything else, so it is an anchor, and the ids up to its end do not depend on what follows. So
the ids of a prompt alone are those of the text up to its last anchor, followed by those of the rest encoded alone.

Texts for which this is inconclusive are left to :class:`BoundaryFinder`, which applies the rule word for word: ids that
decode to other bytes, a boundary inside a token, a completion that does not end with an anchor, a prompt whose ids the
text does not continue. It encodes both for each turn, which makes long conversations several times slower than encoding
them once.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from packer.batches import Bool, Int32, Int64, TokenBatch, TurnBatch
from packer.layout import offsets_of, taken_ranges
from packer.literals import longest_of
from packer.model.model import AddedToken
from packer.model.token_bytes import TokenBytes
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


Text: TypeAlias = tuple[bytes, Sequence[tuple[int, int]]]
"""A text, and the turns in it as pairs of byte positions (prompt end, completion end)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Where a turn's prompt and completion end, in tokens; `ids` if the turn needs a separate sequence."""

    prompt_tokens: int
    completion_tokens: int
    ids: Int32 | None = None
    merged: bool = False


class _Turn(NamedTuple):
    text: bytes
    ids: Int32
    """Those of the text."""

    prompt_end: int
    completion_end: int


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

    def find(self, texts: Sequence[Text]) -> list[tuple[Int32, list[Boundary]]]:
        """Return the ids of every text, and the boundaries of its turns."""
        ids = _encode_each(self._encoder, [text for text, _ in texts])
        turns = [_Turn(text, own, *ends) for (text, each), own in zip(texts, ids, strict=True) for ends in each]
        sizes = np.cumsum([turn.prompt_end + turn.completion_end for turn in turns]) // _CALL_BYTES
        found: list[Boundary] = []
        for _, call in groupby(zip(sizes.tolist(), turns, strict=True), key=itemgetter(0)):
            found += self._found([turn for _, turn in call])
        boundaries = iter(found)
        return [(own, [*itertools.islice(boundaries, len(each))]) for (_, each), own in zip(texts, ids, strict=True)]

    def _found(self, turns: Sequence[_Turn]) -> list[Boundary]:
        ends = [turn.text[:end] for turn in turns for end in (turn.prompt_end, turn.completion_end)]
        ids = _encode_each(self._encoder, ends)
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
        different_ids = None if np.array_equal(turn.ids[:end], whole[:end]) else whole[:end]
        return Boundary(prompt_tokens=len(prompt), completion_tokens=end, ids=different_ids)

    def _separate_sequences(self, turns: Sequence[_Turn], prompts: Sequence[Int32]) -> list[Boundary]:
        """Encode completions apart from their prompts; start-of-text effects apply only after an anchor."""
        starts, rests = [], []
        for turn in turns:
            completion = turn.text[turn.prompt_end : turn.completion_end]
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


def turns_of(turns: TurnBatch, texts: npt.NDArray[np.integer]) -> tuple[Int64, Int64]:
    """Return the turns of some texts of a batch, in its order, and for each which of these texts it is in.

    Returns:
        int64[T], int64[T]
    """
    number = np.full(len(turns.raw), -1, np.int64)
    number[texts] = np.arange(len(texts))
    of_turn = number[turns.turn_text]
    own = np.flatnonzero(of_turn >= 0)
    return own, of_turn[own]


def decoded_pieces(text: bytes, starts: Int64, stops: Int64) -> list[str]:
    """Return pieces of a text in UTF-8."""
    places = zip(starts.tolist(), stops.tolist(), strict=True)
    if text.isascii():
        whole = text.decode()
        return [whole[a:b] for a, b in places]
    return [text[a:b].decode() for a, b in places]


_MAX_CACHED_BYTES = 2**24
"""Limit of a cache of tails and their ids. Usually they are a few short headers; without anchors, whole prompts."""


class _Tails:
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
        ids, offsets = self._encoder.encode([tail.decode() for tail in new])
        for tail, start, stop in zip(new, offsets[:-1], offsets[1:], strict=True):
            self._ids[tail] = ids[start:stop].copy()
            self._num_bytes += 2 * len(tail) + 256
        return [self._ids[tail] for tail in tails]


class _Places(NamedTuple):
    """Turns, and where they stand in the ids of some texts, concatenated. T turns."""

    turn: Int64  # [T] index in the batch
    text: Int64  # [T] index among these texts
    first: Int64  # [T] first token of the text
    prompt: Int64  # [T] where the prompt ends
    completion: Int64  # [T]

    def within(self, texts: Bool) -> "_Places":
        """Return the turns of some of the texts.  # bool[N]"""
        return _Places(*(column[texts[self.text]] for column in self))


class VectorizedBoundaries:
    """Locates turns in texts under one tokenizer; `is_anchor`: which ids are anchors, bool[vocabulary]."""

    def __init__(self, encoder: Encoder, token_bytes: TokenBytes, is_anchor: Bool) -> None:
        self._encoder = encoder
        self._token_bytes = token_bytes
        self._is_anchor: Bool = is_anchor & token_bytes.is_whole
        self._tails = _Tails(encoder)

    def locate(self, turns: TurnBatch, candidates: Int64) -> TokenBatch:
        """Encode some texts of a batch (their indices, ascending); return those whose turns can be located, with these.

        Raises:
            UnencodableTextsError: the tokenizer fails on some of them, or on a prompt.
        """
        starts, stops = turns.text_offsets[candidates], turns.text_offsets[candidates + 1]
        ids, offsets = self._encoder.encode(decoded_pieces(turns.text, starts, stops))
        spelling = self._token_bytes.spell(ids, offsets)
        located = spelling.begins(turns.text, starts, stops) & (np.diff(spelling.bounds) == stops - starts)
        located &= _minimum_per_text(self._token_bytes.num_bytes[ids], offsets) > 0
        places = _between_tokens(turns, candidates, offsets, spelling.ends, located)
        located[places.text[~self._are_verified(turns, ids, spelling.ends, places)]] = False
        places, chosen = places.within(located), np.flatnonzero(located)
        if len(chosen) < len(candidates):
            lengths = np.diff(offsets)[chosen]
            ids, offsets = taken_ranges(ids, offsets[:-1][chosen], lengths), offsets_of(lengths)
        return TokenBatch(
            ids=ids,
            offsets=offsets,
            sequence_text=candidates[chosen].astype(np.int32),
            turn_sequence=(np.cumsum(located) - 1)[places.text].astype(np.int32),
            prompt_tokens=places.prompt - places.first,
            completion_tokens=places.completion - places.first,
            merged=np.zeros(len(places.turn), np.bool_),
        )

    def _are_verified(self, turns: TurnBatch, ids: Int32, ends: Int64, places: _Places) -> Bool:
        """Whether each prompt has the same ids if encoded alone, and each completion ends with an anchor.  # bool[T]"""
        anchors = np.append(self._is_anchor[ids], False)
        last = np.maximum.accumulate(np.where(anchors, np.arange(len(anchors)), -1))
        tail = np.maximum(last[np.maximum(places.prompt, 1) - 1], places.first)
        shift = turns.text_offsets[turns.turn_text[places.turn]] - ends[places.first]  # to bytes of the batch
        bounds = zip((ends[tail] + shift).tolist(), (ends[places.prompt] + shift).tolist(), strict=True)
        closed: Bool = (places.prompt < places.completion) & anchors[np.maximum(places.completion, 1) - 1]
        return closed & self._tails_match(ids, tail, places.prompt, [turns.text[a:b] for a, b in bounds])

    def _tails_match(self, ids: Int32, begin: Int64, prompt: Int64, tails: Sequence[bytes]) -> Bool:
        """Whether the ids of each prompt after its last anchor are those of its tail alone.  # bool[T]"""
        alone = self._tails.ids(tails)
        lengths = np.fromiter(map(len, alone), np.int64, len(alone))
        matches: Bool = lengths == prompt - begin
        chosen = np.flatnonzero(matches)
        if len(chosen):
            found = taken_ranges(ids, begin[chosen], lengths[chosen])
            differs = np.flatnonzero(found != np.concatenate([alone[turn] for turn in chosen.tolist()]))
            matches[chosen[np.searchsorted(np.cumsum(lengths[chosen]), differs, side="right")]] = False
        return matches


def _minimum_per_text(values: Int64, offsets: Int64) -> Int64:
    """Return the smallest value of each item; 1 for an empty one.  # int64[N]"""
    smallest = np.ones(len(offsets) - 1, np.int64)
    full = np.flatnonzero(np.diff(offsets))
    if len(full):
        smallest[full] = np.minimum.reduceat(values, offsets[:-1][full])
    return smallest


def _between_tokens(turns: TurnBatch, candidates: Int64, offsets: Int64, ends: Int64, located: Bool) -> _Places:
    """Return the turns of the located texts among some, but for texts with a boundary inside of a token.

    These are left out of `located`, too. `ends`: where the bytes of tokens end.
    """
    turn, text = turns_of(turns, candidates)
    turn, text = turn[located[text]], text[located[text]]
    first = offsets[text]
    prompt_bytes, completion_bytes = (ends[first] + each[turn] for each in (turns.prompt_end, turns.completion_end))
    # An id without bytes shares its position with the next one; skip those at the end of the text before.
    prompt, completion = (np.maximum(np.searchsorted(ends, each), first) for each in (prompt_bytes, completion_bytes))
    located[text[(ends[prompt] != prompt_bytes) | (ends[completion] != completion_bytes)]] = False
    return _Places(turn, text, first, prompt, completion).within(located)
