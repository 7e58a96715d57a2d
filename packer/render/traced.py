"""A text of which nothing is known but where it goes: what a template gets in place of words that are traced.

It may be written, stripped and joined; questions about it are answered as for plain words and noted down; everything
else ends the trace (:mod:`packer.render.tracing`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Never, Self

import jinja2

from packer.render.slots import Condition, Cut, Piece, Question, Slot, UntraceableError, refuse, refusing


class Traced(str):
    """A text of which only its slots are known. Its letters mean nothing."""

    __slots__ = ("_noted", "_pieces")
    _pieces: tuple[Piece, ...]
    _noted: list[Condition]

    def __new__(cls, pieces: Iterable[Piece], noted: list[Condition]) -> Self:
        self = super().__new__(cls, "\ue0f5")
        self._pieces = _merged(pieces)
        self._noted = noted
        return self

    def __str__(self) -> str:
        return self

    def __bool__(self) -> bool:
        return True  # there is a slot in it, and its text is not blank

    def __add__(self, other: str) -> "Traced":
        if not isinstance(other, str):
            return NotImplemented  # which ends in an error, as for every text, or in what the other makes of it
        return Traced((*self._pieces, *pieces_of(other)), self._noted)

    def __radd__(self, other: str) -> "Traced":
        return Traced((*pieces_of(other), *self._pieces), self._noted)

    def __contains__(self, text: object) -> bool:
        return self._asked("holds", text)

    def __eq__(self, other: object) -> bool:
        return self._asked("equals", other) if isinstance(other, str) else False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        raise UntraceableError("__hash__")

    def startswith(self, text: Any, *places: Any) -> bool:
        return self._any("starts", text, places)

    def endswith(self, text: Any, *places: Any) -> bool:
        return self._any("ends", text, places)

    def strip(self, letters: Any = None) -> "Traced":
        return self.lstrip(letters).rstrip(letters)

    def lstrip(self, letters: Any = None) -> "Traced":
        return Traced(_stripped(self._pieces, ("lstrip", letters)), self._noted)

    def rstrip(self, letters: Any = None) -> "Traced":
        return Traced(reversed(_stripped(self._pieces[::-1], ("rstrip", letters))), self._noted)

    def split(self, separator: Any = None, limit: Any = -1) -> list[Any]:
        del limit  # there is nothing to split
        self._asked("holds", separator)
        return [self]

    def rsplit(self, separator: Any = None, limit: Any = -1) -> list[Any]:
        return self.split(separator, limit)

    def replace(self, old: Any, new: Any, *count: Any) -> "Traced":
        del new, count  # there is nothing to replace
        self._asked("holds", old)
        return self

    def __getitem__(self, place: Any) -> Never:
        if isinstance(place, str):
            raise TypeError("string indices must be integers")  # what Jinja takes for: there is no such attribute
        refuse("__getitem__")

    def _any(self, question: Question, texts: Any, places: tuple[Any, ...]) -> bool:
        if places:
            refuse("startswith or endswith from a place on")
        asked = [self._asked(question, text) for text in (texts if isinstance(texts, tuple) else (texts,))]
        return any(asked)

    def _asked(self, question: Question, text: object) -> bool:
        """No, on condition that it is so."""
        if len(self._pieces) != 1 or type(text) is not str or not text:
            refuse(question)
        (slot,) = self._pieces
        assert isinstance(slot, Slot)
        self._noted.append(Condition(slot, question, text))
        return False


_HARMLESS = {
    *("__class__", "__delattr__", "__dir__", "__doc__", "__getattribute__", "__getstate__", "__init__", "__new__"),
    *("__init_subclass__", "__setattr__", "__subclasshook__"),
}
for _name in dir(str):
    if _name not in Traced.__dict__ and _name not in _HARMLESS:
        setattr(Traced, _name, refusing(_name))


def _merged(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Without empty texts, and no two texts side by side."""
    merged: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        elif piece != "":
            merged.append(piece)
    return tuple(merged)


def pieces_of(text: str) -> tuple[Piece, ...]:
    if isinstance(text, Traced):
        return text._pieces  # noqa: SLF001 - of the same module
    return (text,) if type(text) is str else refuse("a text of another kind")


def _stripped(pieces: Sequence[Piece], cut: Cut) -> list[Piece]:
    """Pieces stripped at the first of them: texts until one is left over, or a slot, whose text is not blank."""
    method, letters = cut
    if letters is not None and (type(letters) is not str or letters.strip()):
        refuse("strip of letters that are not white space")
    rest = list(pieces)
    while rest and isinstance(rest[0], str):
        rest[0] = getattr(rest[0], method)(letters)
        if rest[0]:
            return rest
        del rest[0]
    if rest and isinstance(rest[0], Slot):
        rest[0] = rest[0]._replace(cuts=(*rest[0].cuts, cut))
    return rest


def joined(texts: Iterable[str]) -> str:
    parts = list(texts)
    traced = next((part for part in parts if isinstance(part, Traced)), None)
    if traced is None:
        return "".join(parts)
    return Traced((piece for part in parts for piece in pieces_of(part)), traced._noted)  # noqa: SLF001 - as above


def text_join(values: Iterable[Any]) -> str:
    return joined(map(str, values))


def may_hold(value: Any) -> bool:
    """Whether a traced text may be in a value; what is neither text, number nor list is not looked into."""
    if isinstance(value, Traced):
        return True
    if value is None or isinstance(value, str | int | float | jinja2.Undefined):
        return False
    if isinstance(value, Mapping):
        return any(map(may_hold, value.values())) or any(map(may_hold, value))
    return any(map(may_hold, value)) if isinstance(value, list | tuple) else True
