"""How large a value may be that a template makes in one step.

Python cannot be stopped within a step, so what could make one long is measured before: values that are written,
compared, hashed or given to a filter, and what steps such as `*` and `replace` would make of them. Each bound depends
on template, row and recipe, never on the machine; what goes beyond one rejects the row. How many steps there are, and
how much they make together, is left to :mod:`packer.render.watchdog`.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from jinja2.exceptions import SecurityError

MAX_ITEMS = 1_000_000
"""Items of a list that one step makes."""

MAX_VALUES = 2**21
"""Values in a value, those in lists within lists too."""

MAX_BITS = 2**14
"""Of an integer; one of more could not be written in digits."""

MAX_SETTING = 1000
"""A width, an indentation, a precision, a separator: what only says how to write something else."""

MAX_SCANNED = 2**20
"""Characters of a text that is looked through with regular expressions."""

LEAST_TEXT = 2**20
"""Characters that a text on the way may always have, however small a rendering must be."""

_MAX_COMPARED = 2**31
"""Characters that a search may compare where its time grows with the product of both texts."""

SCALARS = frozenset({str, int, float, bool, type(None)})
_VIEWS: tuple[Any, ...] = (list, tuple, type({}.keys()), type({}.values()), type({}.items()))
_UNORDERED: tuple[Any, ...] = (type({}.keys()), type({}.items()))
_DIGITS = re.compile("[0-9]+")


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


def check_settings(_: Any, *settings: Any, **named: Any) -> None:
    """Numbers or texts that are repeated: a width, an indentation."""
    for each in (*settings, *named.values()):
        if isinstance(each, int | float) and abs(each) > MAX_SETTING:
            over(f"a width, a precision or an indentation beyond {MAX_SETTING}")
        if isinstance(each, str | list | tuple) and len(each) > MAX_SETTING:
            over(f"a separator or a set of characters of more than {MAX_SETTING} characters")


def check_search(text: Any, *sought: Any, **_: Any) -> None:
    """Searches from the right, and stripping: they take as long as both lengths multiplied."""
    if isinstance(text, str) and any(isinstance(s, str) and len(text) * len(s) > _MAX_COMPARED for s in sought):
        over("a search for too long a text in too long a text")


def check_width(width: str) -> None:
    """Digits in a format."""
    check_settings(None, int(width) if len(width) < 9 else math.inf)


def _check_bits(bits: float) -> None:
    if bits > MAX_BITS:
        over(f"an integer of more than {MAX_BITS:,} bits")


class Bounds:
    """The bounds that follow from how much a rendering may hold."""

    def __init__(self, max_render_bytes: int) -> None:
        self.max_text = max(max_render_bytes, LEAST_TEXT)
        padded = self._check_padded
        self.checks: Mapping[str, Callable[..., None]] = {
            **dict.fromkeys(("center", "ljust", "rjust", "zfill"), padded),
            **dict.fromkeys(("strip", "lstrip", "rstrip", "rfind", "rindex", "rpartition"), check_search),
            **dict.fromkeys(("batch", "round", "slice", "truncate", "wordwrap"), check_settings),
            "format": self.check_filled,
            "indent": self._check_indented,
            "int": lambda value, *_, **__: _check_bits(len(value) * 3 if isinstance(value, str) else 0),
            "replace": self._check_replaced,
        }
        """What is asked before a method or a filter of a name is called, with the same arguments."""

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
        if type(value) in SCALARS:
            return len(value) if type(value) is str else 4
        weight, number, pending = 4, 0, [value]
        while pending:
            item = pending.pop()
            if isinstance(item, str):
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

    def check_operation(self, operator: str, left: Any, right: Any) -> None:
        """`left operator right`, for the operators `*`, `**`, `%` and `-`."""
        if operator == "%" and isinstance(left, str):
            self.check_filled(left, right)
        if operator == "-" and (isinstance(left, _UNORDERED) or isinstance(right, _UNORDERED)):
            raise SecurityError("keys less keys are a set, whose order is not always the same")
        if operator == "**" and isinstance(left, int) and isinstance(right, int) and abs(left) > 1:
            _check_bits(math.log2(abs(left)) * min(right, 2**60))
        if operator == "*":
            self._check_product(left, right)

    def _check_product(self, left: Any, right: Any) -> None:
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())
        for repeated, number in ((left, right), (right, left)):
            if isinstance(repeated, str) and isinstance(number, int):
                self.check_text(len(repeated) * number)
            elif isinstance(repeated, list | tuple) and isinstance(number, int):
                check_items(len(repeated) * number)

    def check_filled(self, form: Any, *values: Any, **named: Any) -> None:
        """Refuse `form % values` where it could be large."""
        form = form if isinstance(form, str) else repr(form)
        for width in _DIGITS.findall(form):
            check_width(width)
        filled = values[0] if len(values) == 1 else values
        if "*" in form:
            check_settings(None, *(filled if isinstance(filled, tuple) else (filled,)))
        self.check_text(len(form) + form.count("%") * (2000 + self.weigh(filled) + self.weigh(named)))

    def _check_padded(self, value: Any, width: Any = 80, *_: Any) -> None:
        self.check_text(max(width, self.weigh(value)))

    def _check_indented(self, text: Any, width: Any = 4, *_: Any, **__: Any) -> None:
        check_settings(None, width)
        lines = text.count("\n") + 1 if isinstance(text, str) else 1
        self.check_text(self.weigh(text) + lines * (len(width) if isinstance(width, str) else width))

    def _check_replaced(self, text: Any, old: Any, new: Any, count: int | None = None) -> None:
        text, old, new = str(text), str(old), str(new)
        if len(new) > len(old):
            number = text.count(old) if count is None or count < 0 else min(count, text.count(old))
            self.check_text(len(text) + number * (len(new) - len(old)))
