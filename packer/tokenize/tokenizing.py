"""The tokenize stage: turns a TurnBatch into a TokenBatch.

Most texts of a batch are located in one pass (:class:`VectorizedBoundaries`). If ids spell a text byte for byte
(`TokenBytes.spell`, which leaves out the spaces that a tokenizer inserts), each byte belongs to a known id, and so do
the ends of prompts and completions. An added token whose id no merge produces (`TokenBytes.is_whole`) was extracted
from the raw text before anything else, so it is an anchor, and the ids up to its end do not depend on what follows. So
the ids of a prompt alone are those of the text up to its last anchor, followed by those of the rest encoded alone.

Texts for which this is inconclusive are left to :mod:`packer.tokenize.one_by_one`: ids that decode to other bytes, a
boundary inside a token, a completion that does not end with an anchor, a prompt whose ids the text does not continue,
control tokens that a person typed.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer.batches import Bool, Int32, Int64, TokenBatch, TurnBatch
from packer.layout import offsets_of, taken_ranges
from packer.model.model import TOKENIZER_FILE, Model
from packer.model.token_bytes import TokenBytes
from packer.tokenize.one_by_one import OneByOne
from packer.tokenize.reference_encoder import (
    Anchors,
    Encoder,
    UnencodableTextsError,
    normalized_control,
    normalizes,
    prefix_and_suffix_ids,
)

_MANY_TEXTS = 64
"""Texts of a batch after which it is clear that the vectorized pass suits none."""


class TurnTokenizer:
    """The tokenize stage for one model."""

    def __init__(self, model: Model, encoder: Encoder) -> None:
        self._model = model
        self._json = model.files[TOKENIZER_FILE]
        self._encoder = encoder
        self._anchors = Anchors(model.added_tokens, model.vocab_size, normalizes=normalizes(self._json))
        self._vectorized = VectorizedBoundaries(encoder, TokenBytes(model), self._anchors.is_anchor)
        self._may_forge = bool(normalized_control(model))
        """Whether ordinary text may turn into a control token, so that each text is looked at by itself."""

        self._is_vectorized = True
        """Whether to try the vectorized pass: it suits no text at all of tokenizers whose added tokens take white space
        with them, such as Phi-3's."""

    @cached_property
    def _one_by_one(self) -> OneByOne:
        return OneByOne(self._model, self._encoder, self._anchors)

    def tokenize(self, turns: TurnBatch) -> TokenBatch:
        """Encode every text once and locate every turn; a text the tokenizer fails on gets no ids, but a reason."""
        located = self._locate_vectorized(turns)
        remaining = np.arange(len(turns.raw))
        if located is not None:
            remaining = np.setdiff1d(remaining, located.sequence_text, assume_unique=True)
        if located is None or len(remaining):
            one_by_one = self._one_by_one.tokenize(turns, remaining)
            located = one_by_one if located is None else _joined(turns, located, one_by_one)
        return _framed(turns, located, *self._prefix_and_suffix) if turns.raw.any() else located

    def _locate_vectorized(self, turns: TurnBatch) -> TokenBatch | None:
        """Locate all turns of the texts for which one vectorized pass suffices; None if there are none."""
        if self._may_forge or not len(turns.raw):
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

    @cached_property
    def _prefix_and_suffix(self) -> tuple[Int32, Int32]:
        return prefix_and_suffix_ids(self._json)


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
