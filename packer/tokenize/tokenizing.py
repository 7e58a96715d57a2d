"""The tokenize stage: turns a TurnBatch into a TokenBatch.

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
    EncodedText,
    LocatedTexts,
    VectorizedBoundaries,
    decoded_pieces,
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
        if located is None:
            tokens = self._tokenize_one_by_one(turns, np.arange(len(turns.raw)))
        else:
            remaining = np.setdiff1d(np.arange(len(turns.raw)), located.text, assume_unique=True)
            tokens = _merged(turns, located, self._tokenize_one_by_one(turns, remaining) if len(remaining) else None)
        return _framed(turns, tokens, *self._prefix_and_suffix) if turns.raw.any() else tokens

    def _locate_vectorized(self, turns: TurnBatch) -> LocatedTexts | None:
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
        if not len(located.text):
            self._is_vectorized = int(plain.sum()) < _MANY_TEXTS
        return located

    def _whole_texts(self, turns: TurnBatch) -> LocatedTexts:
        """Encode plain texts, which are trained throughout, at once.

        Raises:
            UnencodableTextsError: the tokenizer fails on one of them.
        """
        bounds = turns.text_offsets
        ids, offsets = self._encoder.encode(decoded_pieces(turns.text, bounds[:-1], bounds[1:]))
        return LocatedTexts(
            ids=ids,
            offsets=offsets,
            text=np.arange(len(bounds) - 1),
            prompt_tokens=np.zeros(len(turns.turn_text), np.int64),
            completion_tokens=np.diff(offsets)[turns.turn_text],
        )

    def _tokenize_one_by_one(self, turns: TurnBatch, chosen: Int64) -> TokenBatch:
        """Process the chosen texts individually; the result has only their turns, in order."""
        every = _texts(turns)
        texts = [every[n] for n in chosen.tolist()]
        unencodable: dict[int, str] = {}
        try:
            located = self._locate(texts)
        except UnencodableTextsError:
            located = self._locate_one_by_one(texts, unencodable)
        for n, (text, (whole, _)) in enumerate(zip(texts, located, strict=True)):
            control = self._normalized_control
            if control is not None and n not in unencodable and control.is_forged(text, whole):
                unencodable[n] = "it normalizes ordinary text to a control token"
                located[n] = _empty_result(text)
        return _token_batch(texts, located, chosen, unencodable)

    def _locate(self, texts: Sequence[_Text]) -> list[tuple[Int32, list[Boundary]]]:
        """Return the ids of each text, and the boundaries of its turns."""
        plain = [n for n, text in enumerate(texts) if not text.guarded]
        guarded = [n for n, text in enumerate(texts) if text.guarded]
        encoded: dict[int, EncodedText] = {}
        ids, offsets = self._encoder.encode([texts[n].content.decode() for n in plain])
        for i, n in enumerate(plain):
            text_ids = ids[offsets[i] : offsets[i + 1]]
            encoded[n] = EncodedText(text=texts[n].content, ids=text_ids, turns=texts[n].turns_to_locate)
        boundaries = dict(zip(plain, self._boundaries.find([encoded[n] for n in plain]), strict=True))
        if guarded:
            aliases, aliased_boundaries = self._aliased
            for n in guarded:
                encoded[n] = _aliased_text(texts[n], aliases)
                (boundaries[n],) = aliased_boundaries.find([encoded[n]])
        return [(encoded[n].ids, boundaries[n]) for n in range(len(texts))]

    def _locate_one_by_one(
        self, texts: Sequence[_Text], unencodable: dict[int, str]
    ) -> list[tuple[Int32, list[Boundary]]]:
        """Like :meth:`_locate`, if the tokenizer fails on a text, on a prompt in it, or on a separate completion."""
        located: list[tuple[Int32, list[Boundary]]] = []
        for n, text in enumerate(texts):
            try:
                located += self._locate([text])
            except UnencodableTextsError as error:
                unencodable[n] = next(iter(error.reasons.values()))
                located.append(_empty_result(text))
        return located

    @cached_property
    def _aliased(self) -> tuple[Aliases, BoundaryFinder]:
        aliases = Aliases(self._json, self._model.control, self._model.added_tokens)
        anchors = Anchors(aliases.added_tokens, self._model.vocab_size, normalizes=self._normalizes)
        return aliases, BoundaryFinder(aliases, cache(aliases.continuing), anchors, self._model.stop_ids)

    @cached_property
    def _prefix_and_suffix(self) -> tuple[Int32, Int32]:
        return prefix_and_suffix_ids(self._json)


def _empty_result(text: _Text) -> tuple[Int32, list[Boundary]]:
    """Return no ids, and empty boundaries for every turn."""
    return np.zeros(0, np.int32), [Boundary(prompt_tokens=0, completion_tokens=0)] * len(text.turns)


def _texts(turns: TurnBatch) -> list[_Text]:
    """Split a batch into texts; turns and guarded ranges must be in the order of their texts."""
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
        for n, (start, stop) in enumerate(itertools.pairwise(offsets.tolist()))
    ]


def _aliased_text(text: _Text, aliases: Aliases) -> EncodedText:
    aliased, moved = aliases.replace(text.content, text.guarded)
    ids, _ = aliases.encode([aliased.decode()])
    return EncodedText(text=aliased, ids=ids, turns=tuple([(moved(a), moved(b)) for a, b in text.turns_to_locate]))


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


def _merged(turns: TurnBatch, located: LocatedTexts, remaining: TokenBatch | None) -> TokenBatch:
    """Join located texts with the sequences of the remaining ones, with turns in the order of the batch."""
    number = np.full(len(turns.raw), -1, np.int64)
    number[located.text] = np.arange(len(located.text))
    sequence = number[turns.turn_text]
    ids, offsets, sequence_text = located.ids, located.offsets, located.text
    prompt, completion, merged = located.prompt_tokens, located.completion_tokens, np.zeros(len(sequence), np.bool_)
    if remaining is not None:
        rest = np.flatnonzero(sequence < 0)
        sequence[rest] = remaining.turn_sequence + len(located.text)
        prompt[rest], completion[rest] = remaining.prompt_tokens, remaining.completion_tokens
        merged[rest] = remaining.merged
        ids = np.concatenate([ids, remaining.ids])
        offsets = np.concatenate([offsets, remaining.offsets[1:] + offsets[-1]])
        sequence_text = np.concatenate([sequence_text, remaining.sequence_text])
    return TokenBatch(
        ids=ids,
        offsets=offsets,
        sequence_text=sequence_text.astype(np.int32),
        turn_sequence=sequence.astype(np.int32),
        prompt_tokens=prompt,
        completion_tokens=completion,
        merged=merged,
        unencodable=() if remaining is None else remaining.unencodable,
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


def _token_batch(
    texts: Sequence[_Text],
    located: Sequence[tuple[Int32, list[Boundary]]],
    chosen: Int64,
    unencodable: Mapping[int, str],
) -> TokenBatch:
    """Put sequences together: one for each text, and one for each turn that needs a separate one.

    `chosen` are the indices of the texts in their batch.
    """
    sequences: list[Int32] = []
    owners: list[int] = []
    turns: list[tuple[int, int, int, bool]] = []
    for n, (text, (whole, found)) in enumerate(zip(texts, located, strict=True)):
        sequences.append(whole)
        owners.append(n)
        own = len(sequences) - 1
        throughout = [Boundary(prompt_tokens=0, completion_tokens=len(whole))]
        for each in found if text.turns_to_locate else throughout:
            if each.ids is not None:
                sequences.append(each.ids)
                owners.append(n)
            sequence = own if each.ids is None else len(sequences) - 1
            turns.append((sequence, each.prompt_tokens, each.completion_tokens, each.merged))
    sequence_of, prompt, completion, merged = zip(*turns, strict=True) if turns else ([], [], [], [])
    return TokenBatch(
        ids=np.concatenate([np.zeros(0, np.int32), *sequences]),
        offsets=offsets_of([*map(len, sequences)]),
        sequence_text=chosen[owners].astype(np.int32),
        turn_sequence=np.array(sequence_of, np.int32),
        prompt_tokens=np.array(prompt, np.int64),
        completion_tokens=np.array(completion, np.int64),
        merged=np.array(merged, np.bool_),
        unencodable=tuple((int(chosen[n]), reason) for n, reason in unencodable.items()),
    )
