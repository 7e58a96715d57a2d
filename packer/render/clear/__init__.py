"""The fast way of rendering: rows that are *clear* are cut from one rendering; for all others the answer is None.

Its door, :class:`packer.render.clear.rows.ClearRows`, takes a row and returns what the definition
(:mod:`packer.render.turns`, and what :mod:`packer.render.renderer` checks of turns) would return, or None. The
definition then renders the row, prompt by prompt and turn by turn. How it works:

- A rendering is made by a copy of the template that marks where each message stands. Whether it serves for all turns
  is tried for each kind of row (:mod:`packer.render.clear.extension`).
- What the definition asks of a rendering is read off *by place* (:mod:`packer.render.clear.places`).
- What a template writes must not depend on what texts say (:mod:`packer.render.clear.questions`). So rows that are
  built alike are rendered alike, and short chats need not be rendered at all (:mod:`packer.render.clear.filling`).

Proved on every row: texts, calls and tools stand in their places; each turn begins with its prompt's header and ends
with a stop token; no question about a text was answered with yes. Tried once for each kind of row: that later
messages do not change what stands before them, and that a prompt adds a header to it.

Compared with the definition is what is new in a batch, and one row in 128. Of each message it is noted what it is
(role, fields, whether it has a text, how many calls) and what stands before and behind it. The first row of a batch
that has a new combination of *neighbors* is rendered by the definition, too. If both agree, its combinations are
trusted, and other rows with no others are rendered by the fast way alone. If they do not, no row of the batch with one
of the new combinations is. Worked example: under Qwen3, an answer that follows another answer is written otherwise than
one that follows a question. Rows that are filled into the rendering of another row need none of this: that row was
compared.

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
