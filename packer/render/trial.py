"""The rendering of a form, traced and tried.

A trace (:mod:`packer.render.tracing`) knows nothing of the sandbox's refusals and limits. So the same conversation is
rendered once by the template itself, with words of a length that none of a filled conversation passes. It must give
what the trace says. What the sandbox refuses by the way a template takes, it then refused there; and no limit that
grows with the words is met by shorter ones.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from packer.render.chat import JSONMessage
from packer.render.environment import ChatTemplate, RenderError
from packer.render.forms import Form, traced_words, worded
from packer.render.slots import Condition, Piece, UntraceableError, Words
from packer.render.tracing import Tracer
from packer.render.watchdog import TemplateOverrunError

_LONGEST = 2**18
"""Characters of all words that a traced rendering is tried with."""

Change: TypeAlias = Callable[[JSONMessage], JSONMessage]


class RaisesError(UntraceableError):
    """The template raises, whatever words there are that meet the conditions."""

    def __init__(self, reason: str, conditions: Sequence[Condition]) -> None:
        super().__init__(reason)
        self.conditions = conditions


class Rendering(NamedTuple):
    """What a template writes around the words of a kind of conversation."""

    pieces: tuple[Piece, ...]
    conditions: tuple[Condition, ...]
    longest: int
    """Characters a word may have."""

    def fill(self, words: Words) -> str | None:
        """The rendering of a conversation; None where its words do not meet the conditions."""
        return None if any(size > self.longest for size in words.sizes) else self.write(words)

    def write(self, words: Words) -> str | None:
        """The same for words of any length."""
        if not all(condition.met(words.of(condition.slot)) for condition in self.conditions):
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
        num_words = sum(shape == "text" for fields in form for _, shape in fields)
        self.length = min(_LONGEST, max_bytes // 32) // max(num_words, 1)
        """Characters a word may have."""

        self.words = Words([self._word(number) for number in range(num_words)])
        self._short, self._long = worded(form, lambda _: "Word"), worded(form, self._word)
        self._changed: dict[tuple[bool, Change | None], list[JSONMessage]] = {}

    def render(
        self, template: ChatTemplate, number: int, variables: Mapping[str, Any], change: Change | None, *, long: bool
    ) -> tuple[str | None, str]:
        """What the template writes of so many messages; None where it raises, and why.

        Raises:
            UntraceableError: it takes too long.

        """
        messages = self._long if long else self._short
        key = long, change
        if change is not None and key not in self._changed:
            self._changed[key] = [change(message) for message in messages]
        messages = self._changed.get(key, messages)[:number]
        own = {name: value for name, value in variables.items() if name != "add_generation_prompt"}
        prompt = bool(variables.get("add_generation_prompt"))
        try:
            return template.render(messages, add_generation_prompt=prompt, kwargs=own), ""
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
    number = len(trial.form) if number is None else number
    conditions: list[Condition] = []
    messages = worded(trial.form[:number], traced_words(conditions))
    given = messages if change is None else [change(message) for message in messages]
    # What the sandbox refuses whatever the words are must not be traced: a trace has no limits of its own.
    short, _ = trial.render(template, number, variables, change, long=False)
    try:
        pieces = tracer.render({"documents": None, **variables, "tools": None, "messages": given})
    except RenderError as error:
        text, reason = trial.render(template, number, variables, change, long=True)
        if short is None and text is None and str(error) in reason:
            raise RaisesError(reason, conditions) from error
        raise UntraceableError("the template raises") from error
    if short is None:
        raise UntraceableError("the template raises")
    text, _ = trial.render(template, number, variables, change, long=True)
    unique = tuple(dict.fromkeys(conditions))
    rendering = Rendering(pieces, unique, trial.length)
    if text is None or text != rendering.write(trial.words) or len(text) * 4 > trial.max_bytes:
        raise UntraceableError("the sandbox renders something else")
    return rendering
