"""Token ids as text: the text of each token, from the bytes of the vocabulary, and runs that are trained or not.

A run cannot be decoded on its own: an id may be half a character, and some tokenizers write the first token of a text
without its leading space. So the texts of tokens are those of the whole document.
"""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Self, TypeAlias

import numpy as np

from packer.batches import Float32, Int32
from packer.errors import CheckError
from packer.layout import MASKED
from packer.model.model import Model
from packer.model.token_bytes import TokenBytes
from packer.pipeline.tokenizer import kept_model
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache

_UNSEEN, _CUT = -1, -2
_HINT = "packer verify CACHE --full names the file and the row"


class TokenTexts:
    """The texts of the tokens of documents, and a number for each distinct one: an id and its text.

    The text is the bytes of the id in the vocabulary, as they are used to verify trained tokens. It is not what the
    tokenizer decodes the id to: decoding one id at a time loses spaces under SentencePiece, and some decoders do not
    know added letters. If an id ends within a character, the character belongs to the token that completes it.
    """

    def __init__(self, model: Model) -> None:
        self._token_bytes = TokenBytes(model)
        self._names = {id_: text for text, id_ in model.control.items()}
        self._number_of = np.full(model.vocab_size, _UNSEEN, np.int32)
        self._numbers: dict[tuple[int, str], int] = {}
        self._texts: list[str] = []

    @classmethod
    def of(cls, cache: Cache) -> Self:
        """Return the texts of the tokenizer that a cache keeps."""
        recipe = make_recipe(cache.manifest.recipe, where="the manifest's recipe")
        return cls(kept_model(cache.folder, cache.manifest, recipe))

    @property
    def tokens(self) -> list[tuple[int, str]]:
        """(id, text) by number."""
        return list(self._numbers)

    def numbers(self, input_ids: Int32) -> Int32:
        """Return the numbers of the tokens of a document, or of a piece of one, adding new tokens.  # int32[n]"""
        highest = int(input_ids.view(np.uint32).max(initial=0))  # one below 0 is huge there
        if highest >= len(self._number_of):
            found = f"expected ids up to {len(self._number_of) - 1}, found {np.uint32(highest).view(np.int32)}"
            raise CheckError(f"a document has tokens that are not in the vocabulary: {found}", hint=_HINT)
        for id_ in np.unique(input_ids[self._number_of[input_ids] == _UNSEEN]).tolist():
            try:
                text = self._bytes(id_).decode()
            except UnicodeDecodeError:
                self._number_of[id_] = _CUT
            else:
                self._number_of[id_] = self._number((id_, text))
        numbers = self._number_of[input_ids]
        # An id that ends within a character is followed by one that begins there, so such ids are adjacent.
        cut = np.flatnonzero(numbers == _CUT)
        for group in np.split(cut, np.flatnonzero(np.diff(cut) != 1) + 1) if len(cut) else ():
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            places = group.tolist()
            for place in places:
                id_ = int(input_ids[place])
                text = decoder.decode(self._bytes(id_), final=place == places[-1])
                numbers[place] = self._number((id_, text))
        return numbers

    def decode(self, input_ids: Int32) -> str:
        """Return the text of a document, or of a piece of one."""
        return "".join([self._texts[number] for number in self.numbers(input_ids).tolist()])

    def decode_runs(self, input_ids: Int32, boundaries: Sequence[int]) -> list[str]:
        """Return the text between each boundary and the next, of the ids of a document from its first one on.

        A space at the start that the tokenizer may have put there is left out. Worked example: `a龍b`, where the ids
        are `a`, two parts of `龍`, and `b`, with the boundaries 0, 2, 4: `a` and `龍b`.
        """
        numbers = self.numbers(input_ids)
        runs = ["".join([self._texts[number] for number in numbers[a:b].tolist()]) for a, b in pairwise(boundaries)]
        if runs and not boundaries[0] and self._token_bytes.inserts_space:
            runs[0] = runs[0].removeprefix(" ")
        return runs

    def _number(self, token: tuple[int, str]) -> int:
        number = self._numbers.setdefault(token, len(self._numbers))
        if number == len(self._texts):
            self._texts.append(token[1])
        return number

    def _bytes(self, id_: int) -> bytes:
        decoded = self._token_bytes.table[id_]
        if decoded is None:
            return self._names.get(id_, "").encode()
        return decoded


RunKind: TypeAlias = Literal["trained", "masked", "padding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Consecutive tokens of one kind: all trained and from one message, all masked, or all padding."""

    kind: RunKind
    start: int
    """Index of its first token within the viewed document, piece or block."""

    num_tokens: int
    text: str
    """With special tokens; empty for padding. A character cut by a boundary belongs to the later run."""

    message: int | None = None
    """Index of the message of its row that it is trained from; a row's `system` field is message 0. None if the run is
    not trained, and for rows that have no messages."""

    weight: float | None = None
    """Loss weight of its tokens; None if the run is not trained."""

    input_ids: tuple[int, ...]
    """The labels are the same ids if trained, -100 otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """The trained spans of a document, in order. U spans; adjacent ones may touch."""

    message: Int32  # [U]
    start: Int32  # [U] tokens from the start of the document
    end: Int32  # [U]
    weight: Float32  # [U]

    def numbers(self, start: int, num_tokens: int) -> Int32:
        """Return the index of the span that contains each token of a piece, or -1.  # int32[num_tokens]

        Worked example: spans [1, 3) and [3, 5), a piece of 3 tokens from token 2 on: [0, 1, 1].
        """
        after = np.searchsorted(self.start, np.arange(start, start + num_tokens), side="right")
        numbers = after.astype(np.int32) - 1
        beyond = np.append(self.end, -1)[numbers] <= np.arange(start, start + num_tokens)
        return np.where(beyond, np.int32(-1), numbers)


def has_messages(schema: str, message: int) -> bool:
    """Whether a span belongs to a message.

    The spans of plain text, of pretokenized rows, and of a prompt with a completion do not. A completion may be a list
    of messages too; then the prompt's messages come before it.
    """
    return schema not in {"text", "tokens"} and (schema != "completion" or message > 0)


def boundaries_of(labels: Int32, spans: Int32) -> list[int]:
    """Return where each run begins, followed by the end of the last one.

    Worked example: labels . . x x x . of the spans - - 0 0 1 1 give [0, 2, 4, 5, 6]: a boundary is wherever training
    begins or ends, and between trained tokens of two spans.  # each int32[n]
    """
    runs = np.where(labels == MASKED, np.int32(-2), spans)
    changes = np.flatnonzero(runs[1:] != runs[:-1]) + 1
    return [0, *changes.tolist(), len(labels)] if len(labels) else [0]


def make_runs(
    texts: TokenTexts,
    input_ids: Int32,
    labels: Int32,
    spans: Spans,
    *,
    schema: str,
    before: Int32 | None = None,
) -> tuple[Run, ...]:
    """Split a document, or a piece of one, into runs; `spans` are those of the whole document.

    `before` are the document's ids before the piece: a character that it begins within is wholly in its text. One that
    it ends within is U+FFFD there.
    """
    before = np.zeros(0, np.int32) if before is None else before
    numbers = spans.numbers(len(before), len(input_ids))
    boundaries = boundaries_of(labels, numbers)
    places = [len(before) + boundary for boundary in boundaries]
    decoded = texts.decode_runs(np.concatenate([before, input_ids]), places)
    runs = []
    for (first, end), text in zip(pairwise(boundaries), decoded, strict=True):
        trained = int(labels[first]) != MASKED
        span = int(numbers[first]) if trained else -1
        message = int(spans.message[span]) if span >= 0 else None
        runs.append(
            Run(
                kind="trained" if trained else "masked",
                start=first,
                num_tokens=end - first,
                text=text,
                message=message if message is not None and has_messages(schema, message) else None,
                weight=_shortest(spans.weight[span]) if span >= 0 else None,
                input_ids=tuple(input_ids[first:end].tolist()),
            )
        )
    return tuple(runs)


def padding_run(start: int, input_ids: Int32) -> Run:
    """Make a run of padding."""
    ids = tuple(input_ids.tolist())
    return Run(kind="padding", start=start, num_tokens=len(ids), text="", input_ids=ids)


def _shortest(weight: np.float32) -> float:
    """Return the shortest decimal that round-trips to this float32: 0.3, not 0.30000001192092896."""
    return float(str(weight))
