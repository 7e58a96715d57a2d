"""Places in a text where words go: the words of a conversation are texts and JSON values, numbered in one list.

A word is written in a slot as it is, stripped, or as JSON; a JSON value is written as JSON alone.
"""

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Never, TypeAlias

Settings: TypeAlias = tuple[bool, int | str | None, tuple[str, str] | None, bool]
"""Of the filter `tojson`: whether it keeps to ASCII, indentation, separators, whether it sorts keys."""

Cut: TypeAlias = tuple[Literal["strip", "lstrip", "rstrip"], str | None] | tuple[Literal["tojson"], Settings]
Question: TypeAlias = Literal["holds", "starts", "ends", "equals", "written"]

COMPACT: Settings = (False, None, None, False)
"""Of `tojson` without settings, and of what makes texts of arguments."""

AS_JSON: Cut = ("tojson", COMPACT)


class Slot(NamedTuple):
    """Where a word goes, and what is done to it one after another."""

    number: int
    cuts: tuple[Cut, ...] = ()

    @property
    def is_json(self) -> bool:
        return any(method == "tojson" for method, _ in self.cuts)

    def value(self, word: Any) -> str:
        """What of a word is written.

        Raises:
            ValueError: it is not JSON.
            TypeError: the same.
            RecursionError: it is nested too deep.

        """
        for method, setting in self.cuts:
            word = _encoder(setting)(word) if method == "tojson" else getattr(word, method)(setting)
        assert isinstance(word, str)
        return word


Piece: TypeAlias = str | Slot

_DEEPEST = 64
"""Objects and lists within one another."""


class Nested(NamedTuple):
    """A JSON value within a tool, which is a word too."""

    value: Any


class Listed(NamedTuple):
    """The list of tools."""

    value: list[Any]
    numbers: Sequence[int]
    """Of the tools, which are words too."""


class Words:
    """The words of a conversation, and what was written of them: a JSON value is written once."""

    def __init__(self, values: list[Any]) -> None:
        """`values`: there may come more."""
        self.values = values
        self._written: dict[Slot, str] = {}
        self._sizes: list[int] = []

    def of(self, slot: Slot) -> str:
        """What is written in a slot; raises as :meth:`Slot.value`."""
        value = self.values[slot.number]
        if not slot.cuts:
            assert isinstance(value, str)
            return value
        known = self._written.get(slot)
        if known is None:
            if slot.cuts == (AS_JSON,) and type(value) is Listed:
                known = f"[{', '.join(map(self.json, value.numbers))}]"
            else:
                known = slot.value(value.value if type(value) in (Nested, Listed) else value)
            self._written[slot] = known
        return known

    def json(self, number: int) -> str:
        """A word as JSON; raises as :meth:`Slot.value`."""
        return self.of(Slot(number, (AS_JSON,)))

    @property
    def sizes(self) -> Sequence[int]:
        """Characters of every word, of a JSON value those of its JSON, and none of one that is within a tool.

        Raises as :meth:`Slot.value`.
        """
        for number in range(len(self._sizes), len(self.values)):
            value = self.values[number]
            if type(value) is str:
                self._sizes.append(len(value))
            else:
                self._sizes.append(0 if type(value) is Nested else len(self._shallow(number)))
        return self._sizes

    def _shallow(self, number: int) -> str:
        """The JSON of a word that is not nested so deep that a template, with less of the stack, may fail on it."""
        text = self.json(number)
        value = self.values[number]
        if type(value) is not Listed and text.count("{") + text.count("[") > _DEEPEST and _depth(value) > _DEEPEST:
            raise RecursionError
        return text


def _depth(value: Any) -> int:
    """How deep lists and objects stand within one another."""
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            part
            for item in level
            for part in (item.values() if isinstance(item, dict) else item)
            if isinstance(part, dict | list)
        ]
    return depth


class Condition(NamedTuple):
    """What must not be so: what is written in a slot holds, starts with, ends with or equals a text.

    "written" asks for nothing but that it is no longer than what a rendering was tried with.
    """

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
        return self.question == "written" or value != self.text


class UntraceableError(Exception):
    """The template looks into a word."""


def refuse(what: str) -> Never:
    raise UntraceableError(what)


def refusing(name: str) -> Callable[..., Never]:
    """A method that ends the trace."""

    def method(*_: Any, **__: Any) -> Never:
        refuse(name)

    return method


_NARROWEST = 8
"""Characters that JSON is indented by at most; what a rendering is tried with is not that wide."""


def settings_of(
    ensure_ascii: Any = False,  # noqa: FBT002 - as the filter has them
    indent: Any = None,
    separators: Any = None,
    sort_keys: Any = False,  # noqa: FBT002 - as above
) -> Settings:
    """What the filter `tojson` is given.

    Raises:
        UntraceableError: settings of another kind than chat templates have.

    """
    wide = type(indent) in (int, str) and (len(indent) if isinstance(indent, str) else indent) > _NARROWEST
    if type(ensure_ascii) is not bool or type(sort_keys) is not bool or wide:
        refuse("tojson with other settings")
    if indent is not None and type(indent) not in (int, str):
        refuse("tojson with another indentation")
    if separators is not None and [*map(type, separators)] != [str, str]:
        refuse("tojson with other separators")
    return ensure_ascii, indent, None if separators is None else (separators[0], separators[1]), sort_keys


@functools.lru_cache(64)
def _encoder(settings: Settings) -> Callable[[Any], str]:
    """What `json.dumps` does."""
    ensure_ascii, indent, separators, sort_keys = settings
    return json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys).encode


def json_of(value: Any, settings: Settings) -> str:
    """A JSON value as the filter `tojson` writes it."""
    return _encoder(settings)(value)
