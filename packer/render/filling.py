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
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import gt, is_
from typing import Any, NamedTuple, TypeAlias

from packer.render.chat import JSONMessage, Template
from packer.render.environment import ChatTemplate, RenderError
from packer.render.forms import Fields, Form, FormlessError, plain_wording, read_message, read_tools, traced_wording
from packer.render.slots import Condition, Piece, UntraceableError, Words
from packer.render.tracing import Tracer
from packer.render.watchdog import TemplateOverrunError

_FEW = 3
"""Renderings of a kind before it is traced: that costs as much as some of them."""

_DEARER = 8
"""Times as many where there are tools or calls."""

_MAX_KINDS = 8192
_LONGEST_VARIABLES = 2**10
"""Characters of variables, written out, that renderings are kept under."""

_LONGEST = 2**18
"""Characters of all words that a traced rendering is tried with."""

Kind: TypeAlias = tuple[tuple[int, ...], str]
"""Numbers of the forms of tools and messages; and variables, of which one says whether it is a prompt."""

Change: TypeAlias = Callable[[JSONMessage], JSONMessage]

_MAX_READ = 3
"""Conversations that are made of one: without nulls, with arguments as texts, with words that losses are found with."""

Message: TypeAlias = Mapping[str, Any]

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
    text, reason = trial.render(template, number, variables, change, long=True)
    try:
        pieces = tracer.render({"documents": None, **variables, "tools": tools, "messages": given})
    except RenderError as error:
        if short is None and text is None and str(error) in reason:
            raise RaisesError(reason, conditions, trial.length) from error
        raise UntraceableError("the template raises") from error
    unique = tuple(dict.fromkeys(conditions))
    written = tuple(len(trial.words.of(condition.slot)) for condition in unique)
    rendering = Rendering(pieces, unique, trial.length, trial.limits, written)
    if short is None or text is None or text != rendering.write(trial.words) or len(text) * 4 > trial.max_bytes:
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
        self._numbers: dict[Hashable, int] = {}
        self._trial: Trial | None = None

    def of(self, otherwise: Template) -> Template:
        """The template for one conversation; `otherwise` renders what is not filled in."""
        return FillingTemplate(self, otherwise)

    def number_of(self, fields: Hashable) -> int:
        """A number for the form of a message, or of tools.

        Raises:
            FormlessError: there are too many.

        """
        number = self._numbers.get(fields)
        if number is None:
            if len(self._numbers) >= _MAX_KINDS:
                raise FormlessError
            number = self._numbers[fields] = len(self._numbers)
        return number

    def text(self, read: "Read", number: int, variables: Mapping[str, Any]) -> str | None:
        """The rendering of the first messages of a conversation; None where it has to be rendered."""
        kind = tuple(read.numbers[: number + 1]), repr(variables)
        if len(kind[1]) > _LONGEST_VARIABLES:
            return None
        known = self._traced.get(kind, 0)
        if isinstance(known, int):
            few = known < (_FEW * _DEARER if read.words.holds_json else _FEW)
            known = known + 1 if few else self._trace(read.form(number), variables)
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


class Read:
    """A conversation as far as it has a form.

    Args:
        tools: of the conversation.
        number_of: a number for the form of a message, or of tools.

    """

    def __init__(self, tools: Sequence[Any] | None, number_of: Callable[[Hashable], int]) -> None:
        self.tools = tools
        self.messages: list[Message] = []
        self.words = Words([])
        self._number_of = number_of
        self._fields: list[Fields] = []
        self._tools: tuple[Fields, ...] = ()
        self.numbers: list[int] = []
        """Of the form of the tools, and of each message."""

        try:
            self._tools = read_tools(tools, self.words.values)
            self.numbers.append(number_of(self._tools))
        except FormlessError:
            self.words = Words([])

    def reads(self, tools: Sequence[Any] | None, messages: Sequence[Message]) -> bool:
        """Whether it is this conversation, or the beginning of it, or the other way round."""
        return tools is self.tools and all(map(is_, messages, self.messages))

    def has_form(self, messages: Sequence[Message]) -> bool:
        """Whether these messages have a form, of which those that were not read yet are read."""
        for message in messages[len(self.messages) :]:
            self.messages.append(message)
            if len(self.numbers) == len(self.messages):  # those before it have one
                self._read(message)
        return len(self.numbers) > len(messages)

    def form(self, number: int) -> Form:
        """The form of so many messages."""
        return Form(self._tools, tuple(self._fields[:number]))

    def _read(self, message: Message) -> None:
        words: list[Any] = []
        try:
            fields = read_message(message, words)
            self.numbers.append(self._number_of(fields))
        except FormlessError:
            return
        self._fields.append(fields)
        self.words.values += words


class FillingTemplate:
    """A chat template, as far as the definition asks for it, that fills in what it can of one conversation."""

    def __init__(self, renderings: Renderings, otherwise: Template) -> None:
        self.modes = renderings.template.modes
        self.takes_only_parts = renderings.template.takes_only_parts
        self._renderings = renderings
        self._otherwise = otherwise
        self._read: list[Read] = []

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """As :meth:`ChatTemplate.render`."""
        read = self._reading(tools, messages)
        if read.has_form(messages):
            variables = {**(kwargs or {}), "add_generation_prompt": add_generation_prompt}
            text = self._renderings.text(read, len(messages), variables)
            if text is not None:
                return text
        return self._otherwise.render(messages, tools=tools, add_generation_prompt=add_generation_prompt, kwargs=kwargs)

    def _reading(self, tools: Sequence[Any] | None, messages: Sequence[Message]) -> Read:
        """The conversation these messages are part of: the row's own, one made of it, or one that asks for losses."""
        for read in self._read:
            if read.reads(tools, messages):
                return read
        del self._read[_MAX_READ:]
        self._read.insert(0, Read(tools, self._renderings.number_of))
        return self._read[0]
