"""The fast encoder: `gigatoken`, many times as fast as `tokenizers`, but checked against it.

Only the reference defines the ids of a text. So a tokenizer is tried before it is used (:func:`differences`:
every vocabulary entry, every added token in several places, texts designed to be hard); while it is used, one text in
``CHECK_EVERY`` is also encoded by the reference (:func:`compare`); and a document that fails its proof is encoded
again. If the two differ, :class:`EngineDiffersError` is raised, and a build starts over with the reference.

A text the fast encoder fails on is left to the reference, which encodes it or fails on it.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from packer.batches import Int32, Int64
from packer.errors import PackerError
from packer.layout import offsets_of
from packer.model.backend import FastLoadError, definition_of, load_backend, load_fast_backend
from packer.model.token_bytes import inserts_space
from packer.tokenize.reference_encoder import ReferenceEncoder, UnencodableTextsError, is_text_error

CHECK_EVERY = 64
"""One text in this many is encoded twice."""

_MUCH = 2**16
_SHARE = 32
"""More than so many characters to be compared, of one call, are not left to another process if they are more than one
in 32 of all: with long documents a single process would compare as long as several others encode."""

_ANEW_AFTER = 2**27
"""Characters after which the library's encoder is loaded anew, in a fraction of a second: it remembers every word it
has ever encoded, which takes some 65 bytes a word, without a limit."""

_TRIAL_BATCH = 512
"""Texts tried in one call; few enough that most calls have none with a token that might stand between texts."""

_MOST_SEPARATORS = 4
"""Added tokens of which one is put between texts: the first that none of them has."""


class EngineDiffersError(PackerError):
    """The fast encoder cannot be used for a tokenizer, or its ids differ from the reference's."""

    exit_code = 70
    code = "engine_differs"


class ReferenceFailsError(EngineDiffersError):
    """The reference fails on a text that the fast encoder encodes; of other texts, this says nothing."""


class Sampled(NamedTuple):
    """A text to be encoded by the reference, too."""

    text: str
    ids: Int32
    """What the fast encoder made of it."""


class _Backend(NamedTuple):
    """What encodes, and how it may be asked."""

    encoder: Any
    separators: Sequence[tuple[str, int]] = ()
    """Text and id of tokens at which it splits a text, so that the ids on one side do not depend on the other side."""


Check: TypeAlias = Callable[[Sequence[Sampled]], None]


def compare(tokenizer_json: bytes, sampled: Sequence[Sampled]) -> None:
    """Compare ids of the fast encoder with those of the reference.

    Raises:
        EngineDiffersError: they differ.
        ReferenceFailsError: the reference fails on a text.
    """
    try:
        expected, bounds = ReferenceEncoder(tokenizer_json).encode([each.text for each in sampled])
    except UnencodableTextsError as error:
        reason = next(iter(error.reasons.values()))
        raise ReferenceFailsError(f"the fast engine encodes a text on which tokenizers fails: {reason}") from None
    for number, (text, ids) in enumerate(sampled):
        if not np.array_equal(ids, expected[bounds[number] : bounds[number + 1]]):
            size = len(text.encode())
            raise EngineDiffersError(f"the fast engine gives other ids than tokenizers for a text of {size} bytes")


class FastEncoder:
    """Encodes with `gigatoken`, and has one text in ``CHECK_EVERY`` compared with the reference.

    Args:
        tokenizer_json: content of the file.
        check: receives these texts, unless they are much of all; by default, they are compared at once. The reference
            is not loaded without need.

    Raises:
        EngineDiffersError: `gigatoken` does not load this tokenizer; from `encode`, whatever `check` raises.
    """

    def __init__(self, tokenizer_json: bytes, *, check: Check | None = None) -> None:
        self._json = tokenizer_json
        self._check = check or partial(compare, tokenizer_json)
        self._backend = _load(tokenizer_json)
        self._num_encoded = self._num_characters = 0

    @cached_property
    def _reference(self) -> ReferenceEncoder:
        return ReferenceEncoder(self._json)

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
        """Return the ids of all texts concatenated, and their offsets.  # int32[K], int64[N + 1]"""
        if not texts:
            return np.zeros(0, np.int32), np.zeros(1, np.int64)
        found = self._encode(texts)
        if found is None:
            return self._reference.encode(texts)
        ids, offsets = found
        # The first text of every call, and every CHECK_EVERY-th of all.
        chosen = range(-self._num_encoded % CHECK_EVERY, len(texts), CHECK_EVERY)
        self._num_encoded += len(texts)
        sampled = [Sampled(texts[i], ids[offsets[i] : offsets[i + 1]].copy()) for i in sorted({0, *chosen})]
        num_characters = sum(len(each.text) for each in sampled)
        if num_characters > _MUCH and num_characters * _SHARE > sum(map(len, texts)):
            compare(self._json, sampled)
        else:
            self._check(sampled)
        return ids, offsets

    def _encode(self, texts: Sequence[str]) -> tuple[Int32, Int64] | None:
        """Return ids and offsets; None if the texts are for the reference."""
        if self._num_characters > _ANEW_AFTER:
            self._backend, self._num_characters = _load(self._json, anew=True), 0
        self._num_characters += sum(map(len, texts))
        try:
            return _encode(self._backend, texts)
        except BaseException as error:
            if not is_text_error(error):
                raise
            return None

    def confirm(self, texts: Sequence[str]) -> None:
        """Encode texts both ways.

        Raises:
            EngineDiffersError: the ids differ.
        """
        found = self._encode(texts) if texts else None
        if found is not None:
            ids, offsets = found
            compare(self._json, [Sampled(text, ids[offsets[i] : offsets[i + 1]]) for i, text in enumerate(texts)])


def differences(tokenizer_json: bytes) -> str | None:
    """Try the fast encoder on a tokenizer: return the first difference found, or None.

    It is tried on every entry of the vocabulary as text, every added token in several places, and texts of hard
    characters: white space of all kinds, combining marks, joined emoji, letters whose case changes length, partial
    words.
    """
    reference = ReferenceEncoder(tokenizer_json)
    try:
        backend = _load(tokenizer_json)
    except EngineDiffersError as error:
        return error.message
    texts = _trial_texts(tokenizer_json)
    while batch := list(islice(texts, _TRIAL_BATCH)):
        try:
            ids, offsets = _encode(backend, batch)
            expected, bounds = reference.encode(batch)
        except BaseException as error:
            if not is_text_error(error):
                raise
            return f"an encoder fails on a text it is tried on: {str(error)[:200]}"
        if np.array_equal(ids, expected) and np.array_equal(offsets, bounds):
            continue
        wrong = next(
            text
            for i, text in enumerate(batch)
            if not np.array_equal(ids[offsets[i] : offsets[i + 1]], expected[bounds[i] : bounds[i + 1]])
        )
        return f"gigatoken gives other ids than tokenizers for the text {wrong!r}"
    return None


def _load(tokenizer_json: bytes, *, anew: bool = False) -> _Backend:
    try:
        encoder = load_fast_backend(tokenizer_json, anew=anew)
    except FastLoadError as error:
        raise EngineDiffersError(str(error)) from None
    return _Backend(encoder, _separators(tokenizer_json))


def _separators(tokenizer_json: bytes) -> Sequence[tuple[str, int]]:
    """Return special tokens that may stand between texts, first those that were added last, which few texts have."""
    definition = definition_of(tokenizer_json)
    if inserts_space(definition):  # at the start of a text, perhaps, and not behind a token
        return ()
    tokens = [
        (token["content"], token["id"])
        for token in definition.get("added_tokens") or ()
        if token.get("special") and not any(map(token.get, ("normalized", "lstrip", "rstrip")))
        if re.fullmatch(r"\W(?:.*\W)?", token["content"], re.DOTALL)  # beside it, a word is a `single_word`
    ]
    return tokens[: -_MOST_SEPARATORS - 1 : -1]


def _encode(backend: _Backend, texts: Sequence[str]) -> tuple[Int32, Int64]:
    """Return flat ids and offsets, from one call with a token between the texts: one for each takes twice the time.

    The library's own call for several imports `awkward`, which takes longer than many builds encode. No deadline is
    needed: it runs no regular expressions of a tokenizer.
    """
    for content, token_id in backend.separators:
        joined = content.join(texts)
        if joined.count(content) == len(texts) - 1:  # no text has it
            ids = backend.encoder.encode(joined).view(np.int32)
            places = np.flatnonzero(ids == token_id)
            if len(places) == len(texts) - 1:  # nor has a longer token swallowed one
                return np.delete(ids, places), offsets_of(np.diff(places, prepend=-1, append=len(ids)) - 1)
    each = [backend.encoder.encode(text) for text in texts]
    return np.concatenate(each).astype(np.int32), offsets_of([*map(len, each)])


_DIFFICULT_CHARACTERS = (
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    " ",
    " \t\n\r\v\f\u0085\u00a0\u2003\u2028\u3000",
    "!?.,;:'\"()[]{}<>|/\\@#$%^&*-_=+~`",
    "äöüßéèñçøåÆŁđ",
    "дождьΑθήνα",
    "日本語漢字かなカナ한국어",
    "العربيةעברית٣४",
    "🎉👩\u200d👧🇰🇷☂\ufe0f",
    "\u0301\u0308\u0330\u1ab0\u200b\u200d\ufe0f",
    "\ud7ff\ue000\ufffd\uffff\U0010ffff\x00\x7f",
    "ǅﬁſİıKÅ½Ⅷ①",
    "▁Ġ",
)
"""Characters by kind; a trial combines runs of several kinds."""

_RUNS_PER_TEXT = (8,) * 6000 + (120,) * 200
"""Maximum number of runs in each hard text that a tokenizer is tried on."""

_CONTRACTIONS = ("'s", "'S", "'ll", "n't", "'Re", "…", "--", "\r\n\r\n", "  \n", "http://a.b/c?d=e", "x" * 70)


def _trial_texts(tokenizer_json: bytes) -> Iterator[str]:
    definition, backend = definition_of(tokenizer_json), load_backend(tokenizer_json)
    for token_id in range(backend.get_vocab_size(with_added_tokens=True)):
        text = backend.decode([token_id], skip_special_tokens=False)
        if text:
            yield text
    added = [token["content"] for token in definition.get("added_tokens") or () if token["content"]]
    for content in added:
        yield from (
            content,
            f"a{content}b",
            f" {content} ",
            f"\n{content}\n\n",
            content * 2,
            content[:-1],
            f"{content}  x",
        )
    # A fixed seed: the same trials on every machine.
    rng = random.Random(20_260_101)  # noqa: S311 - no secret
    for size in _RUNS_PER_TEXT:
        yield "".join(_random_run(rng, added) for _ in range(rng.randint(1, size)))


def _random_run(rng: random.Random, added: Sequence[str]) -> str:
    draw = rng.random()
    if draw < 0.05 and added:
        return rng.choice(added)
    if draw < 0.15:
        return rng.choice(_CONTRACTIONS)
    return "".join(rng.choices(rng.choice(_DIFFICULT_CHARACTERS), k=rng.randint(1, 6)))
