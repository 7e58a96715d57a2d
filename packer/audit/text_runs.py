"""Token ids as runs of text: trained (and from which message), masked, or padding.

A run cannot be decoded on its own: an id may be half a character, and some tokenizers write the first token of a text
without its leading space. So the texts of tokens are those of the whole document, see :mod:`packer.audit.token_texts`.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np

from packer.audit.token_texts import TokenTexts
from packer.batches import Float32, Int32
from packer.layout import MASKED

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
