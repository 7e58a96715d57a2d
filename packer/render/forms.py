"""The form of a conversation: everything of it but its words, which are its texts, numbered in one list.

Conversations of one form differ in their words alone: the same roles, the same fields in the same order, a text, an
empty text or null in the same places. Not every conversation has a form: no text is blank and not empty, and a field is
a text, a truth value or null. So a message with calls has none.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from packer.batches import REASONING_FIELDS
from packer.render.slots import Condition, Slot
from packer.render.traced import Traced

Shape: TypeAlias = "Literal['text'] | tuple[Any]"
"""A text that is not blank; a constant stands for itself: `(None,)`, `("",)`, `(True,)`."""

Fields: TypeAlias = tuple[tuple[str, Shape], ...]
"""Keys of a message in their order, and the shape of each value."""

Form: TypeAlias = tuple[Fields, ...]
"""Of each message."""

Message = Mapping[str, Any]

_TEXT: Shape = "text"
_PLAIN = ["role", "content"]


class FormlessError(Exception):
    """A conversation that has no form."""


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


def _field(name: str, value: Any, words: list[Any]) -> Shape:
    if name == "role":
        return (value,) if type(value) is str else _formless()
    return _text(value, words)


def _text(value: Any, words: list[Any]) -> Shape:
    if type(value) is str and value:
        if value.isspace():
            raise FormlessError
        words.append(value)
        return _TEXT
    return (value,) if value is None or value == "" or type(value) is bool else _formless()


def _formless() -> Any:
    raise FormlessError


def worded(form: Form, text: Callable[[int], str]) -> list[dict[str, Any]]:
    """The messages of a form with words of some make, which `text` makes of their numbers."""
    numbers = itertools.count()
    return [
        {name: shape[0] if isinstance(shape, tuple) else text(next(numbers)) for name, shape in fields}
        for fields in form
    ]


def traced_words(noted: list[Condition]) -> Callable[[int], str]:
    """Makes traced words, which note the conditions in a list."""
    return lambda number: Traced([Slot(number)], noted)
