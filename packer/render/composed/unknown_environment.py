"""The sandbox that recorders run templates in: sees what is done with unknown values, or refuses it."""

import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jinja2
import jinja2.runtime
from jinja2 import pass_context

from packer.render.composed.message_recorder import END, MessageRecorder
from packer.render.composed.unknowns import (
    ITEM,
    SIZE,
    ZERO,
    Length,
    Number,
    UnknownArgument,
    UnknownNumber,
    WalkedArguments,
    refuse,
    written,
)
from packer.render.composed.written import JsonSettings
from packer.render.message_list import MessageList
from packer.render.search_loops import LENGTH, RENDERING
from packer.render.symbolic import HIDDEN, SEEN_BLINDLY, OpaqueError, SafeText, SymbolicText, Unknown, joined
from packer.render.symbolic_environment import (
    ContainerQueries,
    SymbolicEnvironment,
    join_texts,
    refuse_unknown,
    symbolic_environment,
)
from packer.render.template_parts import ENDINGS, IS_END, ITEMS, TemplateParts, template_parts

_FOR_UNKNOWN = {
    "filters": frozenset({"trim", "string", "join", "replace", "default", "d"}),
    "tests": frozenset(
        {"defined", "undefined", "string", "mapping", "none", "true", "false", "boolean", "number", "in"}
        | {"sequence", "iterable"}
    ),
}
"""Filters and tests that handle symbolic texts, unknown values and the list of messages; the others refuse them."""


_HIDDEN = f"(?:{'|'.join(map(re.escape, SEEN_BLINDLY))})"
_UNKNOWN_AS_JSON = re.compile(rf'"{_HIDDEN}(\d+){_HIDDEN}"')


class _Loop:
    """The variable `loop` of the loop over the messages."""

    depth, depth0 = 1, 0

    def __init__(self, recorder: MessageRecorder) -> None:
        self._recorder = recorder

    @property
    def index0(self) -> Number:
        return Number(self._recorder, ITEM, -self._recorder.start)

    @property
    def index(self) -> Number:
        return self.index0 + 1

    @property
    def length(self) -> Number:
        return Number(self._recorder, SIZE, -self._recorder.start)

    @property
    def first(self) -> bool:
        return self.index0 == 0

    @property
    def last(self) -> bool:
        return self.index == self.length

    @property
    def nextitem(self) -> Any:
        item = self._recorder.at(ITEM, 1)
        return jinja2.Undefined("there is no next item") if item is None else item

    @property
    def previtem(self) -> Any:
        return jinja2.Undefined("there is no previous item") if self.first else self._recorder.at(ITEM, -1)

    def __getattr__(self, name: str) -> Any:
        raise OpaqueError(f"loop.{name}")

    def __iter__(self) -> Iterator[Any]:
        raise OpaqueError("the loop is used in another way")

    def __len__(self) -> int:
        raise OpaqueError("the loop is used in another way")


class _Environment(SymbolicEnvironment):
    """Also answers for the list of messages."""

    def getitem(self, obj: Any, argument: Any) -> Any:
        if type(obj) is WalkedArguments:
            return obj[argument]
        recorder = obj.root.recorder if type(obj) is MessageList else None
        if recorder is None or type(argument) not in (int, Number):
            return super().getitem(obj, argument)
        base, shift = (argument.base, argument.shift) if type(argument) is Number else (ZERO, argument)
        if base == ZERO and shift < 0:
            base = SIZE
        elif base in (ZERO, ITEM, SIZE):
            shift += obj.start
        else:
            raise OpaqueError("a message of an unknown number")
        if base != ZERO and obj.start and Number(recorder, base, shift) < obj.start:
            raise OpaqueError("a message before the first of the list")
        item = recorder.at(base, shift)
        return self.undefined(obj=obj, name=argument) if item is None else item

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, str):
            refuse_unknown(right)
        return super().call_binop(context, operator, left, right)

    intercepted_binops = frozenset({"*", "**", "%"})


@pass_context
def _to_json(
    context: jinja2.runtime.Context,
    value: Any,
    *settings: Any,
    **named: Any,
) -> str:
    """The filter `tojson`, for unknown values too, and for what contains them."""
    recorder: Any = context.resolve(RENDERING)
    chosen = _settings(*settings, **named)
    ensure_ascii, indent, separators, sort_keys = chosen
    unknown: list[str] = []

    def known(part: Any) -> Any:
        if isinstance(part, SymbolicText):
            unknown.append(recorder.as_json(part, chosen))
        elif isinstance(part, UnknownArgument):
            if indent is not None and part is not value and not isinstance(part, UnknownNumber):
                raise OpaqueError("indented JSON of an unknown value within another")
            unknown.append(written(part, chosen))
        elif isinstance(part, dict):
            return {name: known(each) for name, each in part.items()}
        else:
            return [known(each) for each in part] if isinstance(part, list | tuple) else part
        return f"{HIDDEN}{len(unknown) - 1}{HIDDEN}"

    made = json.dumps(
        known(value), ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    parts: list[str] = _UNKNOWN_AS_JSON.split(made)
    parts[1::2] = [unknown[int(number)] for number in parts[1::2]]
    if len(parts) != 2 * len(unknown) + 1:
        raise OpaqueError("a text contains what stands for unknown values")
    return joined(parts)


def _settings(
    ensure_ascii: Any = False,  # noqa: FBT002 - templates may pass it by position
    indent: Any = None,
    separators: Any = None,
    sort_keys: Any = False,  # noqa: FBT002 - as above
) -> JsonSettings:
    return bool(ensure_ascii), indent, None if separators is None else tuple(separators), bool(sort_keys)


@pass_context
def _items(context: jinja2.runtime.Context, items: Any, recorder: MessageRecorder) -> MessageRecorder:
    return recorder.begin(context, items)


def _endings(item: Any, recorder: MessageRecorder) -> list[tuple[Any, ...]]:
    return [] if recorder.ending is None else [(item, *recorder.ending)]


def _length(items: Any, enough: int | None = None) -> Any:
    del enough
    if type(items) is MessageList and items.root.recorder is not None:
        return Number(items.root.recorder, SIZE, -items.start)
    return Length() if type(items) is SymbolicText else len(items)


def _members(usual: Callable[[Any], Iterable[Any]], value: Any) -> Iterator[Any]:
    """The filter `items`, for arguments too."""
    yield from value.items() if type(value) is WalkedArguments else usual(value)


def _formatted(usual: Callable[..., str], form: Any, *values: Any, **named: Any) -> str:
    """The filter `format`, for unknown values too, where it only inserts texts."""
    fixed = form.split("%s") if type(form) is str and not named else []
    if len(fixed) != len(values) + 1 or any("%" in part for part in fixed):
        return usual(form, *values, **named)
    return joined([fixed[0], *itertools.chain(*zip(map(str, values), fixed[1:], strict=True))])


def _is_unknown(value: Any) -> bool:
    if type(value) is MessageList:
        return value.root.recorder is not None
    return isinstance(value, Unknown)


def _for_known_only(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if any(map(_is_unknown, (*args, *kwargs.values()))):
            refuse(*args, *kwargs.values())
        return function(*args, **kwargs)

    return checked


@functools.cache
def _environment(date: str) -> _Environment:
    environment: _Environment = symbolic_environment(date, _Environment)
    for kind, known in _FOR_UNKNOWN.items():
        functions = getattr(environment, kind)
        setattr(
            environment,
            kind,
            {name: each if name in known else _for_known_only(each) for name, each in functions.items()},
        )
    environment.filters |= {
        "tojson": _to_json,
        "safe": lambda text: SafeText(str(text)),
        "length": _length,
        "count": _length,
        LENGTH: _length,
    }
    for name, filtered in (("items", _members), ("format", _formatted)):
        environment.filters[name] = functools.partial(filtered, environment.filters[name])
    environment.filters |= {ITEMS: _items, IS_END: lambda item: item is END, ENDINGS: _endings}
    return environment


def _loop_of(items: Any, *rest: Any) -> Any:
    if type(items) is not MessageRecorder:
        return jinja2.runtime.LoopContext(items, *rest)
    loop = _Loop(items)
    return ((item, loop) for item in items)


def recordable(date: str, source: str, switches: Sequence[str]) -> TemplateParts | None:
    """Rewrite a template for a :class:`MessageRecorder`; None if it does not have the required form.

    Raises:
        OpaqueError: the template does what cannot be recorded.
    """
    found = template_parts(_environment(date), source, ("add_generation_prompt", *switches), ContainerQueries())
    if found is not None:
        for each in (found.whole, found.halves.second):
            join_texts(each)
        found.whole.root_render_func.__globals__["LoopContext"] = _loop_of
    return found
