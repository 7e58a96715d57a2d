"""Jinja's filters within :mod:`packer.render.bounds`, and transformers' `tojson`."""

import functools
import inspect
import json
import math
import pprint  # noqa: F401 - Jinja's filters would look for it, and for the next, while a template runs
import textwrap  # noqa: F401
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, TypeAlias

import jinja2.filters
from jinja2.exceptions import SecurityError
from jinja2.utils import pass_environment, pass_eval_context

from packer.render.bounds import MAX_SCANNED, SCALARS, Bounds, check_items, check_settings, over

Filter: TypeAlias = Callable[..., Any]

_AS_THEY_ARE = frozenset({"abs", "attr", "count", "d", "default", "first", "float", "last", "length"})
"""Take no longer for a large value."""

_WHOLE = frozenset({"dictsort", "groupby", "list", "max", "min", "slice", "sort", "unique"})
"""Take all items at once."""

_SCANNING = frozenset(
    {"filesizeformat", "pprint", "striptags", "title", "truncate", "urlencode", "urlize", "wordcount", "wordwrap"}
    | {"xmlattr"}
)

_KEPT_CHARACTERS = 2**20
"""Of JSON that is kept because it may be written again, those that describe it too."""


class Lazy:
    """What a filter gives item by item; a template may go through it, and cannot write it."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return self._items

    def __repr__(self) -> NoReturn:
        raise SecurityError("the template writes the result of a filter before it is a list (|list, |join)")


def bounded_filters(given: Mapping[str, Filter], bounds: Bounds) -> dict[str, Filter]:
    """The filters of an environment, by name."""
    # Beneath what chooses between synchronous and asynchronous: there is no event loop here.
    filters = {name: _bounded(name, inspect.unwrap(function), bounds) for name, function in given.items()}
    own: dict[str, Filter] = {
        "join": _join(bounds),
        "random": _random,
        "sum": _sum,
        "tojson": ToJson(bounds),
        "trim": _trim(bounds),
    }
    return filters | own


def _bounded(name: str, function: Filter, bounds: Bounds) -> Filter:
    if name in _AS_THEY_ARE:
        return function
    place = int(hasattr(function, "jinja_pass_arg"))
    check, whole = bounds.checks.get(name), name in _WHOLE
    most = MAX_SCANNED if name in _SCANNING else math.inf

    @functools.wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        value, *others = args[place:]
        if whole and isinstance(value, Iterator | Lazy | str):
            value = listed(value)
        if type(value) not in SCALARS or others or kwargs:
            weight = sum(map(bounds.weigh, (value, *others, *kwargs.values())))
        else:
            weight = len(value) if type(value) is str else 0
        if weight > most:
            over(f"a search with a pattern in more than {most:,} characters")
        bounds.check_text(weight)
        if check is not None:
            check(value, *others, **kwargs)
        result = function(*args[:place], value, *others, **kwargs)
        return Lazy(result) if isinstance(result, Iterator) else result

    return bounded


def listed(value: Iterable[Any]) -> list[Any]:
    """The items of a text or an iterator."""
    if isinstance(value, str):
        check_items(len(value))
    items = list(value)
    check_items(len(items))
    return items


def _join(bounds: Bounds) -> Filter:
    @pass_eval_context
    def join(eval_ctx: Any, value: Iterable[Any], d: Any = "", attribute: Any = None) -> Any:
        items = list(value)
        if attribute is not None:
            items = list(map(jinja2.filters.make_attrgetter(eval_ctx.environment, attribute), items))
        bounds.check_text(bounds.weigh(d) * len(items) + bounds.weigh(items))
        return jinja2.filters.sync_do_join(eval_ctx, items, d)

    return join


def _trim(bounds: Bounds) -> Filter:
    def trim(value: Any, chars: str | None = None) -> Any:
        if type(value) is not str:
            bounds.weigh(value)
            value = str(value)
        if chars is None:
            return value.strip()
        bounds.checks["strip"](value, chars)
        return value.strip(chars)

    return trim


@pass_environment
def _sum(environment: Any, iterable: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
    """Jinja's, one step for each item."""
    if isinstance(start, str):
        raise TypeError("sum() can't sum strings [use |join instead]")
    if attribute is not None:
        iterable = map(jinja2.filters.make_attrgetter(environment, attribute), iterable)
    return functools.reduce(lambda total, item: total + item, iterable, start)


def _random(*_: Any, **__: Any) -> NoReturn:
    raise SecurityError("|random chooses by chance: a cache could not be built again")


class ToJson:
    """Transformers' `tojson`, which keeps what it wrote.

    Every rendering of a conversation writes its tools and calls again, and so do other rows.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._texts: dict[Hashable, tuple[Any, str]] = {}
        self._num_characters = 0

    def __call__(
        self,
        value: Any,
        ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates may pass it by position
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,  # noqa: FBT001, FBT002 - as above
    ) -> str:
        kept = type(value) in (dict, list) and separators is None and type(indent) in (int, str, type(None))
        settings = (bool(ensure_ascii), indent, bool(sort_keys)) if kept else None
        # A template cannot change a value, and the value is kept, so that no other has its identity.
        known = self._texts.get((id(value), settings)) if kept else None
        if known is not None:
            return known[1]
        check_settings(None, indent, *(separators or ()))
        self._bounds.weigh(value)
        text = json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=None if kept else indent,
            separators=separators,
            sort_keys=sort_keys,
        )
        if kept:
            if indent is not None:
                text = self._indented(text, value, indent, settings)
            self._keep((id(value), settings), value, text)
        return text

    def _indented(self, compact: str, value: Any, indent: int | str, settings: Any) -> str:
        """JSON on lines of its own, which Python writes twenty times as slowly as on one; rows bring the same tools.

        What is written on one line tells how it is written on many: the same keys, numbers and texts in the same order.
        """
        known = self._texts.get((compact, settings))
        if known is not None:
            return known[1]
        ensure_ascii, _, sort_keys = settings
        text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, sort_keys=sort_keys)
        self._keep((compact, settings), None, text, len(compact))
        return text

    def _keep(self, key: Hashable, value: Any, text: str, key_length: int = 0) -> None:
        length = len(text) + key_length + 100
        self._num_characters += length
        if self._num_characters > _KEPT_CHARACTERS:
            self._texts, self._num_characters = {}, length
        self._texts[key] = value, text
