"""The part of a template before its loop over the messages: what it writes, and the state that it leaves.

States are comparable. If two are equal, the loop cannot distinguish them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any, Protocol

import jinja2
import jinja2.runtime
import jinja2.utils
from jinja2 import pass_context

from packer.render.idle_messages import AskedMessage, IdleMessages
from packer.render.message_list import MessageList
from packer.render.search_loops import LENGTH, NOTED, RENDERING, WALK
from packer.render.symbolic import OpaqueError
from packer.render.template_parts import ITEMS, STOP, Halves

STOPPED = "\ue0f6"
"""What a rewritten template writes where it pauses."""

SCALARS = frozenset({str, int, bool, type(None)})

ContextOf = Callable[[jinja2.Template, Mapping[str, Any]], Any]

_SIMPLE = SCALARS | {jinja2.Undefined, jinja2.runtime.Macro}
"""Types of values that no namespace belongs to."""

Attributes = dict[str, Any]
"""The attributes of a namespace, by name."""


class FirstHalf:
    """A run of the first half of the part before the loop, for all openings of a conversation.

    Args:
        halves: of the template.
        context_of: creates the Jinja context of a template and its variables.
        messages: of the conversation, from its first.
        variables: all but the messages, and those that only the ending reads.

    Raises:
        OpaqueError: a variable that it sets may have hidden state.
    """

    def __init__(
        self, halves: Halves, context_of: ContextOf, messages: Sequence[Any], variables: Mapping[str, Any]
    ) -> None:
        self.halves, self.context_of = halves, context_of
        self.read = messages[: halves.num_read]
        """The messages that it may have read."""

        self.is_plain = False
        """Whether its text has no escape."""

        self.text = ""
        self.found: Mapping[str, Any] = {}
        """The variables that it sets."""

        if halves.first is not None:
            own = {"messages": MessageList(messages), RENDERING: self, STOP: STOPPED}
            self.text = "".join(_pieces(halves.first, context_of, {**variables, **own}))
        self.variables = {**variables, **self.found}
        self.spaces: list[Any] = []
        self.comparable = {name: _comparable(value, self.spaces) for name, value in self.found.items()}
        self.held = [dict(attributes_of(space)) for space in self.spaces]
        """Attributes of each namespace."""

        self.number: int | None = None
        """Number of what the second half may read of variables, once it was asked for."""

        self.outer: dict[tuple[int, int], tuple[Any, int]] = {}
        """The same for the loop, by the identity of the second half's recording, which is kept with it, and setting."""

        self._idle = [IdleMessages() for _ in range(halves.num_loops)]
        self._idle_in_all: dict[int, Any] = {}
        """Messages for which no loop does anything, by their identities."""

    def is_of(self, messages: Sequence[Any]) -> bool:
        """Whether it serves for this conversation."""
        return len(self.read) == min(self.halves.num_read, len(messages)) and all(map(is_, self.read, messages))

    def idle(self, loop: int) -> IdleMessages:
        """Return the messages for which a loop of the second half does nothing."""
        return self._idle[loop]

    def num_looked_at(self, messages: Sequence[Any]) -> int:
        """Return the number of messages up to the last for which a loop may do something."""
        number, idle = len(messages) if self._idle else 0, self._idle_in_all
        while number and (id(messages[number - 1]) in idle or self._is_idle(messages[number - 1])):
            number -= 1
        return number

    def _is_idle(self, message: Any) -> bool:
        for idle in self._idle:
            if not idle.holds(message):
                return False
        self._idle_in_all[id(message)] = message
        return True

    def begin(self, context: jinja2.runtime.Context, items: Any) -> str:
        """Record the variables. Return a text without content."""
        del items
        self.found = dict(context.vars)
        return ""


class Size(Protocol):
    """Stands for the number of messages."""

    @property
    def number(self) -> Any:
        """What a template gets; it refuses whatever cannot be recorded."""

    conditions: list[Any]
    """What the template asked about it."""


class Opening:
    """A rendering of the part of the template before the loop, and the state in which it enters the loop.

    Args:
        half: its first half.
        messages: of the conversation, from its first.
        size: what stands for the number of messages; None for the number itself.

    Raises:
        OpaqueError: that state cannot be compared with another, or depends on what stands for the number.
    """

    variables: Mapping[str, Any]
    """In the comparable form of :func:`_comparable`."""

    held: Sequence[Attributes]
    """Attributes of each namespace, in the same form."""

    start: int
    """Index of the first message that the loop runs over."""

    def __init__(self, half: FirstHalf, messages: Sequence[Any], size: "Size | None" = None) -> None:
        known = MessageList(messages)
        known.size = None if size is None else size.number
        self._half = half
        for space, held in zip(half.spaces, half.held, strict=True):
            attributes = attributes_of(space)
            attributes.clear()
            attributes.update(held)
        own = {"messages": known, RENDERING: self, STOP: STOPPED}
        self.text = half.text + "".join(_pieces(half.halves.second, half.context_of, {**half.variables, **own}))
        too_few = len(messages) < half.halves.num_read
        self.depends_on_end = known.depends_on_end or too_few or (size is not None and bool(size.conditions))
        """Whether any of this depends on where the conversation ends, except for what loops look for."""

        num_read = max(known.num_read, len(half.read), half.num_looked_at(messages))
        self.read = messages if self.depends_on_end else messages[:num_read]
        """The messages that it depends on."""

    def holds_for(self, messages: Sequence[Any]) -> bool:
        """Whether it is the same for other messages, if loops may do something up to the same of them."""
        return begins_with(self.read, messages, exactly=self.depends_on_end)

    def begin(self, context: jinja2.runtime.Context, items: Any) -> str:
        """Record the state at the start of the loop. Return a text without content: an opening ends here.

        Raises:
            OpaqueError: the loop does not iterate over the unmodified messages of the conversation.
        """
        if type(items) is not MessageList:
            raise OpaqueError("the loop runs over something else than messages")
        half, found = self._half, context.vars
        self.start = items.start
        spaces = [*half.spaces]
        own = {name: _comparable(value, spaces) for name, value in found.items()}
        again = [each for name in half.comparable.keys() & own for each in (half.comparable[name], own[name])]
        self.variables = {**half.comparable, **own}
        if any(each[0] not in _SIMPLE for each in again):  # other namespaces, perhaps, or in another order
            spaces = []
            self.variables = {name: _comparable(value, spaces) for name, value in {**half.found, **found}.items()}
        self.held = [
            {name: _comparable(value, spaces) for name, value in attributes_of(space).items()} for space in spaces
        ]
        return ""

    def walk(self, items: Any, loop: int, *, backwards: bool) -> Iterator[Any]:
        """Yield the places and the items of a list; of the messages, those for which a loop may do something.

        Args:
            items: the list.
            loop: number of the loop in its template.
            backwards: whether the loop runs from the end.
        """
        if type(items) is not MessageList:
            yield from enumerate(items[::-1] if backwards else items)
            return
        idle, known, size = self._half.idle(loop), items.known, items.root.size
        if size is None:
            items.root.depends_on_end, size = True, len(items.root.known)
        for number in reversed(range(len(known))) if backwards else range(len(known)):
            message = known[number]
            if idle.holds(message):
                continue
            asked, self._noted = AskedMessage(message), False
            yield (size - (items.start + 1 + number) if backwards else number), asked
            if not self._noted:
                idle.add(message, asked)

    def note(self, value: Any) -> Any:
        """Note that an iteration does something, or reads a value that may be another at another time; return it."""
        self._noted = True
        return value


def begins_with(first: Sequence[Any], messages: Sequence[Any], *, exactly: bool) -> bool:
    """Whether messages begin with these very ones, or, if `exactly`, are these."""
    more = len(messages) - len(first)
    return more >= 0 and not (exactly and more) and all(map(is_, first, messages))


def _pieces(template: jinja2.Template, context_of: ContextOf, variables: Mapping[str, Any]) -> Iterator[str]:
    """Run a template, and yield what it writes."""
    return template.root_render_func(context_of(template, variables))


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


def _count(items: Any) -> Any:
    """The filter `length`, for lists of messages of unknown number, too."""
    if type(items) is MessageList and items.root.size is not None:
        return items.root.size - items.start if items.start else items.root.size
    return len(items)


def _length(items: Any, enough: int) -> int:
    """Return the number of items, or just `enough` if there are certainly that many.

    The exact number would make the opening depend on where the conversation ends.
    """
    return enough if type(items) is MessageList and items.is_in_every_extension(enough) else len(items)


def _walk(items: Any, opening: Opening, loop: int, backwards: bool) -> Iterator[Any]:  # noqa: FBT001 - as filters are called
    return opening.walk(items, loop, backwards=backwards)


def _noted(value: Any, opening: Opening) -> Any:
    return opening.note(value)


FILTERS = {"length": _count, "count": _count, ITEMS: _items, LENGTH: _length, NOTED: _noted, WALK: _walk}
"""Filters for the parts before the loop; the environment of all templates has them."""
