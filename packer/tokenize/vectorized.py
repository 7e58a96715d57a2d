"""Ids and boundaries of a whole batch of texts in one vectorized pass.

The rule is that of :mod:`packer.tokenize.boundaries`. If ids spell a text byte for byte (`TokenBytes.spell`, which
leaves out the spaces that a tokenizer inserts), each byte belongs to a known id, and so do the ends of prompts and
completions. An added token whose id no merge produces (`TokenBytes.is_whole`) was extracted from the raw text before
anything else, so it is an anchor, and the ids up to its end do not depend on what follows. So the ids of a prompt alone
are those of the text up to its last anchor, followed by those of the rest encoded alone.

Texts for which this is inconclusive are left to the slower path: ids that decode to other bytes, a boundary inside a
token, a completion that does not end with an anchor, a prompt whose ids the text does not continue.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from packer.batches import Bool, Int32, Int64, TurnBatch
from packer.layout import offsets_of, taken_ranges
from packer.model.token_bytes import TokenBytes
from packer.tokenize.reference_encoder import Encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedTexts:
    """Ids of some texts of a batch, and the positions of their turns. N texts, T turns of the batch."""

    ids: Int32  # [K]
    offsets: Int64  # [N + 1]
    text: Int64  # [N] index of the text in the batch, ascending
    prompt_tokens: Int64  # [T] only for turns of these texts
    completion_tokens: Int64  # [T] only for turns of these texts


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


class VectorizedBoundaries:
    """Locates turns in texts under one tokenizer; `is_anchor`: which ids are anchors, bool[vocabulary]."""

    def __init__(self, encoder: Encoder, token_bytes: TokenBytes, is_anchor: Bool) -> None:
        self._encoder = encoder
        self._token_bytes = token_bytes
        self._is_anchor: Bool = is_anchor & token_bytes.is_whole
        self._tails = _Tails(encoder)

    def locate(self, turns: TurnBatch, candidates: Int64) -> LocatedTexts:
        """Encode some texts of a batch (their indices, ascending), and locate the turns where that is possible.

        Raises:
            UnencodableTextsError: the tokenizer fails on some of them, or on a prompt.
        """
        starts, stops = turns.text_offsets[candidates], turns.text_offsets[candidates + 1]
        ids, offsets = self._encoder.encode(decoded_pieces(turns.text, starts, stops))
        spelling = self._token_bytes.spell(ids, offsets)
        exact = spelling.begins(turns.text, starts, stops) & (np.diff(spelling.bounds) == stops - starts)
        exact &= _minimum_per_text(self._token_bytes.num_bytes[ids], offsets) > 0
        positions = _TurnPositions(turns, candidates, offsets, spelling.ends, exact)
        verified = self._are_verified(turns, ids, positions)
        chosen = np.flatnonzero(verified)
        whole = len(chosen) == len(candidates)
        lengths = np.diff(offsets)[chosen]
        return LocatedTexts(
            ids=ids if whole else taken_ranges(ids, offsets[:-1][chosen], lengths),
            offsets=offsets if whole else offsets_of(lengths),
            text=candidates[chosen],
            prompt_tokens=positions.prompt - positions.first,
            completion_tokens=positions.completion - positions.first,
        )

    def _are_verified(self, turns: TurnBatch, ids: Int32, positions: "_TurnPositions") -> Bool:
        """Whether all turns of each text are known to be located correctly.  # bool[N]"""
        verified = positions.exact
        anchors = self._is_anchor[ids]
        turn = positions.turn
        last = np.maximum.accumulate(np.where(anchors, np.arange(len(ids)), -1)) if len(ids) else np.zeros(0, np.int64)
        prompt, completion = positions.prompt[turn], positions.completion[turn]
        begin = np.maximum(last[np.maximum(prompt, 1) - 1], positions.first[turn]) if len(ids) else prompt
        closed = (prompt < completion) & anchors[np.maximum(completion, 1) - 1] if len(ids) else prompt < completion
        tails = [
            turns.text[a:b]
            for a, b in zip(
                positions.byte_of(begin, turn).tolist(), positions.byte_of(prompt, turn).tolist(), strict=True
            )
        ]
        closed &= self._tails_match(ids, begin, prompt, tails)
        verified[positions.text_of[turn[~closed]]] = False
        return verified

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


class _TurnPositions:
    """Positions of the turns of some texts, in tokens of all these texts concatenated."""

    def __init__(self, turns: TurnBatch, candidates: Int64, offsets: Int64, ends: Int64, exact: Bool) -> None:
        """`exact`: texts whose bytes determine tokens; narrowed here to those without a boundary inside a token."""
        number = np.full(len(turns.text_offsets) - 1, -1, np.int64)
        number[candidates] = np.arange(len(candidates))
        self.text_of = number[turns.turn_text]  # [T] -1 for turns of other texts
        """For each turn of the batch, its text's index among the candidates."""
        turn = np.flatnonzero(self.text_of >= 0)
        turn = turn[exact[self.text_of[turn]]]
        text = self.text_of[turn]
        self.first = np.zeros(len(turns.turn_text), np.int64)
        self.first[turn] = offsets[text]
        begin = ends[offsets[text]]
        prompt_bytes, completion_bytes = begin + turns.prompt_end[turn], begin + turns.completion_end[turn]
        # An id without bytes shares its position with the next one; skip those at the end of the text before.
        prompt = np.maximum(np.searchsorted(ends, prompt_bytes), offsets[text])
        completion = np.maximum(np.searchsorted(ends, completion_bytes), offsets[text])
        on_boundary = (ends[prompt] == prompt_bytes) & (ends[completion] == completion_bytes)
        self.exact = exact.copy()
        self.exact[text[~on_boundary]] = False
        self.prompt = np.zeros(len(turns.turn_text), np.int64)
        self.completion = np.zeros(len(turns.turn_text), np.int64)
        self.prompt[turn], self.completion[turn] = prompt, completion
        self.turn = turn[self.exact[text]]
        """Turns that are located, ascending."""

        self._ends = ends
        self._shift = np.zeros(len(turns.turn_text), np.int64)  # from bytes of these texts to bytes of the batch
        self._shift[turn] = turns.text_offsets[turns.turn_text[turn]] - begin

    def byte_of(self, token: Int64, turn: Int64) -> Int64:
        """Return where a token of a turn's text begins, in bytes of the batch."""
        return self._ends[token] + self._shift[turn]
