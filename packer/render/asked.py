"""The template as the definition sees it while a skeleton is made: made-up words are traced, what is asked is kept.

The definition may ask for renderings of the made-up conversation, or of its beginnings: as the row has it, with empty
texts for nulls. These are traced. It may ask for conversations that hold no made-up words where losses are looked for:
they are rendered. Anything else is out of the ordinary and ends it.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from packer.render.chat import without_null
from packer.render.environment import ChatTemplate, RenderError
from packer.render.forms import Form, worded
from packer.render.slots import Condition, Piece, Slot, UntraceableError
from packer.render.tracing import Tracer
from packer.render.trial import Change, RaisesError, Rendering, Trial, traced

_MARK = "zqslot"
WRITTEN = re.compile(rf"{_MARK}(\d{{6,}})c(\d{{3,}})x")
"""Number of a word, and of what is done to it."""

_PROBED = frozenset("Zq0123456789xW")
"""Letters of the words, of any length, that :mod:`packer.render.dropped` puts in place of others."""


def _made_up(number: int) -> str:
    """Words that are in no conversation but as a whole."""
    return f"{_MARK}{number:06d}"


_CHANGES: tuple[Change, ...] = (lambda message: message, without_null)
"""What the definition may make of the messages of a row."""


class Asked:
    """See the top of this module.

    Args:
        template: renders what holds no made-up words.
        tracer: the same template.
        form: of the conversation.
        max_bytes: what a rendering may come to.

    """

    def __init__(self, template: ChatTemplate, tracer: Tracer, form: Form, *, max_bytes: int) -> None:
        self._template = template
        self._tracer = tracer
        self._trial = Trial(form, max_bytes)
        self.modes = template.modes
        self.takes_only_parts = template.takes_only_parts
        self.messages = worded(form, _made_up)
        self.longest = self._trial.length
        """Characters each word may have."""

        self.conditions: dict[Condition, None] = {}
        self._tries: list[tuple[Piece, ...]] = []
        self._prompts: dict[int, list[Counter[Slot]]] = {}
        self._turns: list[int] = []
        self._cuts: list[tuple[Any, ...]] = []

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """As :meth:`ChatTemplate.render`; made-up words come out with how they were written.

        Raises:
            UntraceableError: the template looks into words, raises, or is asked for something out of the ordinary.
            RenderError: it raises whatever the words are, while it is tried in which form it takes the messages.

        """
        change = self._change_of(messages)
        if change is None or tools:
            if tools or any(_MARK in str(message.get("content")) for message in messages):
                raise UntraceableError("another conversation")
            return self._template.render(messages, add_generation_prompt=add_generation_prompt, kwargs=kwargs)
        variables = {**(kwargs or {}), "add_generation_prompt": add_generation_prompt}
        number = len(messages)
        try:
            rendering = traced(self._template, self._tracer, self._trial, variables, number=number, change=change)
        except RaisesError as error:
            if self._prompts or add_generation_prompt:
                raise
            self.conditions |= dict.fromkeys(error.conditions)
            raise RenderError(str(error)) from error
        self._keep(rendering, number, prompt=add_generation_prompt)
        return "".join(piece if isinstance(piece, str) else self._written(piece) for piece in rendering.pieces)

    @property
    def plain(self) -> bool:
        """Whether one turn was tried for each message, after prompts that hold the same words."""
        alike = all(prompt == prompts[0] for prompts in self._prompts.values() for prompt in prompts)
        prompted = all(number - 1 in self._prompts for number in self._turns)  # else a header was looked for
        settled = all(one == other or _tells_nulls(one, other) for one, other in pairwise(self._tries))
        return alike and prompted and settled and len(set(self._turns)) == len(self._turns)

    def slot(self, number: str, cuts: str) -> Slot:
        """The slot that was written with these numbers."""
        return Slot(int(number), self._cuts[int(cuts)])

    def _change_of(self, messages: Sequence[Mapping[str, Any]]) -> Change | None:
        given = self.messages[: len(messages)]
        return next((change for change in _CHANGES if [*map(change, given)] == list(messages)), None)

    def _keep(self, rendering: Rendering, number: int, *, prompt: bool) -> None:
        if any(isinstance(piece, str) and _MARK in piece for piece in rendering.pieces):
            raise UntraceableError("the template writes what stands for words")
        if any(_PROBED.issuperset(condition.text) for condition in rendering.conditions):
            raise UntraceableError("the template may ask for the words that losses are looked for with")
        self.conditions |= dict.fromkeys(rendering.conditions)
        if prompt:
            slots = Counter(piece for piece in rendering.pieces if isinstance(piece, Slot))
            self._prompts.setdefault(number, []).append(slots)
        elif self._prompts:
            self._turns.append(number)
        else:
            self._tries.append(rendering.pieces)

    def _written(self, slot: Slot) -> str:
        if slot.cuts not in self._cuts:
            self._cuts.append(slot.cuts)
        return f"{_made_up(slot.number)}c{self._cuts.index(slot.cuts):03d}x"


def _tells_nulls(one: Sequence[Piece], other: Sequence[Piece]) -> bool:
    """Whether how often the word None stands in two renderings, one more than the other, is up to no words."""
    slots = [Counter(piece for piece in pieces if isinstance(piece, Slot)) for pieces in (one, other)]
    return slots[0] == slots[1] and not any(
        _may_make_none(piece, behind) for pieces in (one, other) for piece, behind in pairwise(pieces)
    )


def _may_make_none(piece: Piece, behind: Piece) -> bool:
    if isinstance(piece, str):
        return piece.endswith(("N", "No", "Non")) or piece in {"o", "n", "on"}
    return not isinstance(behind, str) or behind.startswith(("one", "ne", "e"))
