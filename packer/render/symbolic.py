"""A symbolic text: passed to a template in place of a conversation's text, and unknown except for where it goes.

It may be written, stripped, split and joined with others. Whether it contains, starts with, ends with or equals another
text is answered as it is for the text it stands for, or with no if there is none, and recorded as a condition. Any
other operation (its length, its characters, iterating over it) ends the recording with :class:`OpaqueError`. Code that
bypasses Python's methods, such as the C code of the JSON
encoder, sees a private-use character.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Never, Self, TypeAlias

HIDDEN = "\ue0f5"
"""What code that bypasses Python's methods sees of a symbolic text, or of another unknown value."""

SEEN_BLINDLY = (HIDDEN, f"\\u{ord(HIDDEN):04x}")
"""The same as it is, and as JSON may write it."""

Strip: TypeAlias = tuple[Literal["lstrip", "rstrip"], str | None]
Cut: TypeAlias = tuple[Literal["split", "rsplit"], str, int, int]
"""The method, its arguments, and which part is taken."""


class Slot(NamedTuple):
    """A place for a text, and how the text is stripped and cut there."""

    number: int
    changes: tuple[Strip | Cut, ...] = ()

    def value(self, text: str) -> str:
        """Return what is written of a text."""
        for change in self.changes:
            if len(change) == 4:
                method, separator, limit, part = change
                text = getattr(text, method)(separator, limit)[part]
            elif change[0] == "lstrip":
                text = text.lstrip(change[1])
            else:
                text = text.rstrip(change[1])
        return text


Piece: TypeAlias = str | Slot


Question: TypeAlias = Literal["holds", "starts", "ends", "equals", "blank", "parts"]

_ANSWERS: Mapping[Question, Callable[[str, str, int], bool | int]] = {
    "holds": lambda value, text, _: text in value,
    "starts": lambda value, text, _: value.startswith(text),
    "ends": lambda value, text, _: value.endswith(text),
    "equals": lambda value, text, _: value == text,
    "blank": lambda value, *_: not value.strip(),
    "parts": lambda value, text, limit: len(value.split(text, limit)),
}


class Condition(NamedTuple):
    """A question about a text, and its answer."""

    slot: Slot
    question: Question
    text: str
    answer: bool | int = False
    limit: int = -1
    """How many times the text is split at most; -1 for any number."""

    def met(self, value: str) -> bool:
        """Whether a value of the slot gives the same answer."""
        return _ANSWERS[self.question](value, self.text, self.limit) == self.answer


class Questions(list[Condition]):
    """The questions that a template asks about texts. All answers are no."""

    def text_of(self, slot: Slot) -> str | None:
        """Return the text that a slot is for, if the answers are to be those of that text."""
        del slot
        return None

    def ask(self, slot: Slot, question: Question, text: str, limit: int = -1) -> bool | int:
        """Return the answer, and record it."""
        own = self.text_of(slot)
        answer = own is not None and _ANSWERS[question](slot.value(own), text, limit)
        self.append(Condition(slot, question, text, answer, limit))
        return answer


_STAND_IN_LETTERS = frozenset("Zq0123456789xW")
"""Characters of the words that :mod:`packer.render.placeholders` probes templates with, whatever their length."""


class OpaqueError(Exception):
    """The template looks into a symbolic text."""


class Unknown:
    """Base of everything that a template is given in place of a value that it does not know."""

    __slots__ = ()
    is_number = False
    """Whether it stands for a whole number, of which no template may read an attribute."""


class SymbolicText(str, Unknown):
    """A sequence of fixed texts and slots with at least one slot; every slot counts as a text that is not blank."""

    __slots__ = ("_questions", "pieces")
    pieces: tuple[Piece, ...]
    _questions: Questions

    def __new__(cls, pieces: Iterable[Piece], questions: Questions) -> Self:
        self = super().__new__(cls, HIDDEN)
        self.pieces = tuple(pieces)
        self._questions = questions
        return self

    def __str__(self) -> str:
        return self

    def __bool__(self) -> bool:
        return True

    def __add__(self, other: str) -> "SymbolicText":
        return self._joined(self, other) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> "SymbolicText":
        return self._joined(other, self) if isinstance(other, str) else NotImplemented

    def __contains__(self, text: object) -> bool:
        return bool(self._ask("holds", text))

    def __eq__(self, other: object) -> bool:
        return bool(self._ask("equals", other)) if isinstance(other, str) else False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        raise OpaqueError("__hash__")

    def __iter__(self) -> Iterator[str]:
        yield _refuse("__iter__")  # on iteration only: templates test texts and lists for being iterable

    def __getitem__(self, place: Any) -> Never:
        if isinstance(place, str):
            raise TypeError("string indices must be integers")  # tells Jinja that there is no such attribute
        _refuse("__getitem__")

    def startswith(self, text: Any, *places: Any) -> bool:
        return self._answer_for_any("starts", text, places)

    def endswith(self, text: Any, *places: Any) -> bool:
        return self._answer_for_any("ends", text, places)

    def strip(self, letters: Any = None) -> "SymbolicText":
        return self.lstrip(letters).rstrip(letters)

    def lstrip(self, letters: Any = None) -> "SymbolicText":
        return SymbolicText(_stripped(self.pieces, ("lstrip", letters)), self._questions)

    def rstrip(self, letters: Any = None) -> "SymbolicText":
        return SymbolicText(_stripped(self.pieces[::-1], ("rstrip", letters))[::-1], self._questions)

    def split(self, separator: Any = None, limit: Any = -1) -> list[Any]:
        return self._cut("split", separator, limit)

    def rsplit(self, separator: Any = None, limit: Any = -1) -> list[Any]:
        return self._cut("rsplit", separator, limit)

    def _cut(self, method: Literal["split", "rsplit"], separator: Any, limit: Any) -> list[Any]:
        if not self._ask("holds", separator):
            return [self]
        (slot,) = self.pieces
        assert isinstance(slot, Slot)
        if type(limit) is not int:
            _refuse(method)
        parts: list[Any] = []
        for part in range(self._questions.ask(slot, "parts", separator, limit)):
            cut = slot._replace(changes=(*slot.changes, (method, separator, limit, part)))
            if self._questions.ask(cut, "blank", ""):  # no slot is for a blank text
                text = self._questions.text_of(slot)
                assert text is not None  # else the answer is no
                parts.append(cut.value(text))
                self._questions.ask(cut, "equals", parts[-1])
            else:
                parts.append(SymbolicText([cut], self._questions))
        return parts

    def replace(self, old: Any, new: Any, *count: Any) -> "SymbolicText":
        del new, count
        if self._ask("holds", old):
            _refuse("replace")
        return self

    def _joined(self, *texts: str) -> "SymbolicText":
        return SymbolicText((piece for text in texts for piece in pieces_of(text)), self._questions)

    def _answer_for_any(self, question: Any, texts: Any, places: tuple[Any, ...]) -> bool:
        if places:
            _refuse("startswith or endswith from a place on")
        asked = [self._ask(question, text) for text in (texts if isinstance(texts, tuple) else (texts,))]
        return any(asked)

    def _ask(self, question: Question, text: object) -> bool | int:
        if len(self.pieces) != 1 or type(text) is not str or not text:
            _refuse(question)
        (slot,) = self.pieces
        assert isinstance(slot, Slot)
        return self._questions.ask(slot, question, text)


class SafeText(SymbolicText):
    """A text marked as safe, which may be known: it can only be written, since Jinja escapes what is added to it."""

    __slots__ = ("_text",)
    _text: str

    def __new__(cls, text: str) -> Self:
        self = super().__new__(cls, pieces_of(text), Questions())
        self._text = text
        return self

    def __str__(self) -> str:
        return self._text


def refuse_stand_ins(conditions: Iterable[Condition]) -> None:
    """Refuse a template that may ask for the words that losses are found with: a search with them would mislead.

    Raises:
        OpaqueError: it may.
    """
    if any(each.text and _STAND_IN_LETTERS.issuperset(each.text) for each in conditions):
        raise OpaqueError("the template may ask for the words that show losses")


def joined(texts: Iterable[str]) -> str:
    """Do what `"".join` does, for symbolic texts too."""
    parts = list(texts)
    symbolic = next((part for part in parts if isinstance(part, SymbolicText)), None)
    return "".join(parts) if symbolic is None else symbolic._joined(*parts)  # noqa: SLF001 - of the same module


def pieces_of(text: str) -> tuple[Piece, ...]:
    if isinstance(text, SymbolicText):
        return text.pieces
    return (text,) if text else ()


def _stripped(pieces: Sequence[Piece], strip: Strip) -> list[Piece]:
    """Strip a sequence of pieces at its start: drop blank fixed texts, and stop at the first other text or slot."""
    method, letters = strip
    if letters is not None and (type(letters) is not str or letters.strip()):
        _refuse("strip of letters that are not white space")
    rest = list(pieces)
    while rest and isinstance(rest[0], str):
        rest[0] = getattr(rest[0], method)(letters)
        if rest[0]:
            return rest
        del rest[0]
    if rest and isinstance(rest[0], Slot):
        rest[0] = rest[0]._replace(changes=(*rest[0].changes, strip))
    return rest


def _refuse(what: str) -> Never:
    raise OpaqueError(what)


def _refusing(name: str) -> Callable[..., Never]:
    def method(*_: Any, **__: Any) -> Never:
        _refuse(name)

    return method


_HARMLESS = {
    *("__class__", "__delattr__", "__dir__", "__doc__", "__getattribute__", "__getstate__", "__init__", "__new__"),
    *("__init_subclass__", "__setattr__", "__subclasshook__"),
}
for _name in dir(str):
    if _name not in SymbolicText.__dict__ and _name not in _HARMLESS:
        setattr(SymbolicText, _name, _refusing(_name))
for _name in ("__bool__", "__radd__", *dir(str)):
    if _name not in SafeText.__dict__ and _name not in _HARMLESS:
        setattr(SafeText, _name, _refusing(_name))
