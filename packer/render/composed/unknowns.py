"""What a template is given in place of values it need not know: numbers of a conversation, and arguments of calls.

Every question about a number of the conversation is answered, and the answer is recorded as a condition. Whatever else
a template does with one of these values ends the recording with :class:`packer.render.symbolic.OpaqueError`.
"""

import numbers
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence, ValuesView
from typing import Any, NamedTuple, Never, Protocol

import jinja2

from packer.render.symbolic import OpaqueError, SymbolicText, Unknown

AS_TEXT: tuple[()] = ()
"""In place of settings of JSON: a value as Python writes it."""

ZERO, ITEM, SIZE = -1, 0, 1
"""What numbers count from: zero; the index of the message of an iteration in its conversation; the number of messages.
Further bases are the integers that namespaces hold."""


Compare = Callable[[int, int], bool]

_MIRRORED: Mapping[Compare, Compare] = {
    operator.lt: operator.gt,
    operator.le: operator.ge,
    operator.gt: operator.lt,
    operator.ge: operator.le,
    operator.eq: operator.eq,
}
_FLIPS: Mapping[Compare, tuple[int, ...]] = {
    operator.lt: (0,),
    operator.le: (1,),
    operator.gt: (1,),
    operator.ge: (0,),
    operator.eq: (0, 1),
}
"""Where the answer changes while the left number grows, relative to the right one."""


class Compared(NamedTuple):
    """That a number compares with another, increased by `shift`, as it did."""

    operator: Compare
    base: int
    other: int
    shift: int
    answer: bool

    def holds(self, numbers: Sequence[int]) -> bool:
        other = self.shift if self.other == ZERO else numbers[self.other] + self.shift
        return self.operator(numbers[self.base], other) is self.answer

    def flips(self) -> list[tuple[int, int, bool]] | None:
        """Return where the answer changes while an integer that a namespace holds grows.

        The number of the integer, its least value with the other answer, and whether that counts from the index of the
        message. None if the integer is compared with something else than that index or a constant.
        """
        integers = [base for base in (self.base, self.other) if base > SIZE]
        if not integers:
            return []
        compare, (integer, *_), value = self.operator, integers, self.shift
        if self.other == integer:  # mirrored, so that the integer is on the left
            compare, value = _MIRRORED[compare], -self.shift
        if len(integers) == 2 or SIZE in {self.base, self.other}:
            return None
        is_relative = ITEM in {self.base, self.other}
        return [(integer - SIZE - 1, value + more, is_relative) for more in _FLIPS[compare]]

    def least_size(self, numbers: Sequence[int]) -> int | None:
        """Return the least number of messages from which on it always holds; None if it does not hold for all greater.

        Numbers of messages are 1 or more. `numbers` are such that it holds.
        """
        if SIZE not in {self.base, self.other} or self.base == self.other:
            return 1
        if self.base == SIZE:
            least = self.shift + 1 if self.other == ZERO else numbers[self.other] + self.shift + 1
        else:
            least = numbers[self.base] - self.shift + 1
        return least if least <= numbers[SIZE] else None


class Remainder(NamedTuple):
    """That a number, increased by `shift`, has the same remainder."""

    base: int
    shift: int
    divisor: int
    answer: int

    def holds(self, numbers: Sequence[int]) -> bool:
        return (numbers[self.base] + self.shift) % self.divisor == self.answer

    def flips(self) -> list[tuple[int, int, bool]] | None:
        """As for :class:`Compared`."""
        return None if self.base > SIZE else []

    def least_size(self, numbers: Sequence[int]) -> int | None:
        """As for :class:`Compared`."""
        del numbers
        return None if self.base == SIZE else 1


Condition = Compared | Remainder


class Recorder(Protocol):
    """Who records the conditions."""

    numbers: Sequence[int]
    """Value of each base."""

    conditions: list[Any]


class Number(Unknown):  # noqa: PLW1641 - its hash is refused below
    """A number that a template knows nothing about; `shift` more than its base."""

    __slots__ = ("_recorder", "base", "shift")
    is_number = True

    def __init__(self, recorder: Recorder, base: int, shift: int = 0) -> None:
        self._recorder, self.base, self.shift = recorder, base, shift

    def _compared(self, compare: Compare, other: Any) -> bool:
        if type(other) is Number:
            base, shift = other.base, other.shift
        elif type(other) is int:
            base, shift = ZERO, other
        elif compare is operator.eq and (other is None or isinstance(other, str | jinja2.Undefined)):
            return False
        else:
            refuse()
        numbers = self._recorder.numbers
        made = Compared(compare, self.base, base, shift - self.shift, answer=True)
        made = made._replace(answer=made.holds(numbers))
        self._recorder.conditions.append(made)
        return made.answer

    def __lt__(self, other: Any) -> bool:
        return self._compared(operator.lt, other)

    def __le__(self, other: Any) -> bool:
        return self._compared(operator.le, other)

    def __gt__(self, other: Any) -> bool:
        return self._compared(operator.gt, other)

    def __ge__(self, other: Any) -> bool:
        return self._compared(operator.ge, other)

    def __eq__(self, other: object) -> bool:
        return self._compared(operator.eq, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return self != 0

    def __add__(self, other: Any) -> "Number":
        return Number(self._recorder, self.base, self.shift + other) if type(other) is int else refuse()

    __radd__ = __add__

    def __sub__(self, other: Any) -> "Number | int":
        if type(other) is Number and other.base == self.base:
            return self.shift - other.shift
        return Number(self._recorder, self.base, self.shift - other) if type(other) is int else refuse()

    def __mod__(self, other: Any) -> int:
        if type(other) is not int or other <= 0:
            refuse()
        answer = (self._recorder.numbers[self.base] + self.shift) % other
        self._recorder.conditions.append(Remainder(self.base, self.shift, other, answer))
        return answer


class Length(Unknown):  # noqa: PLW1641 - as above
    """The number of characters of an unknown text, which is not zero."""

    __slots__ = ()

    def __gt__(self, other: Any) -> bool:
        return not self == other

    def __eq__(self, other: object) -> bool:
        return False if type(other) is int and other == 0 else refuse()


class UnknownArgument(Unknown):  # noqa: PLW1641 - as above
    """The arguments of a call, or one of them: a template may write it, and ask what kind of value it is.

    Args:
        write: returns it as JSON, with settings, or as Python writes it.
    """

    __slots__ = ("_write",)

    def __init__(self, write: Callable[[Any], SymbolicText]) -> None:
        self._write = write

    def __str__(self) -> str:
        return self._write(AS_TEXT)

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return False if other is None or isinstance(other, str | jinja2.Undefined) else refuse(self)


class UnknownNumber(UnknownArgument):
    """Any number but a truth value."""

    __slots__ = ()


class UnknownArray(UnknownArgument):
    """An array that has something in it."""

    __slots__ = ()


class UnknownObject(UnknownArgument):
    """An object that has something in it."""

    __slots__ = ()


class WalkedArguments(UnknownObject):
    """Arguments that a template may walk through: it knows how many there are, and of what kinds. Keys are texts."""

    __slots__ = ("_members",)

    def __init__(self, write: Callable[[Any], SymbolicText], members: Sequence[tuple[Any, Any]]) -> None:
        super().__init__(write)
        self._members = members

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __getitem__(self, name: Any) -> Any:
        found = [value for key, value in self._members if key is name]
        return found[0] if found else refuse()

    def items(self) -> ValuesView[Any]:
        return _View(self._members)

    def keys(self) -> ValuesView[Any]:
        return _View([key for key, _ in self._members])

    def values(self) -> ValuesView[Any]:
        return _View([value for _, value in self._members])


class _View(ValuesView[Any]):  # noqa: PLW1641 - as above
    """Members of arguments, as the views of an object: they have a length and no numbers.

    How Python writes and compares one depends on its kind.
    """

    __slots__ = ()

    def __init__(self, values: Sequence[Any]) -> None:
        super().__init__(dict(enumerate(values)))

    def __repr__(self) -> str:
        refuse(self)

    def __eq__(self, other: object) -> bool:
        refuse(self, other)


def kind_of(value: Any, *, walks: bool) -> type[UnknownArgument] | None:
    """Return what stands for the arguments of a call, or for one of them; None for a text, and for what is known."""
    kind = type(value)
    if kind in (int, float):
        return UnknownNumber
    if kind is list and value:
        return UnknownArray
    return (WalkedArguments if walks else UnknownObject) if kind is dict and value else None


def written(value: UnknownArgument, settings: Any) -> SymbolicText:
    """Return an unknown value as JSON."""
    return value._write(settings)  # noqa: SLF001 - of the same module


class ArgumentsError(OpaqueError):
    """The template looks into the arguments of a call."""


def refuse(*values: Any, **_: Any) -> Never:
    """Refuse to tell more about unknown values.

    Raises:
        ArgumentsError: an object is among them.
        OpaqueError: otherwise.
    """
    kind = ArgumentsError if any(type(each) is UnknownObject for each in values) else OpaqueError
    raise kind("an unknown value is used in another way")


for _name in (
    *("__hash__", "__rsub__", "__mul__", "__rmul__", "__floordiv__", "__rfloordiv__", "__truediv__", "__rtruediv__"),
    *("__rmod__", "__neg__", "__pos__", "__abs__", "__pow__", "__rpow__", "__index__", "__int__", "__float__"),
    *("__repr__", "__format__", "__iter__", "__len__", "__getitem__", "__contains__"),
):
    for _kind in (Number, Length, UnknownArgument):
        setattr(_kind, _name, refuse)
Number.__str__ = Length.__str__ = UnknownNumber.__bool__ = refuse  # type: ignore[method-assign]

# What tests such as `is mapping` ask:
Mapping.register(UnknownObject)
Sequence.register(UnknownArray)
for _kind in (Number, Length, UnknownNumber):
    numbers.Number.register(_kind)
