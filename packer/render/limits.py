"""How large a value may be that a template makes: checked before it is made, so that no single step runs away.

Each limit depends on the template, the row and the recipe, never on the machine; what goes beyond one rejects the row.
Texts and whole values are limited to what a rendering may hold, lists and numbers by constants. Since every value is
small, no operation on one, which Python could not be stopped in, takes long; the many steps of a loop are left to
:mod:`packer.render.watchdog`.
"""

from collections.abc import Iterable, Sized
from itertools import islice
from typing import Any, NoReturn

MAX_ITEMS = 1_000_000
"""Items of a list that a template makes."""

MAX_VALUES = 2**21
"""Values in a value, those in lists within lists too."""

MAX_BITS = 2**14
"""Of an integer; one of more could not be written in digits."""

MAX_SETTING = 1000
"""A width, an indentation, a precision, the text between items: what only says how to write something else."""

LEAST_TEXT = 2**20
"""Characters that a text on the way may always have, however small a rendering must be."""

_MAX_COMPARED = 2**31
"""Characters that a search may compare where its time grows with the product of both texts."""

_SCALARS = frozenset({str, int, float, bool, type(None)})
_VIEWS: tuple[Any, ...] = (list, tuple, type({}.keys()), type({}.values()), type({}.items()))


class OverLimitError(Exception):
    """A template asked for a value larger than it may make."""


def over(what: str) -> NoReturn:
    """Refuse a value.

    Raises:
        OverLimitError: always.

    """
    raise OverLimitError(f"the template makes {what}")


def check_items(number: int) -> None:
    if number > MAX_ITEMS:
        over(f"a list of more than {MAX_ITEMS:,} items")


def check_setting(value: Any) -> None:
    """A number or a text that is repeated: a width, an indentation."""
    if isinstance(value, int | float) and abs(value) > MAX_SETTING:
        over(f"a width, a precision or an indentation beyond {MAX_SETTING}")
    if isinstance(value, str | bytes | list | tuple) and len(value) > MAX_SETTING:
        over(f"a separator or a set of characters of more than {MAX_SETTING} characters")


def check_bits(bits: float) -> None:
    if bits > MAX_BITS:
        over(f"an integer of more than {MAX_BITS:,} bits")


def check_search(text: str, *sought: Any) -> None:
    """Searches from the right, and stripping: they take as long as both lengths multiplied."""
    if any(isinstance(each, str) and len(text) * len(each) > _MAX_COMPARED for each in sought):
        over("a search for too long a text in too long a text")


def listed(value: Iterable[Any]) -> list[Any]:
    """The items of anything, which may be without end."""
    if isinstance(value, Sized):
        check_items(len(value))
        return list(value)
    items = list(islice(value, MAX_ITEMS + 1))
    check_items(len(items))
    return items


class Limits:
    """The limits that follow from how much a rendering may hold."""

    def __init__(self, max_render_bytes: int) -> None:
        self.max_text = max(max_render_bytes, LEAST_TEXT)

    def check_text(self, length: float) -> None:
        """A text that would have `length` characters."""
        if length > self.max_text:
            over(f"a text of more than {self.max_text:,} characters")

    def weigh(self, value: Any) -> int:
        """About how many characters a value has as text, and so how long it takes to write, compare or hash it.

        What a list holds twice counts twice, as it is written twice: `[[[x, x], [x, x]], …]` has few lists and no end.

        Raises:
            OverLimitError: more than a text may have.

        """
        if type(value) in _SCALARS:
            return len(value) if type(value) is str else 4
        weight, number, pending = 4, 0, [value]
        while pending:
            item = pending.pop()
            if isinstance(item, str | bytes):
                weight += len(item)
            elif isinstance(item, dict):
                number += 2 * len(item)
                self._check_whole(weight, number)
                pending += item.keys()
                pending += item.values()
            elif isinstance(item, _VIEWS):
                number += len(item)
                self._check_whole(weight, number)
                pending += item
        self._check_whole(weight, number)
        return weight + 4 * number

    def _check_whole(self, weight: int, number: int) -> None:
        if number > MAX_VALUES:
            over(f"a value that holds more than {MAX_VALUES:,} others")
        if weight + 4 * number > self.max_text:
            over(f"a value that is written in more than {self.max_text:,} characters")
