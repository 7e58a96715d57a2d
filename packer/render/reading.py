"""A conversation as far as it has a form; each message is read once, however many conversations are made of it."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import is_
from typing import Any, TypeAlias

from packer.render.forms import Fields, Form, FormlessError, read_message, read_tools
from packer.render.slots import Words

Message: TypeAlias = Mapping[str, Any]


class Reader:
    """Reads tools and messages; it keeps them, so that no other has the identity of one.

    Args:
        number_of: a number for the form of a message, or of tools.

    """

    def __init__(self, number_of: Callable[[Hashable], int]) -> None:
        self._number_of = number_of
        self._tools: tuple[Any, tuple[tuple[Fields, ...], int, Words] | None] | None = None
        self._messages: dict[int, tuple[Message, tuple[Fields, int, list[Any]] | None]] = {}

    def tools(self, tools: Sequence[Any] | None) -> tuple[tuple[Fields, ...], int, Words] | None:
        """Form of the tools, its number and their words; None where they have no form."""
        if self._tools is None or self._tools[0] is not tools:
            self._tools = tools, self._read_tools(tools)
        return self._tools[1]

    def message(self, message: Message) -> tuple[Fields, int, list[Any]] | None:
        """The same of a message."""
        known = self._messages.get(id(message))
        if known is None:
            known = self._messages[id(message)] = message, self._read(message)
        return known[1]

    def _read_tools(self, tools: Sequence[Any] | None) -> tuple[tuple[Fields, ...], int, Words] | None:
        words: list[Any] = []
        try:
            fields = read_tools(tools, words)
            return fields, self._number_of(fields), Words(words)
        except FormlessError:
            return None

    def _read(self, message: Message) -> tuple[Fields, int, list[Any]] | None:
        words: list[Any] = []
        try:
            fields = read_message(message, words)
            return fields, self._number_of(fields), words
        except FormlessError:
            return None


class Read:
    """The form of a conversation, and its words."""

    def __init__(self, reader: Reader, tools: Sequence[Any] | None) -> None:
        self.tools = tools
        self.messages: list[Message] = []
        self._reader = reader
        self._fields: list[Fields] = []
        form, number, words = reader.tools(tools) or ((), -1, Words([]))
        self._tools: tuple[Fields, ...] = form
        self.words = Words([*words.values], words)
        self.holds_json = bool(tools)
        """Whether there are tools or calls."""

        self.numbers = [number] * (number >= 0)
        """Of the form of the tools, and of each message."""

    def is_of(self, tools: Sequence[Any] | None, messages: Sequence[Message]) -> bool:
        """Whether it is this conversation, or the beginning of it, or the other way round."""
        return tools is self.tools and all(map(is_, messages, self.messages))

    def has_form(self, messages: Sequence[Message]) -> bool:
        """Whether these messages have a form; those that were not read yet are read."""
        for message in messages[len(self.messages) :]:
            self.messages.append(message)
            read = self._reader.message(message) if len(self.numbers) == len(self.messages) else None
            if read is not None:
                self._fields.append(read[0])
                self.numbers.append(read[1])
                self.words.values += read[2]
                self.holds_json = self.holds_json or "tool_calls" in message
        return len(self.numbers) > len(messages)

    def form(self, number: int) -> Form:
        """The form of so many messages."""
        return Form(self._tools, tuple(self._fields[:number]))
