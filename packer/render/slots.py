"""Places in a text where words go: the texts of a conversation, numbered in one list.

A word is written in a slot as it is, or stripped.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Never, TypeAlias

Cut: TypeAlias = tuple[Literal["strip", "lstrip", "rstrip"], str | None]
Question: TypeAlias = Literal["holds", "starts", "ends", "equals"]


class Slot(NamedTuple):
    """Where a word goes, and what is done to it one after another."""

    number: int
    cuts: tuple[Cut, ...] = ()

    def value(self, word: str) -> str:
        """What of a word is written."""
        for method, letters in self.cuts:
            word = getattr(word, method)(letters)
        return word


Piece: TypeAlias = str | Slot


class Words:
    """The words of a conversation."""

    def __init__(self, values: list[str]) -> None:
        """`values`: there may come more."""
        self.values = values
        self._sizes: list[int] = []

    def of(self, slot: Slot) -> str:
        """What is written in a slot."""
        return slot.value(self.values[slot.number])

    @property
    def sizes(self) -> list[int]:
        """Characters of every word."""
        self._sizes += map(len, self.values[len(self._sizes) :])
        return self._sizes


class Condition(NamedTuple):
    """What must not be so: what is written in a slot holds, starts with, ends with or equals a text."""

    slot: Slot
    question: Question
    text: str

    def met(self, value: str) -> bool:
        if self.question == "holds":
            return self.text not in value
        if self.question == "starts":
            return not value.startswith(self.text)
        if self.question == "ends":
            return not value.endswith(self.text)
        return value != self.text


class UntraceableError(Exception):
    """The template looks into a word."""


def refuse(what: str) -> Never:
    raise UntraceableError(what)


def refusing(name: str) -> Callable[..., Never]:
    """A method that ends the trace."""

    def method(*_: Any, **__: Any) -> Never:
        refuse(name)

    return method
