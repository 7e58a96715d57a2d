"""The form of a conversation: everything of it but its words, which are texts and JSON values, numbered in one list.

Conversations of one form differ in their words alone: the same roles, the same fields in the same order, a text, an
empty text or null in the same places, calls and tools of the same keys. Not every conversation has a form: no text is
blank and not empty, a field is a text, a truth value or null, and a call holds a function with its arguments.

The words are those of the tools, then those of each message: of tools the list, each tool, its function, and what the
function holds; of a message its texts, and of each call its texts and its arguments.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from packer.batches import REASONING_FIELDS
from packer.render.opaque import KnownList, KnownObject, Opaque
from packer.render.slots import Condition, Listed, Nested, Slot
from packer.render.traced import Traced

Kind: TypeAlias = Literal["text", "object", "list"]
"""A text that is not blank; an object or a list that is not empty."""

Shape: TypeAlias = "Kind | tuple[Any]"
"""Of a word its kind; a constant stands for itself: `(None,)`, `("",)`, `(True,)`."""

Fields: TypeAlias = tuple[tuple[str, Any], ...]
"""Keys in their order, and the shape of each value; of `function` the fields, of `tool_calls` those of each call."""

Message = Mapping[str, Any]

_TEXT: Kind = "text"
_PLAIN = ["role", "content"]


class FormlessError(Exception):
    """A conversation that has no form."""


class Form(NamedTuple):
    """The forms of tools and messages."""

    tools: tuple[Fields, ...]
    messages: tuple[Fields, ...]


def read_message(message: Message, words: list[Any]) -> Fields:
    """The form of a message, whose words are added to a list.

    Raises:
        FormlessError: it has none.

    """
    if [*message] == _PLAIN:  # nearly always
        text = message["content"]
        if type(text) is str and text and not text.isspace():
            words.append(text)
            return _plain(message["role"])
    if any(name in message for name in REASONING_FIELDS):
        raise FormlessError
    return tuple([(name, _field(name, value, words)) for name, value in message.items()])


@functools.lru_cache(64)
def _plain(role: str) -> Fields:
    return (("role", (role,)), ("content", _TEXT))


def _field(name: str, value: Any, words: list[Any]) -> Any:
    if name == "role":
        return (value,) if type(value) is str else _formless()
    if name != "tool_calls" or value is None:
        return _text(value, words)
    if type(value) is not list or not value:
        raise FormlessError
    return tuple(_call(call, words, _argument) for call in value)


def read_tools(tools: Sequence[Any] | None, words: list[Any]) -> tuple[Fields, ...]:
    """The same of tools.

    Raises:
        FormlessError: they have none.

    """
    if not tools:
        return ()
    if type(tools) is not list:
        raise FormlessError
    numbers: list[int] = []
    words.append(Listed(tools, numbers))
    return tuple([_tool(tool, words, numbers) for tool in tools])


def _tool(tool: Any, words: list[Any], numbers: list[int]) -> Fields:
    numbers.append(len(words))
    words.append(tool)
    return _call(tool, words, _described, whole=True)


def _call(call: Any, words: list[Any], part: Callable[[str, Any, list[Any]], Shape], *, whole: bool = False) -> Fields:
    """A call or a tool. `whole`: the function is a word too."""
    if (
        type(call) is not dict
        or type(call.get("function")) is not dict
        or type(call["function"].get("name")) is not str
    ):
        raise FormlessError
    fields: list[tuple[str, Any]] = []
    for name, value in call.items():
        if name == "function":
            words += [Nested(value)] * whole
            fields.append((name, tuple((key, part(key, item, words)) for key, item in value.items())))
        elif name == "type":
            fields.append((name, (value,) if value == "function" else _formless()))
        else:
            fields.append((name, _text(value, words)))
    return tuple(fields)


def _argument(name: str, value: Any, words: list[Any]) -> Shape:
    """Part of the function of a call."""
    return _object(value, value, words) if name == "arguments" and type(value) is dict else _text(value, words)


def _described(_: str, value: Any, words: list[Any]) -> Shape:
    """Part of the function of a tool."""
    if type(value) is list and value:
        words.append(Nested(value))
        return "list"
    return _object(value, Nested(value), words) if type(value) is dict else _text(value, words)


def _object(value: dict[str, Any], word: Any, words: list[Any]) -> Shape:
    if not value:
        return (_Empty,)
    words.append(word)
    return "object"


class _Empty:
    """Stands for an empty object, which has no hash."""


def _text(value: Any, words: list[Any]) -> Shape:
    if type(value) is str and value:
        if value.isspace():
            raise FormlessError
        words.append(value)
        return _TEXT
    return (value,) if value is None or value == "" or type(value) is bool else _formless()


def _formless() -> Any:
    raise FormlessError


class Wording:
    """Puts words of some make into a form, in the order in which they were read.

    Args:
        text: makes the text of a number.
        value: makes an object, or a list.
        whole: makes the word of tools out of what is in them.

    """

    def __init__(
        self,
        text: Callable[[int], str],
        value: Callable[[int, Kind], Any],
        whole: Callable[[Any, int], Any] = lambda value, _: value,
    ) -> None:
        self._text, self._value, self._whole = text, value, whole
        self._number = -1
        self.values: list[Any] = []
        """The words made so far; of tools as they are without their wording."""

    def conversation(self, form: Form) -> tuple[list[Any] | None, list[dict[str, Any]]]:
        """Tools and messages of a form."""
        return self._tools(form.tools) if form.tools else None, [self._message(fields) for fields in form.messages]

    def filled(self, form: Form) -> list[Any]:
        """The words of a conversation of a form."""
        self.conversation(form)
        return self.values

    def _tools(self, forms: Sequence[Fields]) -> list[Any]:
        number = self._next()
        tools = [self._tool(fields) for fields in forms]
        self.values[number] = list(tools)
        whole: list[Any] = self._whole(tools, number)
        return whole

    def _tool(self, fields: Fields) -> Any:
        number = self._next()
        tool: dict[str, Any] = {}
        for name, shape in fields:
            if name == "function":
                inner = self._next()
                self.values[inner] = {key: self._part(part) for key, part in shape}
                tool[name] = self._whole(self.values[inner], inner)
            else:
                tool[name] = self._part(shape)
        self.values[number] = tool
        return self._whole(tool, number)

    def _message(self, fields: Fields) -> dict[str, Any]:
        message: dict[str, Any] = {}
        for name, shape in fields:
            calls = name == "tool_calls" and shape != (None,)
            message[name] = [self._call(call) for call in shape] if calls else self._part(shape)
        return message

    def _call(self, fields: Fields) -> dict[str, Any]:
        return {
            name: {key: self._part(part) for key, part in shape} if name == "function" else self._part(shape)
            for name, shape in fields
        }

    def _part(self, shape: Shape) -> Any:
        if isinstance(shape, tuple):
            return {} if shape[0] is _Empty else shape[0]
        number = self._next()
        self.values[number] = self._text(number) if shape == "text" else self._value(number, shape)
        return self.values[number]

    def _next(self) -> int:
        self._number += 1
        self.values.append(None)
        return self._number


def traced_wording(noted: list[Condition]) -> Wording:
    """Traced words, which note the conditions in a list."""

    def whole(value: Any, number: int) -> Any:
        return KnownList(value, number, noted) if isinstance(value, list) else KnownObject(value, number, noted)

    return Wording(
        lambda number: Traced([Slot(number)], noted),
        lambda number, kind: Opaque(number, noted, is_list=kind == "list"),
        whole,
    )


def plain_wording(text: Callable[[int], str]) -> Wording:
    """Plain words; a JSON value holds one."""

    def value(number: int, kind: Kind) -> Any:
        return [text(number)] if kind == "list" else {"value": text(number)}

    return Wording(text, value)
