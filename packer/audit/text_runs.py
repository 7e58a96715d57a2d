"""Token ids as runs of text: trained (and from which message), masked, or padding.

A run cannot be decoded on its own: an id may be half a character, and some tokenizers write the first token of a text
without its leading space. So the text of a run is what its ids add to the decoded text of everything before it.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from packer.backend import load_backend
from packer.batches import Bool, Float32, Int32
from packer.errors import CheckError
from packer.layout import MASKED
from packer.model import TOKENIZER_FILE
from packer.pipeline.kept_tokenizer import kept_files
from packer.render.common_prefix import common_length
from packer.store.manifest import Manifest

RunKind: TypeAlias = Literal["trained", "masked", "separator", "padding"]
IntArray: TypeAlias = npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Consecutive tokens of one kind: all trained and from one message, all masked, all separators, or all padding."""

    kind: RunKind
    start: int
    """Index of its first token within the viewed document, piece or block."""

    num_tokens: int
    text: str
    """Decoded text with special tokens; empty for padding. A character cut by a boundary belongs to the later run."""

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


_CUT = "\N{REPLACEMENT CHARACTER}"
_MOST_BYTES = 3
"""Bytes of UTF-8 that may be missing from a character."""


def kept_tokenizer(folder: Path, manifest: Manifest) -> Tokenizer:
    """Load the tokenizer that a cache was built with, from the copy in the cache."""
    files = kept_files(folder, manifest)
    if TOKENIZER_FILE not in files:
        raise CheckError(f"{folder} keeps no {TOKENIZER_FILE}")
    return load_backend(files[TOKENIZER_FILE])


def boundaries_of(labels: Int32, spans: Int32) -> list[int]:
    """Return where each run begins, followed by the end of the last one.

    Worked example: labels . . x x x . of the spans - - 0 0 1 1 give [0, 2, 4, 5, 6]: a boundary is wherever training
    begins or ends, and between trained tokens of two spans.  # each int32[n]
    """
    runs = np.where(labels == MASKED, np.int32(-2), spans)
    changes = np.flatnonzero(runs[1:] != runs[:-1]) + 1
    return [0, *changes.tolist(), len(labels)] if len(labels) else [0]


def decode_runs(tokenizer: Tokenizer, input_ids: Int32, boundaries: list[int]) -> list[str]:
    """Decode the ids between each boundary and the next.

    With ``t(b)`` the text of the first b ids, the text of run [a, b) is what t(b) adds to t(a). If b cuts a character,
    t(b) ends in U+FFFD; with byte fallback, the bytes before the cut become U+FFFD too. Then the last id that completes
    a character is searched for, at most three ids back, as UTF-8 has at most four bytes. The later run gets the
    character.
    """
    ids = input_ids.tolist()
    whole = tokenizer.decode(ids, skip_special_tokens=False)
    places, place = [], 0
    for boundary in boundaries:
        place = max(place, len(whole) if boundary == len(ids) else _place(tokenizer, ids, boundary, whole))
        places.append(place)
    return [whole[start:end] for start, end in pairwise(places)]


def common_start(one: IntArray, other: IntArray) -> int:
    """Return the length of the longest common prefix of two id sequences."""
    length = min(len(one), len(other))
    differing = np.flatnonzero(one[:length] != other[:length])
    return int(differing[0]) if len(differing) else length


def spans_of(mask: Bool) -> list[tuple[int, int]]:
    """Return the start and end of each run of True.

    Worked example: F T T F T gives (1, 3) and (4, 5).
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def make_runs(
    tokenizer: Tokenizer,
    input_ids: Int32,
    labels: Int32,
    spans: Spans,
    *,
    schema: str,
    context: Int32 | None = None,
    behind: Int32 | None = None,
) -> tuple[Run, ...]:
    """Split a document, or a piece of one, into runs; `spans` are those of the whole document.

    `context` are the document's ids before the piece: they are decoded with it but not included in its text. `behind`
    are those after it: a character that ends there is U+FFFD in the text of the piece.
    """
    before, after = (np.zeros(0, np.int32) if ids is None else ids for ids in (context, behind))
    numbers = spans.numbers(len(before), len(input_ids))
    boundaries = boundaries_of(labels, numbers)
    places = [len(before) + boundary for boundary in boundaries]
    texts = decode_runs(tokenizer, np.concatenate([before, input_ids]), places)
    if len(after) and len(places) > 1 and texts[-1].endswith(_CUT):
        # With byte fallback, all bytes before a cut are decoded to U+FFFD, those of complete characters too.
        for more in range(1, 1 + min(_MOST_BYTES, len(after))):
            *_, last, rest = decode_runs(
                tokenizer, np.concatenate([before, input_ids, after[:more]]), [*places[-2:], places[-1] + more]
            )
            if rest and not rest.endswith(_CUT):
                if texts[-1] != last:  # else the text itself has a U+FFFD there
                    texts[-1] = f"{last}{_CUT}"
                break
    runs = []
    for start, end, text in zip(boundaries[:-1], boundaries[1:], texts, strict=True):
        trained = int(labels[start]) != MASKED
        span = int(numbers[start]) if trained else -1
        message = int(spans.message[span]) if span >= 0 else None
        runs.append(
            Run(
                kind="trained" if trained else "masked",
                start=start,
                num_tokens=end - start,
                text=text,
                message=message if message is not None and has_messages(schema, message) else None,
                weight=_shortest(spans.weight[span]) if span >= 0 else None,
                input_ids=tuple(input_ids[start:end].tolist()),
            )
        )
    return tuple(runs)


def untrained_run(kind: RunKind, start: int, input_ids: Int32, text: str = "") -> Run:
    """Make a run of padding, or of the separator between two documents of a block."""
    ids = tuple(input_ids.tolist())
    return Run(kind=kind, start=start, num_tokens=len(ids), text=text, input_ids=ids)


def _shortest(weight: np.float32) -> float:
    """Return the shortest decimal that round-trips to this float32: 0.3, not 0.30000001192092896."""
    return float(str(weight))


def _place(tokenizer: Tokenizer, ids: list[int], boundary: int, whole: str) -> int:
    """Return how many characters of the whole text the ids before a boundary decode to."""
    best = 0
    for end in range(boundary, max(boundary - 4, -1), -1):
        text = tokenizer.decode(ids[:end], skip_special_tokens=False)
        if whole.startswith(text):
            return max(best, len(text))
        best = max(best, common_length(text, whole))
    return best
