"""A template that fills words into renderings it has traced, for one conversation at a time.

What a whole skeleton (:mod:`packer.render.skeleton`) does not cover, say history that the template rewrites, is left to
the definition, which asks for many renderings of a conversation that differ in their words alone from those of others.
Each is traced once for its roles and variables, and filled in from then on; everything that is then made of a rendering
is made of the text itself.

A trace (:mod:`packer.render.tracing`) knows nothing of the sandbox's refusals and limits. So the same conversation is
rendered once by the template itself, with words of a length that none of a filled conversation passes. It must give
what the trace says. What the sandbox refuses by the way a template takes, it then refused there; and no limit that
grows with the words is met by shorter ones.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple, TypeAlias

from packer.render.chat import Template
from packer.render.environment import ChatTemplate, RenderError
from packer.render.traced import Condition, Piece, Slot, Traced, UntraceableError
from packer.render.tracing import Tracer
from packer.render.watchdog import TemplateOverrunError

_FEW = 3
"""Renderings of a kind before it is traced: that costs as much as some of them."""

_MAX_KINDS = 8192
_LONGEST_VARIABLES = 2**10
"""Characters of variables, written out, that renderings are kept under."""

_LONGEST = 2**18
"""Characters of all words that a traced rendering is tried with."""

Kind: TypeAlias = tuple[tuple[str, ...], str]
"""Roles; and variables, of which one says whether it is a prompt."""


class Rendering(NamedTuple):
    """What a template writes around the words of a kind of conversation."""

    pieces: tuple[Piece, ...]
    conditions: tuple[Condition, ...]
    longest: int
    """Characters a message's words may have."""

    def fill(self, words: Sequence[str]) -> str | None:
        """The rendering of a conversation; None where its words do not meet the conditions."""
        if any(len(word) > self.longest for word in words):
            return None
        for condition in self.conditions:
            if not condition.met(condition.slot.value(words[condition.slot.number])):
                return None
        return "".join(piece if isinstance(piece, str) else piece.value(words[piece.number]) for piece in self.pieces)


def traced(
    template: ChatTemplate, tracer: Tracer, roles: Sequence[str], variables: Mapping[str, Any], *, max_bytes: int
) -> Rendering:
    """The rendering of a kind of conversation, traced and tried.

    Args:
        template: what is traced.
        tracer: the same template.
        roles: of the messages.
        variables: `add_generation_prompt` among them.
        max_bytes: what a rendering may come to.

    Raises:
        UntraceableError: the template looks into words, or raises.

    """
    conditions: list[Condition] = []
    messages = [{"role": role, "content": Traced([Slot(k)], conditions)} for k, role in enumerate(roles)]
    length = min(_LONGEST, max_bytes // 32) // max(len(roles), 1)
    words = [f"Word{k:06d}".ljust(length, "w")[:length] for k in range(len(roles))]
    own = {name: value for name, value in variables.items() if name != "add_generation_prompt"}
    prompt = bool(variables.get("add_generation_prompt"))
    try:
        # What the sandbox refuses whatever the words are must not be traced: a trace has no limits of its own.
        template.render([{"role": role, "content": "Word"} for role in roles], add_generation_prompt=prompt, kwargs=own)
        pieces = tracer.render({"documents": None, **variables, "tools": None, "messages": messages})
        rendering = Rendering(pieces, tuple(dict.fromkeys(conditions)), length)
        tried = [{"role": role, "content": word} for role, word in zip(roles, words, strict=True)]
        text = template.render(tried, add_generation_prompt=prompt, kwargs=own)
    except (RenderError, TemplateOverrunError) as error:
        raise UntraceableError("the template raises") from error
    if text != rendering.fill(words) or len(text) * 4 > max_bytes:
        raise UntraceableError("the sandbox renders something else")
    return rendering


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

    def of(self, messages: Sequence[Mapping[str, Any]]) -> Template:
        """The template for one conversation; to be filled in, messages have a role and words, and nothing else."""
        words = [_words(message) for message in messages]
        return FillingTemplate(self, messages, words) if all(words) else self.template

    def text(self, roles: tuple[str, ...], words: Sequence[str], variables: Mapping[str, Any]) -> str | None:
        """The rendering of the first messages of a conversation; None where it has to be rendered."""
        kind = roles, repr(variables)
        if len(kind[1]) > _LONGEST_VARIABLES:
            return None
        known = self._traced.get(kind, 0)
        if isinstance(known, int):
            known = known + 1 if known < _FEW else self._trace(roles, variables)
            self._traced[kind] = known
            if len(self._traced) > _MAX_KINDS:
                self._traced.popitem(last=False)
        return known.fill(words[: len(roles)]) if isinstance(known, Rendering) else None

    def _trace(self, roles: Sequence[str], variables: Mapping[str, Any]) -> Rendering | None:
        try:
            return traced(self.template, self._tracer, roles, variables, max_bytes=self._max_bytes)
        except UntraceableError:
            return None


def _words(message: Mapping[str, Any]) -> str:
    """What a message says; nothing where it says that in another way, or is blank."""
    text = message.get("content")
    return text if list(message) == ["role", "content"] and type(text) is str and not text.isspace() else ""


class FillingTemplate:
    """A chat template, as far as the definition asks for it, that fills in what it can of one conversation."""

    def __init__(self, renderings: Renderings, messages: Sequence[Mapping[str, Any]], words: Sequence[str]) -> None:
        self.modes = renderings.template.modes
        self.takes_only_parts = renderings.template.takes_only_parts
        self._renderings = renderings
        self._messages = messages
        self._words = words
        self._roles = tuple(str(message["role"]) for message in messages)

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
        if not tools and number <= len(self._messages) and all(map(is_, messages, self._messages)):
            variables = {**(kwargs or {}), "add_generation_prompt": add_generation_prompt}
            text = self._renderings.text(self._roles[:number], self._words, variables)
            if text is not None:
                return text
        return self._renderings.template.render(
            messages, tools=tools, add_generation_prompt=add_generation_prompt, kwargs=kwargs
        )
