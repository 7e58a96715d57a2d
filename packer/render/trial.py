"""The rendering of a form, traced and tried.

A trace (:mod:`packer.render.tracing`) knows nothing of the sandbox's refusals and limits. So the same conversation is
rendered once by the template itself, with words of a length that none of a filled conversation passes. It must give
what the trace says. What the sandbox refuses by the way a template takes, it then refused there; and no limit that
grows with the words is met by shorter ones: a JSON value weighs no more than twice its JSON.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import gt
from typing import Any, NamedTuple, TypeAlias

from packer.render.chat import JSONMessage
from packer.render.environment import ChatTemplate, RenderError
from packer.render.forms import Form, plain_wording, traced_wording
from packer.render.slots import Condition, Piece, UntraceableError, Words
from packer.render.tracing import Tracer
from packer.render.watchdog import TemplateOverrunError

_LONGEST = 2**18
"""Characters of all words that a traced rendering is tried with."""

Change: TypeAlias = Callable[[JSONMessage], JSONMessage]

UNWRITABLE = (ValueError, TypeError, RecursionError)
"""What writing a value that is not JSON raises."""


class RaisesError(UntraceableError):
    """The template raises, whatever words there are that meet the conditions."""

    def __init__(self, reason: str, conditions: Sequence[Condition], longest: int) -> None:
        super().__init__(reason)
        self.conditions = conditions
        self.longest = longest


class Rendering(NamedTuple):
    """What a template writes around the words of a kind of conversation."""

    pieces: tuple[Piece, ...]
    conditions: tuple[Condition, ...]
    longest: int
    """Characters a text may have, or a JSON value that is not of others."""

    limits: tuple[int, ...]
    """Characters each word may have."""

    written: tuple[int, ...]
    """Characters that what a condition is about may have."""

    def fill(self, words: Words) -> str | None:
        """The rendering of a conversation; None where its words do not meet the conditions."""
        try:
            return None if any(map(gt, words.sizes, self.limits)) else self.write(words)
        except UNWRITABLE:
            return None

    def write(self, words: Words) -> str | None:
        """The same for words of any length; raises as :meth:`packer.render.slots.Slot.value`."""
        for condition, longest in zip(self.conditions, self.written, strict=True):
            value = words.of(condition.slot)
            if len(value) > longest or not condition.met(value):
                return None
        return "".join(piece if isinstance(piece, str) else words.of(piece) for piece in self.pieces)


class Trial:
    """What a form is tried with: made-up words as short as they come, and longer than any that are filled in.

    Args:
        form: of the conversation.
        max_bytes: what a rendering may come to.

    """

    def __init__(self, form: Form, max_bytes: int) -> None:
        self.form = form
        self.max_bytes = max_bytes
        short, long = plain_wording(lambda _: "Word"), plain_wording(self._word)
        num_words = sum(not isinstance(value, dict | list) for value in traced_wording([]).filled(form))
        self.length = min(_LONGEST, max_bytes // 32) // max(num_words, 1)
        self.words = Words(long.values)
        self._short, self._long = short.conversation(form), long.conversation(form)
        self._changed: dict[tuple[bool, Change | None], list[JSONMessage]] = {}

    @property
    def limits(self) -> tuple[int, ...]:
        """Characters each word may have; of what is in a tool nothing is longer than the tool, nor than all are."""
        return tuple(
            self.length * 2 * len(value) if type(value) is list else self.length for value in self.words.values
        )

    def render(
        self, template: ChatTemplate, number: int, variables: Mapping[str, Any], change: Change | None, *, long: bool
    ) -> tuple[str | None, str]:
        """What the template writes of so many messages; None where it raises, and why.

        Raises:
            UntraceableError: it takes too long.

        """
        tools, messages = self._long if long else self._short
        key = long, change
        if change is not None and key not in self._changed:
            self._changed[key] = [change(message) for message in messages]
        messages = self._changed.get(key, messages)[:number]
        own = {name: value for name, value in variables.items() if name != "add_generation_prompt"}
        prompt = bool(variables.get("add_generation_prompt"))
        try:
            return template.render(messages, tools=tools, add_generation_prompt=prompt, kwargs=own), ""
        except RenderError as error:
            return None, str(error)
        except TemplateOverrunError as error:
            raise UntraceableError("the template overruns") from error

    def _word(self, number: int) -> str:
        return f"Word{number:06d}".ljust(self.length, "w")[: self.length]


def traced(
    template: ChatTemplate,
    tracer: Tracer,
    trial: Trial,
    variables: Mapping[str, Any],
    *,
    number: int | None = None,
    change: Change | None = None,
) -> Rendering:
    """The rendering of a kind of conversation, traced and tried.

    Args:
        template: what is traced.
        tracer: the same template.
        trial: of the form of the conversation.
        variables: `add_generation_prompt` among them.
        number: of the messages that are rendered, if they are not all.
        change: what becomes of each message, of traced words and others, before it is rendered.

    Raises:
        UntraceableError: the template looks into words, or raises.

    """
    number = len(trial.form.messages) if number is None else number
    conditions: list[Condition] = []
    tools, messages = traced_wording(conditions).conversation(
        trial.form._replace(messages=trial.form.messages[:number])
    )
    given = messages if change is None else [change(message) for message in messages]
    # What the sandbox refuses whatever the words are must not be traced: a trace has no limits of its own.
    short, _ = trial.render(template, number, variables, change, long=False)
    try:
        pieces = tracer.render({"documents": None, **variables, "tools": tools, "messages": given})
    except RenderError as error:
        text, reason = trial.render(template, number, variables, change, long=True)
        if short is None and text is None and str(error) in reason:
            raise RaisesError(reason, conditions, trial.length) from error
        raise UntraceableError("the template raises") from error
    if short is None:
        raise UntraceableError("the template raises")
    text, _ = trial.render(template, number, variables, change, long=True)
    unique = tuple(dict.fromkeys(conditions))
    written = tuple(len(trial.words.of(condition.slot)) for condition in unique)
    rendering = Rendering(pieces, unique, trial.length, trial.limits, written)
    if text is None or text != rendering.write(trial.words) or len(text) * 4 > trial.max_bytes:
        raise UntraceableError("the sandbox renders something else")
    return rendering
