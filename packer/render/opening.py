"""The part of a template before its loop over the messages: what it writes, and the state that it leaves.

States are comparable. If two are equal, the loop cannot distinguish them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jinja2
import jinja2.runtime
import jinja2.utils
from jinja2 import pass_context

from packer.render.message_list import MessageList
from packer.render.symbolic import OpaqueError
from packer.render.template_parts import ITEMS, LENGTH, RENDERING, STOP, Halves, TemplateParts

STOPPED = "\ue0f6"
"""What a rewritten template writes where it pauses."""

SCALARS = frozenset({str, int, bool, type(None)})

Attributes = dict[str, Any]
"""The attributes of a namespace, by name."""


def opened(
    parts: TemplateParts,
    context_of: Callable[[jinja2.Template, Mapping[str, Any]], Any],
    messages: Sequence[Any],
    variables: Mapping[str, Any],
) -> "Opening":
    """Render the part of a template before the loop.

    Raises:
        OpaqueError: the state in which it enters the loop cannot be compared with another.
    """
    opening = Opening(MessageList(messages))
    for piece in _pieces(parts.opening, context_of, variables, opening):
        opening.written.append(piece)  # one by one, since `begin` reads it in the meantime
    return opening


class FirstHalf:
    """A rendering of the first half of the part before the loop, see :attr:`TemplateParts.halves`."""

    found: Mapping[str, Any]
    """The variables that it sets."""

    comparable: Mapping[str, tuple[Any, ...]]
    """The same in comparable form."""

    def __init__(
        self,
        halves: Halves,
        context_of: Callable[[jinja2.Template, Mapping[str, Any]], Any],
        messages: Sequence[Any],
        variables: Mapping[str, Any],
    ) -> None:
        self.read = messages[: halves.num_read]
        """The messages that it may read."""

        self.number: int | None = None
        """Number of what the second half may read of variables, once it was asked for."""

        self.outer: dict[int, tuple[Any, int]] = {}
        """The same for the loop, by the identity of the second half's recording, which is kept with it."""

        self.is_plain = False
        """Whether its text has no escape."""

        self.messages = MessageList(messages)
        self.text = "".join(_pieces(halves.first, context_of, variables, self))

    def begin(self, context: jinja2.runtime.Context, items: Any) -> str:
        """Record the variables. Return a text without content."""
        del items
        self.found = dict(context.vars)
        self.comparable = comparable(self.found)
        self.has_no_namespaces = not namespaces_of(self.found.values())
        return ""


def _pieces(
    template: jinja2.Template,
    context_of: Callable[[jinja2.Template, Mapping[str, Any]], Any],
    variables: Mapping[str, Any],
    opening: "Opening | FirstHalf",
) -> Iterator[str]:
    """Run a rewritten template, and yield what it writes; `opening` is told where its loop begins."""
    own = {"messages": opening.messages, RENDERING: opening, STOP: STOPPED}
    return template.root_render_func(context_of(template, {**variables, **own}))


class Opening:
    """A rendering of the part of the template before the loop, and the state in which it enters the loop."""

    text: str
    variables: Mapping[str, Any]
    """In the comparable form of :func:`_comparable`."""

    held: Sequence[Attributes]
    """Attributes of each namespace, in the same form."""

    depends_on_end: bool
    """Whether any of this depends on where the conversation ends."""

    start: int
    """Index of the first message that the loop runs over."""

    def __init__(self, messages: MessageList) -> None:
        self.messages = messages
        self.written: list[str] = []

    def begin(self, context: jinja2.runtime.Context, items: Any) -> str:
        """Record the state at the start of the loop. Return a text without content: an opening ends here.

        Raises:
            OpaqueError: the loop does not iterate over the unmodified messages of the conversation.
        """
        if type(items) is not MessageList:
            raise OpaqueError("the loop runs over something else than messages")
        self.depends_on_end = self.messages.depends_on_end
        spaces: list[Any] = []
        self.variables = {name: _comparable(value, spaces) for name, value in context.vars.items()}
        self.start = items.start
        self.held = [
            {name: _comparable(value, spaces) for name, value in attributes_of(space).items()} for space in spaces
        ]
        self.text = "".join(self.written)
        return ""


class Space:
    """Type tag of a namespace in the form of :func:`_comparable`."""


def _comparable(value: Any, spaces: list[Any]) -> tuple[Any, ...]:
    """Return a comparable form of a value: if two values have equal forms, no template can distinguish them.

    The form refers to namespaces by their number in `spaces`, those seen so far; new ones are appended.

    Raises:
        OpaqueError: the value may have hidden state.
    """
    kind = type(value)
    if kind in SCALARS:
        return kind, value
    if kind in (list, tuple):
        return kind, *(_comparable(item, spaces) for item in value)
    if kind is dict:
        return kind, *((_comparable(name, spaces), _comparable(item, spaces)) for name, item in value.items())
    if kind is float:
        return kind, repr(value)  # distinguishes 0.0 from -0.0
    if kind is MessageList:
        return kind, value.start
    if kind is jinja2.Undefined:
        return kind, value._undefined_name, value._undefined_hint  # noqa: SLF001 - nothing else distinguishes them
    if kind is jinja2.runtime.Macro:
        return kind, value._func.__code__  # noqa: SLF001 - equal for equal template source
    if not isinstance(value, jinja2.utils.Namespace):
        raise OpaqueError("a value that may have hidden state")
    number = next((number for number, space in enumerate(spaces) if space is value), len(spaces))
    if number == len(spaces):
        spaces.append(value)
    return Space, number


def comparable(values: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return values in a comparable form: if two values have equal forms, no template can distinguish them.

    Raises:
        OpaqueError: a value may have hidden state.
    """
    spaces: list[Any] = []
    return {name: _comparable(value, spaces) for name, value in values.items()}


def namespaces_of(values: Iterable[Any]) -> list[Any]:
    """Return the namespaces that values refer to, in the order in which states number them.

    Raises:
        OpaqueError: a value may have hidden state.
    """
    spaces: list[Any] = []
    for value in values:
        _comparable(value, spaces)
    return spaces


def attributes_of(space: Any) -> Attributes:
    """Return the attributes of a namespace; changes of them are changes of the namespace."""
    attributes: Attributes = object.__getattribute__(space, "_Namespace__attrs")
    return attributes


@pass_context
def _items(context: jinja2.runtime.Context, items: Any, opening: Opening | FirstHalf) -> str:
    return opening.begin(context, items)


def _length(items: Any, enough: int) -> int:
    """Return the number of items, or just `enough` if there are certainly that many.

    The exact number would make the opening depend on where the conversation ends.
    """
    return enough if type(items) is MessageList and items.is_in_every_extension(enough) else len(items)


FILTERS = {ITEMS: _items, LENGTH: _length}
"""Filters that the parts before the loop use; the environment of all templates has them."""
