"""The tokenize stage: turns a TurnBatch into a TokenBatch.

A text in which a person typed control tokens has some that are real (written by the template) and some that are not.
In a copy of the tokenizer every control token is renamed to an alias of private-use characters; in the text the real
ones are replaced by their alias, the typed ones stay. So one encoding of the whole text treats the real ones as control
tokens and the typed ones as ordinary text, and leaves everything around them unaffected.
"""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np

from packer.batches import Int32, Int64, TokenBatch, TurnBatch
from packer.layout import offsets_of
from packer.literals import longest_of, replaced
from packer.model.backend import definition_of, load_backend
from packer.model.model import TOKENIZER_FILE, AddedToken, Model
from packer.model.token_bytes import TokenBytes
from packer.tokenize.boundaries import (
    Anchors,
    Boundary,
    BoundaryFinder,
    VectorizedBoundaries,
    decoded_pieces,
    turns_of,
)
from packer.tokenize.reference_encoder import (
    Encoder,
    ReferenceEncoder,
    UnencodableTextsError,
    prefix_and_suffix_ids,
    without_start_effects,
)


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


_MANY_TEXTS = 64
"""Texts of a batch after which it is clear that the vectorized pass suits none."""


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


class TurnTokenizer:
    """The tokenize stage for one model."""

    def __init__(self, model: Model, encoder: Encoder) -> None:
        self._model = model
        self._json = model.files[TOKENIZER_FILE]
        self._encoder = encoder
        self._normalizes = definition_of(self._json).get("normalizer") is not None
        anchors = Anchors(model.added_tokens, model.vocab_size, normalizes=self._normalizes)
        continuing = cache(lambda: _continuing(encoder, self._json))
        self._boundaries = BoundaryFinder(encoder, continuing, anchors, model.stop_ids)
        self._vectorized = VectorizedBoundaries(encoder, TokenBytes(model), anchors.is_anchor)
        self._is_vectorized = True
        """Whether to try the vectorized pass: it suits no text at all of tokenizers whose added tokens take white space
        with them, such as Phi-3's."""

        normalized = [token for token in model.added_tokens if token.normalized and token.content in model.control]
        self._normalized_control = _NormalizedControlTokens(normalized) if self._normalizes and normalized else None

    def tokenize(self, turns: TurnBatch) -> TokenBatch:
        """Encode every text once and locate every turn; a text the tokenizer fails on gets no ids, but a reason."""
        located = self._locate_vectorized(turns)
        remaining = np.arange(len(turns.raw))
        if located is not None:
            remaining = np.setdiff1d(remaining, located.sequence_text, assume_unique=True)
        if located is None or len(remaining):
            one_by_one = self._tokenize_one_by_one(turns, remaining)
            located = one_by_one if located is None else _joined(turns, located, one_by_one)
        return _framed(turns, located, *self._prefix_and_suffix) if turns.raw.any() else located

    def _locate_vectorized(self, turns: TurnBatch) -> TokenBatch | None:
        """Locate all turns of the texts for which one vectorized pass suffices; None if there are none."""
        if self._normalized_control is not None or not len(turns.raw):
            return None
        try:
            if turns.raw.all() and not turns.prompt_end.any() and not len(turns.guarded):
                return self._whole_texts(turns)
            plain = np.ones(len(turns.raw), np.bool_)
            plain[np.searchsorted(turns.text_offsets, turns.guarded[:, 0], side="right") - 1] = False
            if not self._is_vectorized or not plain.any():
                return None
            located = self._vectorized.locate(turns, np.flatnonzero(plain))
        except UnencodableTextsError:
            return None
        if not len(located.sequence_text):
            self._is_vectorized = int(plain.sum()) < _MANY_TEXTS
        return located

    def _whole_texts(self, turns: TurnBatch) -> TokenBatch:
        """Encode plain texts, which are trained throughout, at once.

        Raises:
            UnencodableTextsError: the tokenizer fails on one of them.
        """
        bounds = turns.text_offsets
        ids, offsets = self._encoder.encode(decoded_pieces(turns.text, bounds[:-1], bounds[1:]))
        return TokenBatch(
            ids=ids,
            offsets=offsets,
            sequence_text=np.arange(len(bounds) - 1, dtype=np.int32),
            turn_sequence=turns.turn_text,
            prompt_tokens=np.zeros(len(turns.turn_text), np.int64),
            completion_tokens=np.diff(offsets)[turns.turn_text],
            merged=np.zeros(len(turns.turn_text), np.bool_),
        )

    def _tokenize_one_by_one(self, turns: TurnBatch, chosen: Int64) -> TokenBatch:
        """Process the chosen texts individually; the result has only their turns, in order."""
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
            if control is not None and n not in unencodable and control.is_forged(text, ids):
                unencodable[n] = "it normalizes ordinary text to a control token"
                located[n] = _empty_result(text)
        return _token_batch(chosen, located, unencodable)

    def _locate(self, texts: Sequence[_Text]) -> list[_Located]:
        """Return the ids of each text, and the boundaries of its turns."""
        plain = [n for n, text in enumerate(texts) if not text.guarded]
        found = self._boundaries.find([(texts[n].content, texts[n].turns_to_locate) for n in plain])
        located = dict(zip(plain, found, strict=True))
        for n, text in enumerate(texts):
            if text.guarded:
                aliases, boundaries = self._aliased
                aliased, moved = aliases.replace(text.content, text.guarded)
                turns = [(moved(a), moved(b)) for a, b in text.turns_to_locate]
                (located[n],) = boundaries.find([(aliased, turns)])
            if not text.turns_to_locate:
                ids, _ = located[n]
                located[n] = ids, [Boundary(prompt_tokens=0, completion_tokens=len(ids))]
        return [located[n] for n in range(len(texts))]

    @cached_property
    def _aliased(self) -> tuple[Aliases, BoundaryFinder]:
        aliases = Aliases(self._json, self._model.control, self._model.added_tokens)
        anchors = Anchors(aliases.added_tokens, self._model.vocab_size, normalizes=self._normalizes)
        return aliases, BoundaryFinder(aliases, cache(aliases.continuing), anchors, self._model.stop_ids)

    @cached_property
    def _prefix_and_suffix(self) -> tuple[Int32, Int32]:
        return prefix_and_suffix_ids(self._json)


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


class _NormalizedControlTokens:
    """Control tokens that are matched in normalized text, so that ordinary text may turn into one."""

    def __init__(self, tokens: Sequence[AddedToken]) -> None:
        self._ids = np.array([token.id for token in tokens], np.int32)
        self._pattern = re.compile(b"|".join(re.escape(token.content.encode()) for token in tokens))

    def is_forged(self, text: _Text, ids: Int32) -> bool:
        """Whether the ids contain more of them than the text does outside what a person typed."""
        written = [match.span() for match in self._pattern.finditer(text.content)]
        begins = [begin for begin, _ in text.guarded]
        before = [bisect_right(begins, start) for start, _ in written]
        typed = sum(n > 0 and end <= text.guarded[n - 1][1] for n, (_, end) in zip(before, written, strict=True))
        return int(np.isin(ids, self._ids).sum()) > len(written) - typed


def _joined(turns: TurnBatch, located: TokenBatch, others: TokenBatch) -> TokenBatch:
    """Join the sequences of some texts of a batch with those of the others, with turns in the order of the batch."""
    parts = (located, others)
    order = np.argsort(np.concatenate([turns_of(turns, part.sequence_text)[0] for part in parts]))
    sequences = (located.turn_sequence, others.turn_sequence + len(located.sequence_text))
    return TokenBatch(
        ids=np.concatenate([part.ids for part in parts]),
        offsets=np.concatenate([located.offsets, others.offsets[1:] + located.offsets[-1]]),
        sequence_text=np.concatenate([part.sequence_text for part in parts]),
        turn_sequence=np.concatenate(sequences).astype(np.int32)[order],
        prompt_tokens=np.concatenate([part.prompt_tokens for part in parts])[order],
        completion_tokens=np.concatenate([part.completion_tokens for part in parts])[order],
        merged=np.concatenate([part.merged for part in parts])[order],
        unencodable=others.unencodable,
    )


def _framed(turns: TurnBatch, tokens: TokenBatch, prefix: Int32, suffix: Int32) -> TokenBatch:
    """Add the special tokens that the tokenizer itself puts around a plain text or completion, without a second EOS.

    A text without a prompt is trained with both.
    """
    is_raw, own = turns.raw[tokens.sequence_text], np.diff(tokens.offsets)
    is_open = is_raw.copy()
    if len(suffix) and len(tokens.ids):
        is_open &= (own == 0) | (tokens.ids[np.maximum(tokens.offsets[1:], 1) - 1] != suffix[-1])
    # One line for each sequence: where its special tokens go, which they are, and whether it gets them.
    around, width = np.concatenate([prefix, suffix]), (len(is_raw), len(prefix) + len(suffix))
    is_before = np.arange(width[1]) < len(prefix)
    places = np.where(is_before, tokens.offsets[:-1, None], tokens.offsets[1:, None])
    wanted = np.where(is_before, is_raw[:, None], is_open[:, None])
    lengths = own + len(prefix) * is_raw + len(suffix) * is_open
    of_raw = turns.raw[turns.turn_text]
    shift = len(prefix) * of_raw
    is_whole = of_raw & (turns.prompt_end == 0)
    return replace(
        tokens,
        ids=np.insert(tokens.ids, places[wanted], np.broadcast_to(around, width)[wanted]),
        offsets=offsets_of(lengths),
        prompt_tokens=tokens.prompt_tokens + shift,
        completion_tokens=np.where(is_whole, lengths[tokens.turn_sequence], tokens.completion_tokens + shift),
    )


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
