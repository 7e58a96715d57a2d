"""The slow way of tokenizing, word for word, and for texts in which a person typed control tokens.

The rule: let S be the ids of a turn's text up to and including its terminator, and E(P) the ids of its prompt encoded
alone. If S begins with E(P), the prompt is these first ids; otherwise a merge crosses the boundary, and the turn
gets a separate sequence. Both are encoded for each turn, which makes long conversations several times
slower than encoding them once.

A text in which a person typed control tokens has some that are real (written by the template) and some that are not.
In a copy of the tokenizer every control token is renamed to an alias of private-use characters; in the text the real
ones are replaced by their alias, the typed ones stay. So one encoding of the whole text treats the real ones as control
tokens and the typed ones as ordinary text, and leaves everything around them unaffected.
"""

import itertools
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np

from packer.batches import Int32, Int64, TokenBatch, TurnBatch
from packer.layout import offsets_of
from packer.literals import longest_of, replaced
from packer.model.backend import load_backend
from packer.model.model import TOKENIZER_FILE, AddedToken, Model
from packer.tokenize.reference_encoder import (
    Anchors,
    Encoder,
    ReferenceEncoder,
    UnencodableTextsError,
    normalized_control,
    normalizes,
    without_start_effects,
)

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


def _continuing(encoder: Encoder, tokenizer_json: bytes) -> Encoder:
    """Return what encodes the continuation of a text, which for many tokenizers is what encodes texts."""
    bare = without_start_effects(tokenizer_json)
    return encoder if bare == tokenizer_json else ReferenceEncoder(bare)


class Aliases:
    """Encodes with the aliased copy of a tokenizer, and returns the tokenizer's own ids."""

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
        self._json = json.dumps(definition).encode()
        self._encoder: Encoder = ReferenceEncoder(self._json)
        backend = load_backend(self._json)
        aliased = {self._alias.get(token.content, token.content): token for token in added_tokens}
        # Added tokens that are also in the model's vocabulary get a new id under their alias: map it back.
        self._original = np.arange(max(backend.get_vocab(with_added_tokens=True).values()) + 1, dtype=np.int32)
        for content, token in aliased.items():
            self._original[backend.token_to_id(content)] = token.id
        self.added_tokens = tuple(replace(token, content=content) for content, token in aliased.items())
        self._pattern = re.compile(longest_of(self._alias).encode())

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
        ids, offsets = self._encoder.encode(texts)
        return self._original[ids], offsets

    def continuing(self) -> "Aliases":
        """Return what encodes the continuation of a text."""
        other = copy(self)
        other._encoder = _continuing(self._encoder, self._json)  # noqa: SLF001 - a copy of self
        return other

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    content: bytes
    raw: bool
    turns: tuple[tuple[int, int], ...]
    guarded: tuple[tuple[int, int], ...]

    @property
    def turns_to_locate(self) -> tuple[tuple[int, int], ...]:
        """The turns whose boundary must be found; a raw text without a prompt is trained throughout."""
        return () if self.raw and self.turns[0][0] == 0 else self.turns


_Located: TypeAlias = tuple[Int32, list[Boundary]]
"""The ids of a text, and the boundaries of its turns."""


class OneByOne:
    """Tokenizes texts one by one, for one model."""

    def __init__(self, model: Model, encoder: Encoder, anchors: Anchors) -> None:
        self._model = model
        self._json = model.files[TOKENIZER_FILE]
        continuing = cache(lambda: _continuing(encoder, self._json))
        self.boundaries = BoundaryFinder(encoder, continuing, anchors, model.stop_ids)
        self._normalized_control = normalized_control(model)

    def tokenize(self, turns: TurnBatch, chosen: Int64) -> TokenBatch:
        """Process the chosen texts; the result has only their turns, in order.

        A text that the tokenizer fails on gets no ids, but a reason.
        """
        texts = _texts(turns, chosen)
        unencodable: dict[int, str] = {}
        try:
            located = self._locate(texts)
        except UnencodableTextsError:  # on a text, on a prompt in it, or on a separate completion
            located = []
            for n, text in enumerate(texts):
                try:
                    located += self._locate([text])
                except UnencodableTextsError as error:
                    unencodable[n] = next(iter(error.reasons.values()))
                    located.append(_empty_result(text))
        control = self._normalized_control
        for n, (text, (ids, _)) in enumerate(zip(texts, located, strict=True)):
            if control and n not in unencodable and _is_forged(text, ids, control):
                unencodable[n] = "it normalizes ordinary text to a control token"
                located[n] = _empty_result(text)
        return _token_batch(chosen, located, unencodable)

    def _locate(self, texts: Sequence[_Text]) -> list[_Located]:
        """Return the ids of each text, and the boundaries of its turns."""
        plain = [n for n, text in enumerate(texts) if not text.guarded]
        found = self.boundaries.find([(texts[n].content, texts[n].turns_to_locate) for n in plain])
        located = dict(zip(plain, found, strict=True))
        for n, text in enumerate(texts):
            if text.guarded:
                aliases, boundaries = self.aliased
                aliased, moved = aliases.replace(text.content, text.guarded)
                turns = [(moved(a), moved(b)) for a, b in text.turns_to_locate]
                (located[n],) = boundaries.find([(aliased, turns)])
            if not text.turns_to_locate:
                ids, _ = located[n]
                located[n] = ids, [Boundary(prompt_tokens=0, completion_tokens=len(ids))]
        return [located[n] for n in range(len(texts))]

    @cached_property
    def aliased(self) -> tuple[Aliases, BoundaryFinder]:
        aliases = Aliases(self._json, self._model.control, self._model.added_tokens)
        anchors = Anchors(aliases.added_tokens, self._model.vocab_size, normalizes=normalizes(self._json))
        return aliases, BoundaryFinder(aliases, cache(aliases.continuing), anchors, self._model.stop_ids)


def _empty_result(text: _Text) -> _Located:
    """Return no ids, and empty boundaries for every turn."""
    return np.zeros(0, np.int32), [Boundary(prompt_tokens=0, completion_tokens=0)] * len(text.turns)


def _texts(turns: TurnBatch, chosen: Int64) -> list[_Text]:
    """Return texts of a batch, in which turns and guarded ranges are in the order of their texts."""
    offsets = turns.text_offsets
    ends = list(zip(turns.prompt_end.tolist(), turns.completion_end.tolist(), strict=True))
    first_turn = np.searchsorted(turns.turn_text, np.arange(len(offsets)))
    first_guard = np.searchsorted(turns.guarded[:, 0], offsets)
    guarded = turns.guarded.tolist()
    return [
        _Text(
            content=turns.text[start:stop],
            raw=bool(turns.raw[n]),
            turns=tuple(ends[first_turn[n] : first_turn[n + 1]]),
            guarded=tuple((a - start, b - start) for a, b in guarded[first_guard[n] : first_guard[n + 1]]),
        )
        for n, start, stop in zip(chosen, offsets[chosen].tolist(), offsets[chosen + 1].tolist(), strict=True)
    ]


def _is_forged(text: _Text, ids: Int32, control: Sequence[AddedToken]) -> bool:
    """Whether ids contain more of some control tokens than their text does outside what a person typed."""
    contents = b"|".join(re.escape(token.content.encode()) for token in control)
    written = [match.span() for match in re.finditer(contents, text.content)]
    begins = [begin for begin, _ in text.guarded]
    before = [bisect_right(begins, start) for start, _ in written]
    typed = sum(n > 0 and end <= text.guarded[n - 1][1] for n, (_, end) in zip(before, written, strict=True))
    return int(np.isin(ids, [token.id for token in control]).sum()) > len(written) - typed


def _token_batch(chosen: Int64, located: Sequence[_Located], unencodable: Mapping[int, str]) -> TokenBatch:
    """Put sequences together: one for each of the chosen texts, and one for each turn that needs a separate one."""
    sequences: list[tuple[int, Int32]] = []
    turns: list[tuple[int, int, int, bool]] = []
    for text, (whole, found) in zip(chosen.tolist(), located, strict=True):
        own = len(sequences)
        sequences.append((text, whole))
        for each in found:
            sequence = own if each.ids is None else len(sequences)
            sequences += [] if each.ids is None else [(text, each.ids)]
            turns.append((sequence, each.prompt_tokens, each.completion_tokens, each.merged))
    sequence_of, prompt, completion, merged = zip(*turns, strict=True) if turns else ([], [], [], [])
    return TokenBatch(
        ids=np.concatenate([np.zeros(0, np.int32), *(ids for _, ids in sequences)]),
        offsets=offsets_of([len(ids) for _, ids in sequences]),
        sequence_text=np.array([text for text, _ in sequences], np.int32),
        turn_sequence=np.array(sequence_of, np.int32),
        prompt_tokens=np.array(prompt, np.int64),
        completion_tokens=np.array(completion, np.int64),
        merged=np.array(merged, np.bool_),
        unencodable=tuple((int(chosen[n]), reason) for n, reason in unencodable.items()),
    )
