"""Reads calls back from a rendering as a server does: Python expressions, and arguments between tags.

Some models write their calls in Python, such as `[weather(city="Paris", days=2)]`, and servers read them with Python's
parser. A template that writes texts without their escapes, or without quotation marks, makes a call that cannot be
parsed, or one with other arguments. So each call is parsed and compared with the row's.

Other templates write the texts of arguments as they are: `<parameter=text>⏎…⏎</parameter>`. A server reads up to the
first closing tag. A text that holds such a tag itself ends there, and becomes another argument, or no call at all.
Which tags close something is learned from the template: the call is rendered with words in place of its values, and
what stands behind them is the template's. If a rendering of the row has more of a tag than that, its values hold some.

A null that is written as the text None is read as that text. Servers know a null by `null`, and the type of another
value by the schema of its tool.
"""

import ast
import functools
import itertools
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from packer.render.conversation import Conversation
from packer.render.placeholders import with_words
from packer.render.readback import arguments_of, escaped_spellings, function_of, keys, strings
from packer.render.turns import RenderedTurn

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


def tag_that_cuts(conversation: Conversation, turn: RenderedTurn, marks: str) -> str | None:
    """Return a tag that values of a turn's calls hold, and with which the template closes them, or None."""
    messages, k = conversation.messages[: turn.message + 1], turn.message
    calls = messages[k].get("tool_calls") or ()
    tags = tags_in([arguments_of(call) for call in calls], marks)
    if not tags:
        return None
    words, worded = with_words(calls)
    own = conversation.attempt(messages, turn.mode)
    messages[k] = {**messages[k], "tool_calls": worded}
    other = conversation.attempt(messages, turn.mode)
    if own is None or other is None:
        return None
    places = [place for word in words if (place := other.find(word)) >= 0]
    behind = other[min(places) :] if places else ""
    names = "\0".join(name for call in calls for name in keys(arguments_of(call)))  # which no words replace
    closing = (tag for tag in tags if behind.count(tag) > names.count(tag))
    return next((tag for tag in closing if own.count(tag) > other.count(tag)), None)


def writes_null_as_text(conversation: Conversation, turn: RenderedTurn) -> bool:
    """Whether a turn would be the same if arguments of its calls were the text None in place of nulls."""
    messages, k = conversation.messages[: turn.message + 1], turn.message
    calls = messages[k].get("tool_calls") or ()
    worded = [_with_text(call) for call in calls]
    if "None" not in turn.text[turn.prompt_end :] or worded == [*calls]:  # nearly always
        return False
    messages[k] = {**messages[k], "tool_calls": worded}
    written = conversation.attempt(messages, turn.mode)
    return written is not None and written.endswith(turn.whole[turn.prompt_end :])


def _with_text(call: Any) -> Any:
    function, arguments = function_of(call), arguments_of(call)
    if not isinstance(arguments, Mapping) or None not in arguments.values():
        return call
    texts = {key: "None" if value is None else value for key, value in arguments.items()}
    function = {**function, "arguments": json.dumps(texts) if isinstance(function["arguments"], str) else texts}
    return {**call, "function": function} if "function" in call else function
