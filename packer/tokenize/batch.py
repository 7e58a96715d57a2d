"""A TurnBatch becomes a TokenBatch."""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from packer.batches import Int32, Int64, TokenBatch, TurnBatch
from packer.model import TOKENIZER_FILE, Model
from packer.tokenize.anchors import Anchors
from packer.tokenize.borders import Border, Borders, EncodedText
from packer.tokenize.guard import Aliases
from packer.tokenize.reference import Encoder, ReferenceEncoder, UnencodableTextsError, without_start_effects


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    content: bytes
    raw: bool
    turns: tuple[tuple[int, int], ...]
    guarded: tuple[tuple[int, int], ...]

    @property
    def prompted(self) -> tuple[tuple[int, int], ...]:
        """The turns whose border is to be found; a raw text without a prompt is trained throughout."""
        return () if self.raw and self.turns[0][0] == 0 else self.turns


class _AliasEncoder:
    """An encoder of the aliased copy that answers in the tokenizer's own ids."""

    name, version = ReferenceEncoder.name, ReferenceEncoder.version

    def __init__(self, encoder: Encoder, aliases: Aliases) -> None:
        self._encoder, self._aliases = encoder, aliases

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
        ids, offsets = self._encoder.encode(texts)
        return self._aliases.original(ids), offsets

    def confirm(self, texts: Sequence[str]) -> None:
        self._encoder.confirm(texts)


class Tokenizing:
    """The tokenize stage for one model."""

    def __init__(self, model: Model, encoder: Encoder) -> None:
        self._model = model
        self._json = model.files[TOKENIZER_FILE]
        self._encoder = encoder
        self._normalizes = json.loads(self._json).get("normalizer") is not None
        anchors = Anchors(model.added_tokens, model.vocab_size, normalizes=self._normalizes)
        apart = cache(lambda: ReferenceEncoder(without_start_effects(self._json)))
        self._borders = Borders(encoder, apart, anchors, model.stop_ids)
        self._forgeable = _Forgeable(model) if self._normalizes else None

    def tokenize(self, turns: TurnBatch) -> TokenBatch:
        """Encode every text once and place every turn; a text the tokenizer fails on has no ids, but a reason."""
        texts = _texts(turns)
        unencodable: dict[int, str] = {}
        try:
            placed = self._place(texts)
        except UnencodableTextsError:
            placed = self._place_one_by_one(texts, unencodable)
        for n, (text, (whole, _)) in enumerate(zip(texts, placed, strict=True)):
            if self._forgeable is not None and n not in unencodable and self._forgeable.is_forged(text, whole):
                unencodable[n] = "it normalizes ordinary text to a control token"
                placed[n] = _nothing(text)
        sequences = _Sequences()
        for n, (text, (whole, found)) in enumerate(zip(texts, placed, strict=True)):
            if text.raw and n not in unencodable:
                sequences.add(n, *self._with_own_special_tokens(text, whole, found))
            else:
                sequences.add(n, whole, found)
        return sequences.batch(unencodable)

    def _place(self, texts: Sequence[_Text]) -> list[tuple[Int32, list[Border]]]:
        """Ids of each text, and the borders of its turns."""
        plain = [n for n, text in enumerate(texts) if not text.guarded]
        guarded = [n for n, text in enumerate(texts) if text.guarded]
        encoded: dict[int, EncodedText] = {}
        ids, offsets = self._encoder.encode([texts[n].content.decode() for n in plain])
        for i, n in enumerate(plain):
            own = ids[offsets[i] : offsets[i + 1]]
            encoded[n] = EncodedText(text=texts[n].content, ids=own, turns=texts[n].prompted)
        borders = dict(zip(plain, self._borders.find([encoded[n] for n in plain]), strict=True))
        if guarded:
            aliases, encoder, aliased_borders = self._aliased
            for n in guarded:
                encoded[n] = _aliased_text(texts[n], aliases, encoder)
                (borders[n],) = aliased_borders.find([encoded[n]])
        return [(encoded[n].ids, borders[n]) for n in range(len(texts))]

    def _place_one_by_one(
        self, texts: Sequence[_Text], unencodable: dict[int, str]
    ) -> list[tuple[Int32, list[Border]]]:
        """As :meth:`_place`; the tokenizer may fail on a text, on a prompt in it, or on a completion by itself."""
        placed: list[tuple[Int32, list[Border]]] = []
        for n, text in enumerate(texts):
            try:
                placed += self._place([text])
            except UnencodableTextsError as error:
                unencodable[n] = next(iter(error.reasons.values()))
                placed.append(_nothing(text))
        return placed

    @cached_property
    def _aliased(self) -> tuple[Aliases, Encoder, Borders]:
        aliases = Aliases(self._json, self._model.control, self._model.added_tokens)
        encoder = _AliasEncoder(ReferenceEncoder(aliases.tokenizer_json), aliases)
        apart = cache(lambda: _AliasEncoder(ReferenceEncoder(without_start_effects(aliases.tokenizer_json)), aliases))
        anchors = Anchors(aliases.added_tokens, self._model.vocab_size, normalizes=self._normalizes)
        return aliases, encoder, Borders(encoder, apart, anchors, self._model.stop_ids)

    @cached_property
    def _own_special_tokens(self) -> tuple[Int32, Int32]:
        return ReferenceEncoder(self._json).own_special_tokens()

    def _with_own_special_tokens(
        self, text: _Text, ids: Int32, borders: Sequence[Border]
    ) -> tuple[Int32, list[Border]]:
        """A plain text or completion as the tokenizer itself would open and close it; an EOS is not doubled."""
        prefix, suffix = self._own_special_tokens
        closed = len(ids) > 0 and len(suffix) > 0 and ids[-1] == suffix[-1]
        whole = np.concatenate([prefix, ids, suffix[:0] if closed else suffix])
        shift = len(prefix)
        if not text.prompted:
            return whole, [Border(prompt_tokens=shift, completion_tokens=len(whole))]
        return whole, [
            Border(
                prompt_tokens=border.prompt_tokens + shift,
                completion_tokens=border.completion_tokens + shift,
                ids=None if border.ids is None else np.concatenate([prefix, border.ids]),
                merged=border.merged,
            )
            for border in borders
        ]


def _nothing(text: _Text) -> tuple[Int32, list[Border]]:
    """No ids, and turns without any."""
    return np.zeros(0, np.int32), [Border(prompt_tokens=0, completion_tokens=0)] * len(text.turns)


def _texts(turns: TurnBatch) -> list[_Text]:
    """The batch's texts one by one; turns and guarded ranges are in the order of their texts."""
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


def _aliased_text(text: _Text, aliases: Aliases, encoder: Encoder) -> EncodedText:
    prompted = text.prompted
    aliased, moved = aliases.replace(text.content, text.guarded, [position for pair in prompted for position in pair])
    ids, _ = encoder.encode([aliased.decode()])
    return EncodedText(text=aliased, ids=ids, turns=tuple(zip(moved[::2], moved[1::2], strict=True)))


class _Forgeable:
    """Control tokens that are looked for in normalized text, so that other text may become one."""

    def __init__(self, model: Model) -> None:
        tokens = [token for token in model.added_tokens if token.normalized and token.content in model.control]
        self._ids = np.array([token.id for token in tokens], np.int32)
        self._pattern = re.compile(b"|".join(re.escape(token.content.encode()) for token in tokens))

    def is_forged(self, text: _Text, ids: Int32) -> bool:
        """Whether the ids hold more of them than the text does outside what a person typed."""
        if not len(self._ids):
            return False
        written = [match.span() for match in self._pattern.finditer(text.content)]
        typed = sum(any(a <= start and end <= b for a, b in text.guarded) for start, end in written)
        return int(np.isin(ids, self._ids).sum()) > len(written) - typed


class _Sequences:
    """Sequences as they come, one for a text and one for each turn that needs its own."""

    def __init__(self) -> None:
        self._ids: list[Int32] = []
        self._text: list[int] = []
        self._turns: list[tuple[int, int, int, bool]] = []

    def add(self, text: int, ids: Int32, borders: Sequence[Border]) -> None:
        whole = len(self._ids)
        self._ids.append(ids)
        self._text.append(text)
        for border in borders:
            sequence = whole
            if border.ids is not None:
                sequence = len(self._ids)
                self._ids.append(border.ids)
                self._text.append(text)
            self._turns.append((sequence, border.prompt_tokens, border.completion_tokens, border.merged))

    def batch(self, unencodable: Mapping[int, str]) -> TokenBatch:
        sequence, prompt, completion, merged = zip(*self._turns, strict=True) if self._turns else ([], [], [], [])
        lengths = np.array([len(ids) for ids in self._ids], np.int64)
        return TokenBatch(
            ids=np.concatenate(self._ids) if self._ids else np.zeros(0, np.int32),
            offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
            sequence_text=np.array(self._text, np.int32),
            turn_sequence=np.array(sequence, np.int32),
            prompt_tokens=np.array(prompt, np.int64),
            completion_tokens=np.array(completion, np.int64),
            merged=np.array(merged, np.bool_),
            unencodable=tuple(unencodable.items()),
        )
