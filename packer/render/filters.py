"""Jinja's filters within :mod:`packer.render.limits`, and transformers' `tojson`."""

import functools
import inspect
import json
import pprint  # noqa: F401 - Jinja's filters would look for it, and for the next, while a template runs
import textwrap  # noqa: F401
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import jinja2.filters
from jinja2.exceptions import SecurityError
from jinja2.utils import pass_environment, pass_eval_context

from packer.render.limits import Limits, check_bits, check_search, check_setting, listed, over
from packer.render.methods import check_replaced
from packer.render.operators import Operators

_Filter = Callable[..., Any]

_MAX_SCANNED = 2**20
"""Characters of a text that is looked through with regular expressions."""

_AS_THEY_ARE = frozenset({"abs", "attr", "count", "d", "default", "first", "float", "last", "length"})
"""Take no longer for a large value."""

_OF_TEXT = frozenset({"capitalize", "e", "escape", "forceescape", "lower", "safe", "string", "upper"})
"""Of one text, and linear."""

_ITEM_BY_ITEM = frozenset({"items", "map", "reject", "rejectattr", "reverse", "select", "selectattr"})

_WHOLE = frozenset({"dictsort", "groupby", "list", "max", "min", "sort", "unique"})
"""Take all items at once."""

_SCANNING = frozenset(
    {"filesizeformat", "pprint", "striptags", "title", "truncate", "urlencode", "urlize", "wordcount", "xmlattr"}
)


_KEPT_CHARACTERS = 2**20
"""Of JSON that is kept because it may be written again, those that describe it too."""


class Filters:
    """The filters of an environment."""

    def __init__(
        self,
        given: Mapping[str, _Filter],
        limits: Limits,
        operators: Operators,
        lazy: Callable[[Iterator[Any]], Any],
    ) -> None:
        """`lazy` makes of an iterator what a template may not write."""
        # Beneath what chooses between synchronous and asynchronous: there is no event loop here.
        self._given = {name: inspect.unwrap(function) for name, function in given.items()}
        self._limits = limits
        self._operators = operators
        self._lazy = lazy
        self._written = _Written()
        self._indented_before = _Written()

    def table(self) -> dict[str, _Filter]:
        """All filters by name."""
        own: dict[str, _Filter] = {
            "batch": self._batch,
            "center": self._center,
            "format": self._format,
            "indent": self._indent,
            "int": self._int,
            "join": self._join,
            "random": _random,
            "replace": self._replace,
            "round": self._round,
            "slice": self._slice,
            "sum": self._sum,
            "tojson": self._tojson,
            "trim": self._trim,
            "wordwrap": self._wordwrap,
        }
        table = {name: own.get(name) or self._bounded(name, function) for name, function in self._given.items()}
        return table | {name: self._of_text(self._given[name]) for name in _OF_TEXT}

    def _of_text(self, function: _Filter) -> _Filter:
        def bounded(value: Any) -> Any:
            if type(value) is not str:
                self._limits.weigh(value)
            return function(value)

        return bounded

    def _bounded(self, name: str, function: _Filter) -> _Filter:
        place = int(hasattr(function, "jinja_pass_arg"))
        if name in _AS_THEY_ARE:
            return function
        weighed, whole, scanning = name not in _ITEM_BY_ITEM, name in _WHOLE, name in _SCANNING

        @functools.wraps(function)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            if whole and len(args) > place and not isinstance(args[place], Mapping):
                args = (*args[:place], listed(args[place]), *args[place + 1 :])
            if weighed:
                self._weigh(args[place:], kwargs, scanning=scanning)
            result = function(*args, **kwargs)
            return self._lazy(result) if isinstance(result, Iterator) else result

        return bounded

    def _weigh(self, args: Iterable[Any], kwargs: Mapping[str, Any], *, scanning: bool) -> None:
        weight = sum(map(self._limits.weigh, (*args, *kwargs.values())))
        if scanning and weight > _MAX_SCANNED:
            over(f"a search with a pattern in more than {_MAX_SCANNED:,} characters")

    def _batch(self, value: Iterable[Any], linecount: int, fill_with: Any = None) -> Any:
        check_setting(linecount if fill_with is not None else 0)
        return self._lazy(self._given["batch"](value, linecount, fill_with))

    def _center(self, value: Any, width: int = 80) -> Any:
        self._limits.check_text(max(width, self._limits.weigh(value)))
        return self._given["center"](value, width)

    def _format(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        self._operators.check_filled(self._operators.text(value), kwargs or args)
        return self._given["format"](value, *args, **kwargs)

    def _indent(self, s: Any, width: Any = 4, first: bool = False, blank: bool = False) -> Any:  # noqa: FBT001, FBT002 - Jinja's, by position
        check_setting(width)
        length = self._limits.weigh(s)
        lines = len(listed(s.splitlines())) if isinstance(s, str) else 0
        self._limits.check_text(length + lines * (len(width) if isinstance(width, str) else width))
        return self._given["indent"](s, width, first, blank)

    def _int(self, value: Any, default: Any = 0, base: int = 10) -> Any:
        check_bits(len(value) * 3 if isinstance(value, str) else 0)
        return self._given["int"](value, default, base)

    @pass_eval_context
    def _join(self, eval_ctx: Any, value: Iterable[Any], d: Any = "", attribute: Any = None) -> Any:
        items = listed(value)
        if attribute is not None:
            items = list(map(jinja2.filters.make_attrgetter(eval_ctx.environment, attribute), items))
        self._limits.check_text(self._limits.weigh(d) * len(items) + self._limits.weigh(items))
        return self._given["join"](eval_ctx, items, d)

    @pass_eval_context
    def _replace(self, eval_ctx: Any, s: Any, old: Any, new: Any, count: int | None = None) -> Any:
        text = self._operators.text
        check_replaced(self._limits, text(s), text(old), text(new), count)
        return self._given["replace"](eval_ctx, s, old, new, count)

    def _round(self, value: Any, precision: int = 0, method: Any = "common") -> Any:
        check_setting(precision)
        return self._given["round"](value, precision, method)

    def _slice(self, value: Iterable[Any], slices: int, fill_with: Any = None) -> Any:
        check_setting(slices)
        return self._lazy(self._given["slice"](listed(value), slices, fill_with))

    @pass_environment
    def _sum(self, environment: Any, iterable: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
        if isinstance(start, str):
            raise TypeError("sum() can't sum strings [use |join instead]")
        items: Iterable[Any] = listed(iterable)
        if attribute is not None:
            items = map(jinja2.filters.make_attrgetter(environment, attribute), items)
        return functools.reduce(self._operators.plus, items, start)

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates may pass it by position
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,  # noqa: FBT001, FBT002 - as above
    ) -> str:
        for setting in (indent, *(separators or ())):
            check_setting(setting)
        if type(value) not in (dict, list) or separators is not None or type(indent) not in (int, str, type(None)):
            self._limits.weigh(value)
            return json.dumps(
                value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
            )
        settings = (bool(ensure_ascii), indent, bool(sort_keys))
        text = self._written.find((id(value), settings))
        if text is None:
            self._limits.weigh(value)
            text = json.dumps(value, ensure_ascii=ensure_ascii, sort_keys=sort_keys)
            if indent is not None:
                text = self._indented(text, value, settings)
            self._written.keep((id(value), settings), value, text)
        return text

    def _indented(self, compact: str, value: Any, settings: tuple[bool, int | str | None, bool]) -> str:
        """JSON on lines of its own, which Python writes twenty times as slowly as on one; rows bring the same tools.

        What is written on one line tells how it is written on many: the same keys, numbers and texts in the same order.
        """
        text = self._indented_before.find((compact, settings))
        if text is None:
            ensure_ascii, indent, sort_keys = settings
            text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, sort_keys=sort_keys)
            self._indented_before.keep((compact, settings), None, text, len(compact))
        return text

    def _trim(self, value: Any, chars: str | None = None) -> Any:
        if type(value) is str and chars is None:
            return value.strip()
        if type(value) is not str:
            value = self._given["string"](value) if self._limits.weigh(value) else value
        check_search(value, chars)
        return value.strip(chars)

    @pass_environment
    def _wordwrap(self, environment: Any, s: Any, width: int = 79, *args: Any, **kwargs: Any) -> Any:
        for setting in (*args, *kwargs.values()):
            check_setting(setting)
        self._weigh((s,), {}, scanning=True)
        return self._given["wordwrap"](environment, s, width, *args, **kwargs)


class _Written:
    """JSON that was written: every rendering of a conversation writes its tools and calls again, and so do other rows.

    Where the key is the identity of a value, the value is kept, so that no other has it; a template cannot change it.
    """

    def __init__(self) -> None:
        self._texts: dict[Hashable, tuple[Any, str]] = {}
        self._num_characters = 0

    def find(self, key: Hashable) -> str | None:
        known = self._texts.get(key)
        return None if known is None else known[1]

    def keep(self, key: Hashable, value: Any, text: str, key_length: int = 0) -> None:
        length = len(text) + key_length + 100
        self._num_characters += length
        if self._num_characters > _KEPT_CHARACTERS:
            self._texts, self._num_characters = {}, length
        self._texts[key] = value, text


def _random(*_: Any, **__: Any) -> NoReturn:
    raise SecurityError("|random chooses by chance: a cache could not be built again")
