"""A conversation as far as it has a form; each message is read once, however many conversations are made of it.

One with calls has none here: see :mod:`packer.render.filling`.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import is_
from typing import Any, TypeAlias

from packer.render.forms import Fields, Form, FormlessError, read_message
from packer.render.slots import Words

Message: TypeAlias = Mapping[str, Any]


class Reader:
    """Reads messages; it keeps them, so that no other has the identity of one.

    Args:
        number_of: a number for the form of a message.

    """

    def __init__(self, number_of: Callable[[Hashable], int]) -> None:
        self._number_of = number_of
        self._messages: dict[int, tuple[Message, tuple[Fields, int, list[Any]] | None]] = {}

    def message(self, message: Message) -> tuple[Fields, int, list[Any]] | None:
        """Form of a message, its number and its words; None where it has no form."""
        known = self._messages.get(id(message))
        if known is None:
            known = self._messages[id(message)] = message, self._read(message)
        return known[1]

    def _read(self, message: Message) -> tuple[Fields, int, list[Any]] | None:
        words: list[Any] = []
        try:
            fields = read_message(message, words)
            return fields, self._number_of(fields), words
        except FormlessError:
            return None


class Read:
    """The form of a conversation, and its words."""

    def __init__(self, reader: Reader) -> None:
        self.messages: list[Message] = []
        self._reader = reader
        self._fields: list[Fields] = []
        self.words = Words([])
        self.numbers: list[int] = []
        """Of the form of each message."""

    def is_of(self, messages: Sequence[Message]) -> bool:
        """Whether it is this conversation, or the beginning of it, or the other way round."""
        return all(map(is_, messages, self.messages))

    def has_form(self, messages: Sequence[Message]) -> bool:
        """Whether these messages have a form; those that were not read yet are read."""
        for message in messages[len(self.messages) :]:
            read = self._reader.message(message) if len(self.numbers) == len(self.messages) else None
            self.messages.append(message)
            if read is not None:
                self._fields.append(read[0])
                self.numbers.append(read[1])
                self.words.values += read[2]
        return len(self.numbers) >= len(messages)

    def form(self, number: int) -> Form:
        """The form of so many messages."""
        return tuple(self._fields[:number])
