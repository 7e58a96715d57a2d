"""Token ids as text: the text of each token, from the bytes of the vocabulary, and runs that are trained or not.

A run cannot be decoded on its own: an id may be half a character, and some tokenizers write the first token of a text
without its leading space. So the texts of tokens are those of the whole document.
"""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np

from packer.batches import Int32
from packer.errors import CheckError
from packer.layout import MASKED, begins_run
from packer.model.model import Model
from packer.model.token_bytes import TokenBytes

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
        self.tokens: list[tuple[int, str]] = []
        """(id, text) by number."""

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
        return "".join([self.tokens[number][1] for number in self.numbers(input_ids).tolist()])

    def decode_runs(self, input_ids: Int32, boundaries: Sequence[int]) -> list[str]:
        """Return the text between each boundary and the next, of the ids of a document from its first one on.

        A space at the start that the tokenizer may have put there is left out. Worked example: `a龍b`, where the ids
        are `a`, two parts of `龍`, and `b`, with the boundaries 0, 2, 4: `a` and `龍b`.
        """
        texts = [self.tokens[number][1] for number in self.numbers(input_ids).tolist()]
        runs = ["".join(texts[a:b]) for a, b in pairwise(boundaries)]
        if runs and not boundaries[0] and self._token_bytes.inserts_space:
            runs[0] = runs[0].removeprefix(" ")
        return runs

    def _number(self, token: tuple[int, str]) -> int:
        number = self._numbers.setdefault(token, len(self.tokens))
        if number == len(self.tokens):
            self.tokens.append(token)
        return number

    def _bytes(self, id_: int) -> bytes:
        decoded = self._token_bytes.table[id_]
        return self._names.get(id_, "").encode() if decoded is None else decoded


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

    input_ids: tuple[int, ...]
    """The labels are the same ids if trained, -100 otherwise."""


def make_runs(
    texts: TokenTexts,
    input_ids: Int32,
    labels: Int32,
    spans: Int32,
    *,
    messages: Sequence[int | None],
) -> tuple[Run, ...]:
    """Split a document, or a piece of one, into runs: they begin where training begins or ends, or the span changes.

    `input_ids` are those of the document up to the end of the piece, so that a character within which the piece begins
    is wholly in its text; one that it ends within is U+FFFD there. `labels` and `spans` are those of the piece, which
    span has each token or -1, `messages` those of every span.  # int32[n] each

    Worked example: labels . . x x x . of the spans - - 0 0 1 1 give runs that begin at 0, 2, 4 and 5.
    """
    start, of_run = len(input_ids) - len(labels), np.where(labels == MASKED, np.int32(-2), spans)
    edges = [*np.flatnonzero(begins_run(of_run)).tolist(), len(labels)]
    decoded = texts.decode_runs(input_ids, [start + edge for edge in edges])
    runs = []
    for (first, end), text in zip(pairwise(edges), decoded, strict=True):
        span = int(of_run[first])
        runs.append(
            Run(
                kind="masked" if span == -2 else "trained",
                start=first,
                num_tokens=end - first,
                text=text,
                message=messages[span] if span >= 0 else None,
                input_ids=tuple(input_ids[start + first : start + end].tolist()),
            )
        )
    return tuple(runs)


def padding_run(start: int, input_ids: Int32) -> Run:
    """Make a run of padding."""
    ids = tuple(input_ids.tolist())
    return Run(kind="padding", start=start, num_tokens=len(ids), text="", input_ids=ids)
