"""What a template is given in place of values it need not know: numbers of a conversation, and arguments of calls.

Every question about a number is answered, and the answer is recorded as a condition. Whatever else a template does with
one of these values ends the recording with :class:`packer.render.symbolic.OpaqueError`.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Never, Protocol

import jinja2

from packer.render.symbolic import HIDDEN, OpaqueError

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


class Number:  # noqa: PLW1641 - its hash is refused below
    """A number that a template knows nothing about; `shift` more than its base."""

    __slots__ = ("_recorder", "base", "shift")

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
            _refuse()
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
        return Number(self._recorder, self.base, self.shift + other) if type(other) is int else _refuse()

    __radd__ = __add__

    def __sub__(self, other: Any) -> "Number | int":
        if type(other) is Number and other.base == self.base:
            return self.shift - other.shift
        return self + -other if type(other) is int else _refuse()

    def __mod__(self, other: Any) -> int:
        if type(other) is not int or other <= 0:
            _refuse()
        answer = (self._recorder.numbers[self.base] + self.shift) % other
        self._recorder.conditions.append(Remainder(self.base, self.shift, other, answer))
        return answer


class Arguments(dict[str, str]):
    """The arguments of a call, an object: a template may write them as JSON, and ask whether there are any."""

    def __init__(self, *, is_empty: bool) -> None:
        super().__init__({HIDDEN: HIDDEN})  # for code that bypasses the methods
        self._is_empty = is_empty

    def __bool__(self) -> bool:
        return not self._is_empty


def _refuse(*_: Any, **__: Any) -> Never:
    raise OpaqueError("an unknown value is used in another way")


for _name in (
    *("__hash__", "__rsub__", "__mul__", "__rmul__", "__floordiv__", "__rfloordiv__", "__truediv__", "__rtruediv__"),
    *("__rmod__", "__neg__", "__pos__", "__abs__", "__pow__", "__rpow__", "__index__", "__int__", "__float__"),
    *("__str__", "__repr__", "__format__", "__iter__", "__len__", "__getitem__", "__contains__"),
):
    setattr(Number, _name, _refuse)
_HARMLESS = {
    *("__class__", "__class_getitem__", "__delattr__", "__dir__", "__doc__", "__getattribute__", "__getstate__"),
    *("__init__", "__init_subclass__", "__new__", "__setattr__", "__subclasshook__"),
}
for _name in dir(dict):
    if _name not in Arguments.__dict__ and _name not in _HARMLESS:
        setattr(Arguments, _name, _refuse)
