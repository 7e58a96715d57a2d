"""The methods of values that templates may call, within :mod:`packer.render.limits`."""

import functools
from collections.abc import Callable
from typing import Any

from packer.render.limits import (
    MAX_ITEMS,
    Limits,
    check_items,
    check_search,
    check_setting,
    listed,
)

_Method = Callable[..., Any]

_OF_TEXT = frozenset(
    [
        "capitalize",
        "casefold",
        "count",
        "endswith",
        "find",
        "format",
        "format_map",
        "index",
        "isalnum",
        "isalpha",
        "isascii",
        "isdecimal",
        "isdigit",
        "islower",
        "isnumeric",
        "isprintable",
        "isspace",
        "istitle",
        "isupper",
        "lower",
        "partition",
        "removeprefix",
        "removesuffix",
        "startswith",
        "swapcase",
        "title",
        "upper",
    ]
)
"""Methods of text that need no limit beyond that of the text."""

_OTHERS: tuple[tuple[type | tuple[type, ...], frozenset[str]], ...] = (
    (dict, frozenset({"get", "keys", "values", "items", "copy"})),
    ((list, tuple, range), frozenset({"copy"})),
    (int, frozenset({"bit_length", "bit_count", "conjugate"})),
    (float, frozenset({"is_integer", "conjugate", "hex"})),
    (bytes, frozenset({"hex"})),
)
"""The same of other values."""


class Methods:
    """Finds the bounded form of a method."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._text: dict[str, Callable[..., Any]] = {
            **dict.fromkeys(("center", "ljust", "rjust", "zfill"), self._fill),
            **dict.fromkeys(("strip", "lstrip", "rstrip", "rfind", "rindex", "rpartition"), _search),
            **dict.fromkeys(("split", "rsplit"), _split),
            "splitlines": _lines,
            "expandtabs": self._tabs,
            "replace": self._replace,
            "join": self._join,
            "encode": _in_utf8,
        }

    def bounded(self, obj: Any, name: str, method: _Method) -> _Method | None:
        """What to call in place of `obj.name`; None where a template has no use for it."""
        if isinstance(obj, str):
            if name in _OF_TEXT:
                return method
            bounded = self._text.get(name)
            return None if bounded is None else functools.partial(bounded, obj, method)
        if isinstance(obj, list | tuple | range) and name in {"index", "count"}:
            return functools.partial(self._compare, obj, method)
        if isinstance(obj, bytes) and name == "decode":
            return functools.partial(_in_utf8, obj, method)
        for kind, names in _OTHERS:
            if isinstance(obj, kind):
                return method if name in names else None
        if name in {"changed", "fromkeys"}:
            return functools.partial(self._compare, None, method)
        return method

    def _compare(self, obj: Any, method: _Method, *args: Any) -> Any:
        self._limits.weigh(obj)
        self._limits.weigh(args)
        return method(*args)

    def _fill(self, text: str, method: _Method, width: Any = 0, *fill: Any) -> Any:
        self._limits.check_text(max(width, len(text)))
        return method(width, *fill)

    def _tabs(self, text: str, method: _Method, tabsize: Any = 8) -> Any:
        check_setting(tabsize)
        self._limits.check_text(len(text) + text.count("\t") * tabsize)
        return method(tabsize)

    def _replace(self, text: str, method: _Method, old: str, new: str, count: Any = -1) -> Any:
        check_replaced(self._limits, text, old, new, count)
        return method(old, new, count)

    def _join(self, text: str, method: _Method, items: Any) -> Any:
        items = listed(items)
        self._limits.check_text(len(text) * len(items) + self._limits.weigh(items))
        return method(items)


def check_replaced(limits: Limits, text: str, old: str, new: str, count: int | None) -> None:
    """Refuse a replacement that would be too large."""
    if len(new) > len(old):
        number = text.count(old) if count is None or count < 0 else min(count, text.count(old))
        limits.check_text(len(text) + number * (len(new) - len(old)))


def _search(text: str, method: _Method, *args: Any) -> Any:
    check_search(text, *args)
    return method(*args)


def _split(text: str, method: _Method, sep: Any = None, maxsplit: int = -1) -> Any:
    check_search(text, sep)
    parts = method(sep, min(maxsplit, MAX_ITEMS) if maxsplit >= 0 else MAX_ITEMS)
    check_items(len(parts))
    return parts


def _lines(text: str, method: _Method, *args: Any, **kwargs: Any) -> Any:
    if len(text) > MAX_ITEMS:
        check_items(sum(map(text.count, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")))
    return method(*args, **kwargs)


def _in_utf8(_: Any, method: _Method, encoding: str = "utf-8", errors: str = "strict") -> Any:
    """Another encoding would be a module that Python looks for on the disk."""
    if encoding.lower().replace("_", "-") not in {"utf-8", "utf8"} or errors not in {"strict", "ignore", "replace"}:
        raise LookupError("templates encode in UTF-8 alone")
    return method("utf-8", errors)
