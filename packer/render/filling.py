"""A template that fills words into renderings it has traced, for one conversation at a time.

What a whole skeleton (:mod:`packer.render.skeleton`) does not cover, say history that the template rewrites, is left to
the definition, which asks for many renderings of a conversation that differ in their words alone from those of others.
Each is traced once for its form and variables, and filled in from then on; everything that is then made of a rendering
is made of the text itself. With tools or calls, filling in takes longer than rendering what is new in a conversation
(:mod:`packer.render.remembering`).
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

from packer.render.chat import Template
from packer.render.environment import ChatTemplate
from packer.render.forms import Form, FormlessError
from packer.render.reading import Message, Read, Reader
from packer.render.slots import UntraceableError
from packer.render.tracing import Tracer
from packer.render.trial import Rendering, Trial, traced

_FEW = 3
"""Renderings of a kind before it is traced: that costs as much as some of them."""

_MOST_MESSAGES = 64
"""Of a conversation that is filled in: of a longer one, what is new is rendered sooner than the whole is filled in."""

_MAX_KINDS = 8192
_LONGEST_VARIABLES = 2**10
"""Characters of variables, written out, that renderings are kept under."""

Kind: TypeAlias = tuple[tuple[int, ...], str]
"""Numbers of the forms of messages; and variables, of which one says whether it is a prompt."""

_MAX_READ = 4
"""Conversations that are read of a row: as it is, without nulls, as lists of parts, with others for its words."""


class Renderings:
    """The traced renderings of one template.

    Args:
        template: renders what cannot be filled in.
        tracer: the same template.
        max_bytes: what a rendering may come to.

    """

    def __init__(self, template: ChatTemplate, tracer: Tracer, *, max_bytes: int) -> None:
        self.template = template
        self._tracer = tracer
        self._max_bytes = max_bytes
        self._traced: OrderedDict[Kind, Rendering | int | None] = OrderedDict()
        self._numbers: dict[Hashable, int] = {}
        self._trial: Trial | None = None

    def of(self, otherwise: Template) -> Template:
        """The template for one conversation; `otherwise` renders what is not filled in."""
        return FillingTemplate(self, otherwise)

    def number_of(self, fields: Hashable) -> int:
        """A number for the form of a message.

        Raises:
            FormlessError: there are too many.

        """
        number = self._numbers.get(fields)
        if number is None:
            if len(self._numbers) >= _MAX_KINDS:
                raise FormlessError
            number = self._numbers[fields] = len(self._numbers)
        return number

    def text(self, read: Read, number: int, variables: Mapping[str, Any]) -> str | None:
        """The rendering of the first messages of a conversation; None where it has to be rendered."""
        kind = tuple(read.numbers[:number]), repr(variables)
        if len(kind[1]) > _LONGEST_VARIABLES:
            return None
        known = self._traced.get(kind, 0)
        if isinstance(known, int):
            known = known + 1 if known < _FEW else self._trace(read.form(number), variables)
            self._traced[kind] = known
            if len(self._traced) > _MAX_KINDS:
                self._traced.popitem(last=False)
        return known.fill(read.words) if isinstance(known, Rendering) else None

    def _trace(self, form: Form, variables: Mapping[str, Any]) -> Rendering | None:
        try:
            if self._trial is None or self._trial.form != form:  # prompts in all modes come one after another
                self._trial = Trial(form, self._max_bytes)
            return traced(self.template, self._tracer, self._trial, variables)
        except UntraceableError:
            return None


class FillingTemplate:
    """A chat template, as far as the definition asks for it, that fills in what it can of one conversation."""

    def __init__(self, renderings: Renderings, otherwise: Template) -> None:
        self.modes = renderings.template.modes
        self.takes_only_parts = renderings.template.takes_only_parts
        self._renderings = renderings
        self._otherwise = otherwise
        self._read: list[Read] = []
        self._reader = Reader(renderings.number_of)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """As :meth:`ChatTemplate.render`."""
        number = len(messages)
        read = None if tools or number > _MOST_MESSAGES else self._reading(messages)
        if read is not None and read.has_form(messages):
            variables = {**(kwargs or {}), "add_generation_prompt": add_generation_prompt}
            text = self._renderings.text(read, number, variables)
            if text is not None:
                return text
        return self._otherwise.render(messages, tools=tools, add_generation_prompt=add_generation_prompt, kwargs=kwargs)

    def _reading(self, messages: Sequence[Message]) -> Read | None:
        """The conversation these messages are part of; none where many were made of it."""
        for read in self._read:
            if read.is_of(messages):
                return read
        if len(self._read) >= _MAX_READ:
            return None
        self._read.append(Read(self._reader))
        return self._read[-1]
