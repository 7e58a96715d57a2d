"""Records what a template writes for one message, or as its ending, as a function of what it reads.

The rewritten template of :mod:`packer.render.template_parts` runs up to its loop over the messages, with a real
conversation. From there on, each iteration runs on its own, with unknown values: texts are symbolic
(:mod:`packer.render.symbolic`), numbers and the arguments of calls are unknown
(:mod:`packer.render.composed.unknowns`). What an iteration reads of other messages is their shape, which is recorded as
well. So a recording holds for any conversation of which the same is true.
"""

import functools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jinja2
import jinja2.runtime

from packer.render import symbolic
from packer.render.composed.message_content import value_of
from packer.render.composed.unknowns import ITEM, SIZE, ZERO, Number, WalkedArguments, kind_of, refuse
from packer.render.composed.written import (
    ARGUMENTS,
    AT,
    JsonSettings,
    Leaf,
    Neighbor,
    Placed,
    TextCondition,
    Written,
    is_unknown_text,
)
from packer.render.message_list import MessageList
from packer.render.opening import STOPPED, ContextOf, attributes_of, comparable, namespaces_of
from packer.render.search_loops import RENDERING
from packer.render.symbolic import HIDDEN, SEEN_BLINDLY, OpaqueError, Slot, SymbolicText, Unknown, pieces_of
from packer.render.template_parts import STOP

END = object()
"""Stands for what follows the last message."""

_LONGEST_SEARCH = 8
"""Maximum number of messages to go back through: each distance makes a recording of its own, which is about all of the
messages up to there. Rendering what comes before the loop takes less time then."""


class _Texts(symbolic.Questions):
    """Questions that are answered as they are for the texts of a conversation."""

    def __init__(self, messages: Sequence[Any], numbers: Sequence[int], leaves: Sequence[Leaf]) -> None:
        super().__init__()
        self._messages, self._numbers, self._leaves = messages, numbers, leaves

    def text_of(self, slot: Slot) -> str:
        return value_of(self._leaves[slot.number], self._numbers, self._messages)


class _Recorder:
    """Passes unknown values to a template, and records what it asks about them."""

    start: int
    """Index of the first message that the loop runs over."""

    _walks = False
    """Whether the arguments of a message's own calls are :class:`WalkedArguments`."""

    def __init__(self, shape_of: Callable[[Any], int], attributes: Container[str] | None) -> None:
        """`attributes`: those of namespaces that the template may read later; None if that is not known."""
        self.ending: Sequence[Any] | None = None
        self.numbers: Sequence[int] = ()
        self.conditions: list[Any] = []
        self._shape_of = shape_of
        self._attributes = attributes
        self._begin((), ())

    def _begin(self, messages: Sequence[Any], numbers: Sequence[int]) -> None:
        self._messages, self.numbers = messages, numbers
        self.conditions.clear()
        self._neighbors: list[Neighbor] = []
        self._leaves: list[Leaf] = []
        self._texts = _Texts(messages, numbers, self._leaves)

    def _parts(self, written: Iterable[str]) -> tuple[str | Placed, ...]:
        parts: list[str | Placed] = []
        for piece in (piece for text in written for piece in pieces_of(text)):
            if isinstance(piece, Slot):
                parts.append(Placed(self._leaves[piece.number], piece._replace(number=0)))
            elif any(hidden in piece for hidden in (*SEEN_BLINDLY, AT)):
                raise OpaqueError("code in C handled an unknown value, or wrote an address")
            elif parts and isinstance(parts[-1], str):
                parts[-1] += piece
            else:
                parts.append(piece)
        return tuple(parts)

    def cut(self, messages: MessageList, place: slice) -> Any:  # noqa: ARG002 - as a recorder that gives them
        """Refuse to give more than one message.

        Raises:
            OpaqueError: always.
        """
        raise OpaqueError("some of the messages")

    def failed(self) -> Written:
        """Return that the template cannot be recorded, under the conditions so far."""
        return self._made(None, ())

    def _made(self, parts: tuple[str | Placed, ...] | None, changes: Iterable[tuple[int, str, Any]]) -> Written:
        if parts is not None:
            symbolic.refuse_stand_ins(self._texts)
            placed = {part.leaf for part in parts if isinstance(part, Placed)}
            for number, leaf in enumerate(self._leaves):
                if leaf.settings is not None and leaf not in placed:
                    self._texts.ask(Slot(number), "holds", HIDDEN)  # it may raise: Python does not write long numbers
        asked = dict.fromkeys((self._leaves[each.slot.number], each) for each in self._texts)
        return Written(
            tuple(dict.fromkeys(self.conditions)),
            tuple(dict.fromkeys(self._neighbors)),
            tuple(TextCondition(leaf, each._replace(slot=each.slot._replace(number=0))) for leaf, each in asked),
            parts,
            tuple(changes),
        )

    def at(self, base: int, shift: int) -> Any:
        """Return a message with unknown values, or None if there is none."""
        place = shift if base == ZERO else self.numbers[base] + shift
        if place < 0:
            raise OpaqueError("a message before the first")
        message = self._messages[place] if place < len(self._messages) else None
        if base != ITEM or shift:
            self._neighbors.append(Neighbor(base, shift, None if message is None else self._shape_of(message)))
        return None if message is None else self._unknown(message, Leaf(base, shift, ()))

    def _may_read(self, attribute: str) -> bool:
        return self._attributes is None or attribute in self._attributes

    def _unknown(self, value: Any, leaf: Leaf) -> Any:
        name = leaf.path[-1] if leaf.path else None
        if is_unknown_text(value, name):
            return self.symbolic(leaf)
        walks = self._walks and leaf[:2] == (ITEM, 0) and leaf.member is None
        if name == ARGUMENTS and (unknown := kind_of(value, walks=walks)) is not None:
            write = functools.partial(self._written_as, leaf)
            if unknown is not WalkedArguments:
                return unknown(write)
            members = [
                tuple([self._unknown(each, leaf._replace(member=(number, part))) for part, each in enumerate(member)])
                for number, member in enumerate(value.items())
            ]
            return WalkedArguments(write, members)
        if type(value) is dict:
            return {key: self._unknown(each, leaf._replace(path=(*leaf.path, key))) for key, each in value.items()}
        if type(value) is list:
            return [self._unknown(each, leaf._replace(path=(*leaf.path, n))) for n, each in enumerate(value)]
        return value

    def symbolic(self, leaf: Leaf) -> SymbolicText:
        self._leaves.append(leaf)
        return SymbolicText([Slot(len(self._leaves) - 1)], self._texts)

    def as_json(self, text: SymbolicText, settings: JsonSettings) -> SymbolicText:
        """Return a text as JSON.

        Raises:
            OpaqueError: it was changed before.
        """
        (slot,) = text.pieces if len(text.pieces) == 1 else ("",)
        if not isinstance(slot, Slot) or slot.changes or self._leaves[slot.number].settings is not None:
            raise OpaqueError("JSON of a text that was changed")
        return self._written_as(self._leaves[slot.number], settings)

    def _written_as(self, leaf: Leaf, settings: JsonSettings | tuple[()]) -> SymbolicText:
        return self.symbolic(leaf._replace(settings=settings))


class MessageRecorder(_Recorder):
    """A template that runs for one message at a time."""

    def run(
        self,
        template: jinja2.Template,
        context_of: ContextOf,
        messages: Sequence[Any],
        variables: Mapping[str, Any],
    ) -> None:
        """Run the template up to its loop.

        Args:
            template: rewritten for symbolic texts, see :func:`recordable`.
            context_of: creates the Jinja context of a template and its variables.
            messages: of a conversation, from its first.
            variables: all but the messages, and those that only the ending reads.

        Raises:
            OpaqueError: the loop runs over something else than messages.
        """
        self._list = MessageList(messages)
        own = {"messages": self._list, RENDERING: self, STOP: STOPPED}
        self._pieces = template.root_render_func(context_of(template, {**variables, **own}))
        self._written()

    def _written(self) -> list[str]:
        written: list[str] = []
        for piece in self._pieces:
            if piece is STOPPED:
                return written
            written.append(piece)
        raise OpaqueError("the template ended")

    def begin(self, context: jinja2.runtime.Context, items: Any) -> "MessageRecorder":
        """Begin the loop: return the iterable that it runs over."""
        if type(items) is not MessageList:
            raise OpaqueError("the loop runs over something else than messages")
        self.start = items.start
        self._spaces = [attributes_of(space) for space in namespaces_of(context.vars.values())]
        self._list.recorder = self
        return self

    def __iter__(self) -> Iterator[Any]:
        yield END
        while True:
            if self.ending is None:
                yield self.at(ITEM, 0)
            yield END

    def record(
        self,
        messages: Sequence[Any],
        numbers: Sequence[int],
        held: Sequence[Mapping[str, Any]],
        ending: Sequence[Any] | None,
        *,
        walks: bool,
    ) -> Written:
        """Run the template for one message, or for its ending.

        Args:
            messages: the conversation.
            numbers: the index of the message, the number of messages, and the integers that namespaces hold.
            held: attributes of each namespace; in place of an integer, the index of its value in `numbers`.
            ending: values of the variables that only the ending reads; None to run it for a message.
            walks: whether it walks through the arguments of the message's calls.

        Raises:
            Exception: any that the template raises, or OpaqueError. :meth:`failed` tells what it had asked before.
        """
        self._begin(messages, numbers)
        self.ending, self._walks = ending, walks
        before = [
            {name: Number(self, value) if type(value) is int else value for name, value in attributes.items()}
            for attributes in held
        ]
        for space, attributes in zip(self._spaces, before, strict=True):
            space.clear()
            space.update(attributes)
        return self._made(self._parts(self._written()), self._changes(before))

    def _changes(self, before: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str, Any]]:
        for number, (old, now) in enumerate(zip(before, self._spaces, strict=True)):
            for name, value in now.items():
                if self._may_read(name) and (name not in old or old[name] is not value):
                    yield number, name, _held(value)


class OpeningRecorder(_Recorder):
    """Records the second half of what a template does before its loop, see
    :attr:`packer.render.template_parts.TemplateParts.halves`.
    """

    found: dict[str, tuple[Any, ...]]
    """The variables that it sets, in comparable form."""

    num_namespaces: int

    def record(
        self,
        template: jinja2.Template,
        context_of: ContextOf,
        messages: Sequence[Any],
        variables: Mapping[str, Any],
        names: Container[str],
    ) -> Written:
        """Run it. The changes are the attributes of new namespaces; `names` are read later.

        Raises:
            Exception: as in :meth:`MessageRecorder.record`.
        """
        self._begin(messages, (len(messages), len(messages)))
        known = MessageList(messages)
        known.recorder = self
        own = {"messages": known, RENDERING: self, STOP: STOPPED}
        parts = self._parts(template.root_render_func(context_of(template, {**variables, **own})))
        unknown = {name for name, value in self._set.items() if isinstance(value, Unknown)}
        if any(name in names for name in unknown):
            raise OpaqueError("a variable that is unknown")
        left = {name: value for name, value in self._set.items() if name not in unknown}
        self.found = comparable(left)
        if any(name in variables for name, value in left.items() if namespaces_of([value])):
            raise OpaqueError("a namespace in place of another variable, which has its place in the order of variables")
        spaces = namespaces_of(left.values())
        self.num_namespaces = len(spaces)
        held = ((n, name, value) for n, space in enumerate(spaces) for name, value in attributes_of(space).items())
        return self._made(parts, [(n, name, _held(value)) for n, name, value in held if self._may_read(name)])

    def begin(self, context: jinja2.runtime.Context, items: Any) -> str:
        """Record the state at the start of the loop."""
        if type(items) is not MessageList:
            raise OpaqueError("the loop runs over something else than messages")
        self.start, self._set = items.start, dict(context.vars)
        return ""

    def cut(self, messages: MessageList, place: slice) -> Any:
        """Return a suffix of the messages, or all of them from the last to the first."""
        if (place.start, place.stop, place.step) == (None, None, -1):
            return _Backwards(self, messages.start)
        start = 0 if place.start is None else place.start
        if place.stop is not None or place.step is not None or type(start) is not int or start < 0:
            raise OpaqueError("some of the messages")
        start += messages.start
        if Number(self, SIZE) < start:
            raise OpaqueError("messages behind the last")
        return MessageList(self._messages[start:], start, messages.root)


class _Backwards(Sequence[Any]):  # noqa: PLW1641 - nothing asks for its hash
    """The messages from the last to the one at `start`: they are only gone through."""

    def __init__(self, recorder: OpeningRecorder, start: int) -> None:
        self._recorder, self._start = recorder, start

    def __iter__(self) -> Iterator[Any]:
        recorder = self._recorder
        (size, *_) = recorder.numbers
        for number in range(size - self._start):
            if number == _LONGEST_SEARCH:
                raise OpaqueError("a search through many messages")
            if Number(recorder, SIZE, -1 - number) < self._start:  # recorded: there are as many
                raise AssertionError
            yield recorder.at(SIZE, -1 - number)
        if Number(recorder, SIZE) != size:  # recorded: there were no more
            raise AssertionError

    def __eq__(self, other: object) -> bool:
        return refuse(self, other)

    def __len__(self) -> int:
        return refuse(self)

    def __getitem__(self, place: Any) -> Any:
        return refuse(self, place)


def _held(value: Any) -> Any:
    """Return the value of an attribute of a namespace; base and shift of a number."""
    if type(value) is Number:
        return value.base, value.shift
    if value is None or type(value) in (bool, int, str):
        return value
    raise OpaqueError("a namespace holds something else")
