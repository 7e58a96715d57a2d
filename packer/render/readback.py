"""Reading a row back from what a template wrote: are calls still calls, and texts the row's own?

A template can show everything a row says and still garble it. Two ways are common. Joining a text to one that is marked
as safe escapes it for HTML, so that `arguments|tojson|safe` makes a call of `[{&#34;name&#34;: …`. And `tojson` of
arguments that are JSON already writes a string within JSON, with a backslash before each quotation mark. A model learns
either as it stands, and no server reads it as a call.

So what a template wrote is read without knowing the template: the values of the row are taken out, and what is left,
which is the template's own, must hold no escape.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from packer.batches import REASONING_FIELDS

ESCAPE = re.compile(r"&(?:amp|lt|gt|quot|apos|#0*3[49]|#x0*2[27]);|\ufffd", re.IGNORECASE)
"""A character written for HTML, or one that was lost."""

_QUOTE = re.compile(r"\\\"")
"""A quotation mark within a JSON string."""

_TEXTS = ("content", *REASONING_FIELDS)


def strings(value: Any) -> list[str]:
    """Every string in a JSON value, keys among them."""
    found: list[str] = []
    _gather(value, found)
    return found


def _gather(value: Any, found: list[str]) -> None:
    if isinstance(value, str):
        found.append(value)
    elif isinstance(value, dict):
        found += filter(_is_text, value)
        for item in value.values():
            if item is not None:
                _gather(item, found)
    elif isinstance(value, list | tuple):
        for item in value:
            _gather(item, found)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def added_escape(text: str, values: Iterable[Any], *, marks: str = "") -> str | None:
    """The first escape of a rendering that none of the row's values brought; None where there is none.

    A value may be written as it is or as JSON, any number of times. One that the template reshaped is not found in the
    text, so it also counts how many there are: no more escapes than the values hold are always theirs.

    Args:
        text: the rendering, or a part of it.
        values: JSON values of the row.
        marks: the source of the template; an escape that stands in it as such is its own.

    """
    if "&" not in text and "\ufffd" not in text:
        return None
    num_found = len(_escapes(text, marks))
    if not num_found:
        return None
    own = [value for value in strings(list(values)) if ESCAPE.search(value)]
    if num_found <= sum(len(_escapes(value, marks)) for value in own):
        return None
    return next(iter(_escapes(_without(text, own), marks)), None)


def _escapes(text: str, marks: str) -> list[str]:
    return [found for found in ESCAPE.findall(text) if found not in marks]


def function_of(call: Any) -> Mapping[str, Any]:
    """The function of a call or a tool, be it wrapped or bare; empty where there is none."""
    function = call.get("function", call) if isinstance(call, Mapping) else None
    return function if isinstance(function, Mapping) else {}


def arguments_of(call: Any) -> Any:
    """The arguments of a call as values, also where they are given as JSON; an empty object where there are none."""
    arguments = function_of(call).get("arguments")
    if isinstance(arguments, str):
        try:
            return json.loads(arguments)
        except ValueError:
            return arguments
    return {} if arguments is None else arguments


def is_written_as_json(arguments: Any, text: str) -> bool:
    """Whether the JSON of arguments stands in a text as `tojson` writes it."""
    return json.dumps(arguments, ensure_ascii=False) in text or json.dumps(arguments) in text


def quotes_call(call: Any, text: str, values: Iterable[Any]) -> bool:
    """Whether the arguments of a call stand in a text as a string within JSON, or may do so.

    Args:
        call: whose values were all found in the text.
        text: what a template made of the message.
        values: what the message says, the call among it.

    """
    if is_written_as_json(arguments_of(call), text):
        return False
    texts = [message.get(name) for message in values if isinstance(message, Mapping) for name in _TEXTS]
    if _breaks_syntax(arguments_of(call), _without(text, strings(texts))):
        return True
    own = [value for value in strings(list(values)) if '"' in value or "\\" in value]
    return _QUOTE.search(_without(text, own)) is not None


def num_garbled(messages: Sequence[Mapping[str, Any]], text: str, *, tools: Sequence[Any] | None) -> int:
    """How many calls of a conversation cannot be read from its rendering; escapes count as one more.

    It compares two renderings of one conversation, so what a template drops in both makes no difference.
    """
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    num_unread = sum(not _reads(call, text) for call in calls)
    return num_unread + (added_escape(text, [*messages, tools]) is not None)


def _reads(call: Any, text: str) -> bool:
    """Whether the arguments of a call stand in a rendering as JSON, or value by value under their keys."""
    arguments = arguments_of(call)
    if is_written_as_json(arguments, text):
        return True
    if arguments and str(arguments) in text:
        return False  # as Python writes an object: another form of the call may give JSON
    if _breaks_syntax(arguments, text):
        return False
    return all(
        any(stands_in(spelling, text) for spelling in spellings(leaf))
        for leaf in (*keys(arguments), *leaves(arguments))
    ) and not any(f'\\"{key}\\"' in text for key in keys(arguments))


def _breaks_syntax(arguments: Any, text: str) -> bool:
    """Whether a text of the arguments is written where JSON or Python wants a literal, and is none.

    Two forms are known: `{"city": "{{ city }}"}` without the escapes that a quotation mark in the city needs, and
    `weather(city={{ city }})` without quotation marks.
    """
    for key, value in fields(arguments):
        if not isinstance(value, str) or not value.strip():
            continue
        name, raw = re.escape(key), re.escape(value)
        needs_escapes = json.dumps(value, ensure_ascii=False) != f'"{value}"'
        if needs_escapes and re.search(rf'"{name}"\s*:\s*"{raw}"', text):
            return True
        if re.search(rf"[(,]\s*{name}\s*=\s*{raw}\s*[,)]", text):
            return True
    return False


def fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Keys and values of all objects in a JSON value."""
    if isinstance(value, Mapping):
        yield from value.items()
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from fields(item)


def keys(value: Any) -> Iterator[str]:
    """The keys of all objects in a JSON value."""
    if isinstance(value, Mapping):
        yield from value
        for item in value.values():
            yield from keys(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from keys(item)


def leaves(value: Any) -> Iterator[Any]:
    """The values in a JSON value that are neither object nor list."""
    if isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(item)
    else:
        yield value


def spellings(leaf: Any) -> tuple[str, ...]:
    """How templates write a value: as JSON or as Python; a whole number with and without its `.0`."""
    if isinstance(leaf, str):
        return (leaf.strip(),)
    if isinstance(leaf, float) and leaf.is_integer():
        return (json.dumps(leaf), str(int(leaf)))
    return tuple(dict.fromkeys((json.dumps(leaf), str(leaf))))


def stands_in(part: str, text: str) -> bool:
    """Whether a text stands in another: as it is, as JSON, or as Python writes it."""
    return part in text or any(written in text for written in (*_as_json(part), repr(part)[1:-1]))


def _as_json(value: str) -> tuple[str, ...]:
    """A text as it stands within a JSON string, with other letters as they are, and in ASCII."""
    return json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(value)[1:-1]


def _without(text: str, values: Iterable[str]) -> str:
    """A text without some values, the longest first, however they are written."""
    for value in sorted(set(values), key=len, reverse=True):
        for written in (*_as_json(value), value, value.strip()):
            if written:
                text = text.replace(written, "\0")
    return text
