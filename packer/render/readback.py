"""Reads a row back from its rendering: are calls still valid calls, and texts unescaped?

A template can show all content of a row and still garble it. Two ways are common. Concatenating a text with one marked
as safe escapes it for HTML, so that `arguments|tojson|safe` turns a call into `[{&#34;name&#34;: …`. And applying
`tojson` to arguments that already are JSON writes a string within JSON, with a backslash before each quotation mark. A
model would learn either literally, and no server parses it as a call. So the rendering is checked without knowing the
template: the row's values are removed from it, and the rest, which the template wrote, must not contain an escape.

Some models write their calls in Python, such as `[weather(city="Paris", days=2)]`, and servers read them with Python's
parser. A template that writes texts without their escapes, or without quotation marks, makes a call that cannot be
parsed, or one with other arguments. So each call is parsed and compared with the row's.
"""

import ast
import functools
import itertools
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from packer.batches import REASONING_FIELDS

ESCAPE = re.compile(r"&(?:amp|lt|gt|quot|apos|#0*3[49]|#x0*2[27]);|\ufffd", re.IGNORECASE)
"""A character escaped for HTML, or a replacement character."""

_QUOTE = re.compile(r"\\\"")
"""A quotation mark within a JSON string."""

_TEXTS = ("content", *REASONING_FIELDS)


def strings(value: Any) -> list[str]:
    """Return all strings in a JSON value, including keys."""
    found: list[str] = []
    _gather([value], found)
    return found


def _gather(value: Any, found: list[str]) -> None:
    if isinstance(value, dict):
        found += [key for key in value if isinstance(key, str)]
        value = value.values()
    for item in value:
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict | list | tuple):
            _gather(item, found)


def added_escape(text: str, values: Sequence[Any], *, marks: str = "", others: Sequence[Any] = ()) -> str | None:
    """Return the first escape in a rendering that does not come from the row's values; None if there is none.

    A value may be written verbatim or as JSON, any number of times. If the template reshaped a value, it cannot be
    located in the text. So the escapes are also counted: if there are no more than the values contain, all are theirs.

    An escape that `marks`, the source of the template, contains is the template's own. `others` are values that the
    template may have written as well, such as those of messages whose own place is not in `text`.
    """
    if "&" not in text and "\ufffd" not in text:
        return None
    num_found = len(_escapes(text, marks))
    if not num_found:
        return None
    own = _with_escapes(values)
    if num_found <= sum(len(_escapes(value, marks)) for value in own):
        return None
    added = _escapes(_without(text, own), marks)
    if added and others:
        added = _escapes(_without(text, [*own, *_with_escapes(others)]), marks)
    return next(iter(added), None)


def _with_escapes(values: Sequence[Any]) -> list[str]:
    return [value for value in strings(values) if ESCAPE.search(value)]


def _escapes(text: str, marks: str) -> list[str]:
    return [found for found in ESCAPE.findall(text) if found not in marks]


def function_of(call: Any) -> Mapping[str, Any]:
    """Return the function of a call or tool, wrapped or bare; empty if there is none."""
    function = call.get("function", call) if isinstance(call, Mapping) else None
    return function if isinstance(function, Mapping) else {}


def arguments_of(call: Any) -> Any:
    """Return the arguments of a call as values, parsing them if they are JSON; an empty object if there are none."""
    arguments = function_of(call).get("arguments")
    if isinstance(arguments, str):
        try:
            return json.loads(arguments)
        except ValueError:
            return arguments
    return {} if arguments is None else arguments


def is_written_as_json(arguments: Any, text: str) -> bool:
    """Whether a text contains the arguments as `tojson` writes them."""
    return json.dumps(arguments, ensure_ascii=False) in text or json.dumps(arguments) in text


def quotes_call(call: Any, text: str, values: Iterable[Any]) -> bool:
    """Whether a text contains the arguments of a call as a JSON string, or may do so.

    The values of the call were all found in the text. `values` are the content of the message, including the call.
    """
    if is_written_as_json(arguments_of(call), text):
        return False
    texts = [message.get(name) for message in values if isinstance(message, Mapping) for name in _TEXTS]
    if _breaks_syntax(arguments_of(call), _without(text, strings(texts))):
        return True
    own = [value for value in strings(list(values)) if '"' in value or "\\" in value]
    return _QUOTE.search(_without(text, own)) is not None


def num_garbled(messages: Sequence[Mapping[str, Any]], text: str, *, tools: Sequence[Any] | None) -> int:
    """Count the calls of a conversation that cannot be read from its rendering; escapes count as one more.

    Used to compare two renderings of one conversation, so content that the template drops in both makes no difference.
    """
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    num_unread = sum(not _shows_arguments(call, text) for call in calls)
    return num_unread + (added_escape(text, [*messages, tools]) is not None)


def _shows_arguments(call: Any, text: str) -> bool:
    """Whether a rendering contains the arguments of a call as JSON, or value by value under their keys."""
    arguments = arguments_of(call)
    if is_written_as_json(arguments, text):
        return True
    if arguments and str(arguments) in text:
        return False  # written as a Python dict: another form of the call may be written as JSON
    if _breaks_syntax(arguments, text):
        return False
    return all(
        any(contains_escaped(spelling, text) for spelling in spellings(leaf))
        for leaf in (*keys(arguments), *leaves(arguments))
    ) and not any(f'\\"{key}\\"' in text for key in keys(arguments))


def _breaks_syntax(arguments: Any, text: str) -> bool:
    """Whether a string argument is written where JSON or Python requires a literal, but is not a valid one.

    Two forms are known: `{"city": "{{ city }}"}` without the escapes that a quotation mark in the city needs, and
    `weather(city={{ city }})` without quotation marks.
    """
    squeezed = "".join(text.split())
    for key, value in fields(arguments):
        if not isinstance(value, str) or not value.strip():
            continue
        # Compiling an expression takes long, and few are found even if white space is ignored.
        short_key, short = "".join(key.split()), "".join(value.split())
        as_json, as_python = f'"{short_key}":"{short}"' in squeezed, f"{short_key}={short}" in squeezed
        name, raw = re.escape(key), re.escape(value)
        needs_escapes = as_json and json.dumps(value, ensure_ascii=False) != f'"{value}"'
        if needs_escapes and re.search(rf'"{name}"\s*:\s*"{raw}"', text):
            return True
        if as_python and re.search(rf"[(,]\s*{name}\s*=\s*{raw}\s*[,)]", text):
            return True
    return False


def fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield key and value of every member of all objects in a JSON value."""
    if isinstance(value, Mapping):
        yield from value.items()
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for item in value:
        yield from fields(item)


def keys(value: Any) -> list[str]:
    """Return the keys of all objects in a JSON value."""
    return [key for key, _ in fields(value)]


def leaves(value: Any) -> Iterator[Any]:
    """Yield the values in a JSON value that are neither objects nor lists."""
    if isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(item)
    else:
        yield value


def spellings(leaf: Any) -> tuple[str, ...]:
    """Return the ways templates write a value: as JSON or as Python; a whole number with and without its `.0`."""
    if isinstance(leaf, str):
        return (leaf.strip(),)
    if isinstance(leaf, float) and leaf.is_integer():
        return (json.dumps(leaf), str(int(leaf)))
    return tuple(dict.fromkeys((json.dumps(leaf), str(leaf))))


def cuts_arguments(call: Any, text: str) -> bool:
    """Whether a text has a call, but a string argument of it without the white space around it."""
    spaced = [leaf for leaf in leaves(arguments_of(call)) if isinstance(leaf, str) and leaf != leaf.strip()]
    is_written = str(function_of(call).get("name")) in text
    return is_written and not all(contains_escaped(leaf, text) for leaf in spaced)


def contains_escaped(part: str, text: str) -> bool:
    """Whether a text contains another: verbatim, as JSON, or as Python writes it."""
    return part in text or any(written in text for written in escaped_spellings(part))


def escaped_spellings(value: str) -> tuple[str, ...]:
    """Return a text as it appears within a string of JSON and of Python."""
    return (*_as_json(value), repr(value)[1:-1])


def _as_json(value: str) -> tuple[str, ...]:
    """Return a text as it appears within a JSON string: with non-ASCII characters kept, and escaped."""
    return json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(value)[1:-1]


def _without(text: str, values: Iterable[str]) -> str:
    """Remove values from a text in all of their spellings, the longest value first."""
    for value in sorted(set(values), key=len, reverse=True):
        for written in (*_as_json(value), value, value.strip()):
            if written:
                text = text.replace(written, "\0")
    return text


_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|'
    r"'''(?:[^\\]|\\.)*?'''|"
    r'"(?:[^"\\\n]|\\.)*"|'
    r"'(?:[^'\\\n]|\\.)*'|"
    r"(?P<open>[(\[{])|(?P<close>[)\]}])|[^\"'()\[\]{}]+|(?P<unclosed>[\"'])",
    re.DOTALL,
)
"""A text, a bracket, a quotation mark that no other closes, or anything else."""

_JSON_NAMES = {"true": True, "false": False, "null": None}
"""Names of JSON that servers read as values, too: some models write `f(a=true)`."""

_CLOSING = re.compile(r"</[^<>\s]*?(\w+)>")


def read_as_python(calls: Sequence[Any], text: str, texts: Iterable[str] = ()) -> list[bool | None]:
    """Return for each call whether a text contains it as Python with exactly its arguments; None if not as Python.

    What one of `texts`, the other texts of the message, contains is not a call that the template has written; neither
    is what arguments contain, the call's own and those of the others.
    """
    reader = _Reader(text, [part.strip() for part in texts], strings([arguments_of(call) for call in calls]))
    return [reader.reads(call) for call in calls]


class _Reader:
    """Reads calls from one text. Each place is found and parsed once, however many calls have the same name."""

    def __init__(self, text: str, texts: Sequence[str], values: Sequence[str]) -> None:
        self._text = text
        self._texts = texts
        self._values = dict.fromkeys(part for value in values for part in (value, *escaped_spellings(value)))
        self._starts: dict[str, list[int]] = {}
        self._parsed = functools.cache(functools.partial(_parsed, text))

    def reads(self, call: Any) -> bool | None:
        name, arguments = function_of(call).get("name"), arguments_of(call)
        if not isinstance(name, str) or not isinstance(arguments, Mapping) or f"{name}(" not in self._text:
            return None
        first = "|".join([rf"{re.escape(key)}\s*=" for key in arguments] or [r"\)"])
        opening = rf"(?<![\w-]){re.escape(name)}\(\s*(?:{first})"
        if opening not in self._starts:
            self._starts[opening] = self._places_of(re.compile(opening))
        starts = self._starts[opening]
        return any(_is_same(self._parsed(name, start), arguments) for start in starts) if starts else None

    def _places_of(self, opening: re.Pattern[str]) -> list[int]:
        """Return where calls open that the template has written."""
        text = self._text
        inside = [place for part in self._texts for place in itertools.islice(_places(part, text, opening), 1)]
        inside += [place for part in self._values for place in _places(part, text, opening)]
        return [
            found.start()
            for found in opening.finditer(text)
            if not any(start <= found.start() and found.end() <= end for start, end in inside)
        ]


def _places(part: str, text: str, opening: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield where a part of a text stands in it, if the part opens the call, too."""
    if opening.search(part):
        yield from ((found.start(), found.end()) for found in re.finditer(re.escape(part), text))


def _parsed(text: str, name: str, start: int) -> Any:
    """Return the arguments of the call at a place of a text, or None if Python does not read it."""
    end = _end(text, start + len(name))
    if end is None:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # on escapes that Python reads as they stand
            call = ast.parse(text[start:end], mode="eval").body
        if not isinstance(call, ast.Call) or call.args or ast.unparse(call.func) != name:
            return None
        return {each.arg: ast.literal_eval(_JsonNames().visit(each.value)) for each in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _end(text: str, start: int) -> int | None:
    """Return where the bracket that opens at a place of a text is closed, or None."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        if token["unclosed"]:
            return None
        depth += bool(token["open"]) - bool(token["close"])
        if depth == 0:
            return token.end()
    return None


class _JsonNames(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_JSON_NAMES[node.id]) if node.id in _JSON_NAMES else node


def _is_same(read: Any, value: Any) -> bool:
    """Whether two JSON values are equal; a whole number may have a fraction of zero, but no truth value is a number."""
    if isinstance(value, Mapping):
        return (
            isinstance(read, dict)
            and read.keys() == value.keys()
            and all(_is_same(read[key], item) for key, item in value.items())
        )
    if isinstance(value, list | tuple):
        return isinstance(read, list) and len(read) == len(value) and all(map(_is_same, read, value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return isinstance(read, int | float) and not isinstance(read, bool) and read == value
    return type(read) is type(value) and bool(read == value)


def tags_in(values: Any, marks: str) -> list[str]:
    """Return the closing tags in a JSON value that a template may write as well: named in its source, or as a key is.

    `marks` is the source.
    """
    found = [tag for text in strings([values]) if "</" in text for tag in _CLOSING.finditer(text)]
    names = {*keys(values)} if found else ()
    return [*dict.fromkeys(tag[0] for tag in found if tag[1] in marks or tag[1] in names)]
