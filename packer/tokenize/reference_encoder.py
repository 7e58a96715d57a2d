"""The reference encoder: Hugging Face `tokenizers`, which defines the ids of a text.

`encode` never adds the tokenizer's own special tokens: a BOS is present if and only if the text contains it.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Protocol

import msgspec
import numpy as np
from tokenizers import Encoding

from packer.batches import Bool, Int32, Int64
from packer.errors import InputError, PackerError
from packer.host.files import is_panic, out_of
from packer.host.watchdog import bounded
from packer.layout import offsets_of
from packer.literals import longest_of
from packer.model.backend import NO_ID, definition_of, load_backend, load_part, vocabulary_of
from packer.model.model import TOKENIZER_FILE, AddedToken, Model

_BATCH_CHARACTERS = 1_000_000
"""Bounds the memory of a batch: encoding objects take some 50 bytes per token."""

_GRACE_S, _MIN_CHARACTERS_PER_S = 60.0, 10_000
"""A regular expression of a tokenizer can take for ever; the slowest tokenizers are a hundred times as fast as this."""


class UnencodableTextsError(Exception):
    """The tokenizer fails on some texts of a batch. The others can be encoded in another call without these."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        number, first = next(iter(reasons.items()))
        super().__init__(f"the tokenizer fails on {len(reasons)} texts; on text {number}: {first}")
        self.reasons = dict(reasons)
        """Index in the batch → the tokenizer's message; in the order of the texts."""


class Encoder(Protocol):
    """The interface of every engine."""

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
        """Return the ids of all texts concatenated, and their offsets.  # int32[K], int64[N + 1]

        Raises:
            UnencodableTextsError: the tokenizer fails on some of them, always the same ones.
        """
        ...


class ReferenceEncoder:
    """Encodes any tokenizer's texts with `tokenizers`."""

    version = version("tokenizers")

    def __init__(self, tokenizer_json: bytes) -> None:
        self._backend = load_backend(tokenizer_json)

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
        parts: list[Int32] = []
        reasons: dict[int, str] = {}
        for start, stop in _slices(texts):
            try:
                encodings = self._encodings(texts[start:stop])
            except BaseException as error:
                if not is_text_error(error):
                    raise
                parts += self._encode_one_by_one(texts, start, stop, reasons)
            else:
                parts += [np.array(encoding.ids, np.int32) for encoding in encodings]
        if reasons:
            raise UnencodableTextsError(reasons)
        return np.concatenate([np.zeros(0, np.int32), *parts]), offsets_of([*map(len, parts)])

    def _encode_one_by_one(self, texts: Sequence[str], start: int, stop: int, reasons: dict[int, str]) -> list[Int32]:
        """Encode texts individually, as a batch fails as a whole; add the texts that fail to `reasons`."""
        parts = []
        for i in range(start, stop):
            try:
                parts.append(np.array(self._encoding(texts[i]).ids, np.int32))
            except BaseException as error:
                if not is_text_error(error):
                    raise
                reasons[i] = _without_quoted_text(error)
        return parts

    def _encoding(self, text: str) -> Encoding:
        try:
            return self._encodings([text])[0]
        except BaseException as error:
            if not is_text_error(error):
                raise
        return self._backend.encode(text, add_special_tokens=False)  # without the threads that a batch may start

    def _encodings(self, texts: Sequence[str]) -> list[Encoding]:
        with bounded(seconds=_GRACE_S + sum(map(len, texts)) / _MIN_CHARACTERS_PER_S):
            encodings: list[Encoding] = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return encodings


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


def normalizes(tokenizer_json: bytes) -> bool:
    """Whether a tokenizer has a normalizer."""
    return definition_of(tokenizer_json).get("normalizer") is not None


def normalized_control(model: Model) -> list[AddedToken]:
    """Return the control tokens that are matched in normalized text, so that ordinary text may turn into one."""
    if not normalizes(model.files[TOKENIZER_FILE]):
        return []
    return [token for token in model.added_tokens if token.normalized and token.content in model.control]


def prefix_and_suffix_ids(tokenizer_json: bytes) -> tuple[Int32, Int32]:
    """Return the ids a tokenizer itself puts before and after a plain text (BOS, sometimes EOS)."""
    processed, definition = load_part(tokenizer_json, "post_processor"), definition_of(tokenizer_json)
    full = processed.encode("a").ids
    known = {*vocabulary_of(definition).values(), *(token["id"] for token in definition.get("added_tokens") or ())}
    unknown = [token_id for token_id in full if token_id != NO_ID and token_id not in known]
    if unknown:
        raise InputError(
            f"the tokenizer's post-processor writes the id {unknown[0]}, which is not in its vocabulary",
            hint="completion and text rows need its special tokens; chat rows can do without",
        )
    if full.count(NO_ID) != 1:
        raise InputError(
            "the tokenizer's post-processor does not leave a text as it is between its special tokens",
            hint="completion and text rows need one that only adds ids before and after; chat rows can do without",
        )
    place = full.index(NO_ID)
    return np.array(full[:place], np.int32), np.array(full[place + 1 :], np.int32)


def is_text_error(error: BaseException) -> bool:
    """Whether the error is caused by the content of a text, unlike running out of memory or Ctrl-C."""
    if out_of(error) is not None:
        return False
    return is_panic(error) or (isinstance(error, Exception) and not isinstance(error, PackerError))


def _without_quoted_text(error: BaseException) -> str:
    """Return the error's message without the text that Rust's slicing errors quote at the end."""
    return re.sub(r"( of| slicing) `.*", r"\1", str(error), flags=re.DOTALL)[:200]


def without_start_effects(tokenizer_json: bytes) -> bytes:
    """Return the tokenizer without the effects it has only on the start of a text: a dummy space before the first word.

    Used for a completion that is encoded separately from its prompt, and so is not the start of a text. A tokenizer
    without such effects is returned as it is.
    """
    definition = definition_of(tokenizer_json)
    changed = {name: _without_prefix(definition.get(name)) for name in ("normalizer", "pre_tokenizer")}
    if all(definition.get(name) == part for name, part in changed.items()):
        return tokenizer_json
    return msgspec.json.encode({**definition, **changed})


def _without_prefix(component: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a component without what puts a space before the first word; None if it does nothing else."""
    if component is None or component.get("type") == "Prepend":
        return None
    for name in ("normalizers", "pretokenizers"):
        if isinstance(members := component.get(name), list):
            return {**component, name: [kept for kept in map(_without_prefix, members) if kept is not None]}
    changed = dict(component)
    if changed.get("type") == "Metaspace":
        changed["prepend_scheme"] = "never"
        changed.pop("add_prefix_space", None)
    if "add_prefix_space" in changed:
        changed["add_prefix_space"] = False
    return changed


def _slices(texts: Sequence[str]) -> Iterable[tuple[int, int]]:
    """Return consecutive ranges of texts of about `_BATCH_CHARACTERS` each."""
    number = np.cumsum([*map(len, texts)], dtype=np.int64) // _BATCH_CHARACTERS
    starts = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
    return itertools.pairwise([*starts, len(texts)])
