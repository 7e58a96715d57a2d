"""Compares the fast way with the definition: what is new in a batch, and one row in 128.

Whether a rendering serves for others is tried on small conversations, and not for all that a row may contain. So of
each message it is noted what it is (role, fields, whether it has a text, how many calls) and what stands before and
behind it. The first row of a batch that has a new combination of *neighbors* is rendered by the definition, too. If
both agree, its combinations are trusted, and other rows with no others are rendered by the fast way alone. If they do
not, no row of the batch with one of the new combinations is. Worked example: under Qwen3, an answer that follows
another answer is written otherwise than one that follows a question.

Rows that are filled into the rendering of another row need none of this: that row was compared.

As a last resort, one row in 128 is compared in any case. If it differs, the fast way is wrong in a way that nobody
thought of, and the batch is rendered by the definition. Which rows are compared depends on the batch alone, so the
result of a row does not depend on which rows a process has seen before.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from packer.batches import Message, Rejection, Sample
from packer.render.readback import function_of
from packer.render.rewritten_history import RenderedRow

COMPARE_EVERY = 128
"""One row in this many, including the first of each batch, is compared."""

_NOBODY = -1
_NONE: frozenset[Any] = frozenset()

Define: TypeAlias = Callable[[Sample], RenderedRow | Rejection]
FastWay: TypeAlias = Callable[[Sample], RenderedRow | Rejection | None]


class DifferenceError(Exception):
    """The fast way and the definition render a row differently."""


class ComparedRows:
    """Renders the rows of one batch, by the fast way where it is known to be right."""

    def __init__(self, fill: FastWay, cut: FastWay, define: Define) -> None:
        """`fill` and `cut`: the two fast ways; `define`: the definition."""
        self._fill = fill
        self._cut = cut
        self._define = define
        self._trusted: set[Any] = set()
        self._refused: set[Any] = set()
        self._numbers: dict[tuple[Any, ...], int] = {}

    def rendered(self, number: int, sample: Sample) -> RenderedRow | Rejection:
        """Render a sample of the batch.

        Raises:
            DifferenceError: the row differs, although all its neighbors were trusted.
        """
        if sample.kind != "chat":
            return self._define(sample)
        row: RenderedRow | Rejection | None = self._fill(sample)
        neighbors = _NONE
        if row is None:
            neighbors = self._neighbors(sample)
            row = self._cut(sample) if self._refused.isdisjoint(neighbors) else None
            if row is None:
                return self._define(sample)
        is_known = neighbors <= self._trusted
        if is_known and number % COMPARE_EVERY:
            return row
        defined = self._define(sample)
        if row == defined:
            self._trusted |= neighbors
        elif is_known:
            raise DifferenceError
        else:
            self._refused |= neighbors - self._trusted
        return defined

    def _neighbors(self, sample: Sample) -> frozenset[Any]:
        """Return what the messages are, each with those before and behind it, and what else may matter of the row."""
        numbers = self._numbers
        kinds = [numbers.setdefault(_kind(message), len(numbers)) for message in sample.messages]
        around = zip([_NOBODY, *kinds[:-1]], kinds, [*kinds[1:], _NOBODY], strict=True)
        return frozenset([bool(sample.tools), *sample.template_kwargs, *around])


def _kind(message: Message) -> tuple[Any, ...]:
    fields = message.fields
    plain = fields["role"], bool(fields.get("content")), message.weight
    if len(fields) == 2:  # nearly always
        return plain
    calls = fields.get("tool_calls") or ()
    return *plain, min(len(calls), 2), bool(calls and function_of(calls[0]).get("arguments")), *fields
