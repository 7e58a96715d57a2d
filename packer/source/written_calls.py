"""Calls that an answer has as text, where its row has tools.

Datasets of calls have them in the field of the answer: ``[{"name": "tide", "arguments": {"harbor": "Oban"}}]``, in
fences or tags, or as Python. Trained as text they would teach a model to write these where its template has a form for
calls. An answer that is calls and nothing else, but for marks around and between them, is read as calls; before a mark
that says so, such as ``<tool_call>``, it may have a text. Any other answer with a call in it is refused: only a person
knows whether it makes the call or explains it.

An object is a call if it has the name of one of the tools, perhaps in a namespace, and its arguments: in an object
under the names that servers use, or under others if all of them are parameters of that tool, or beside the name. Any
other JSON with the name of a tool as a key or a value is refused, and so is a call between marks of a tool that the row
does not define.
"""

import ast
import functools
import itertools
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packer.batches import Message, Sample, tool_parameters
from packer.source.decode import Refused, decode_json, decoded_json
from packer.source.file_bytes import quoted
from packer.source.tools_and_calls import MAX_PYTHON, read_calls

_ARGUMENTS = ("arguments", "parameters")
"""Names of the arguments in OpenAI's calls, and in those of Llama 3."""

_MARKS = re.compile(r"(?:[\s,;]|```[\w-]*|<[^<>\s]+>|\[/?[A-Z_]+\])*")
_CALL_MARK = re.compile(r"<[^<>\s/]{0,80}?call[^<>\s]{0,80}>|\[TOOL_CALLS\]", re.IGNORECASE)
_PYTHON = re.compile(r".*?(?=<[/|][^<>\s]+>|```|\Z)", re.DOTALL)
"""What may be Python, up to a mark that closes it."""

_MOST_TOOLS = 64
"""So many are looked for in one text."""

_WORD = re.compile(r"[^\W_]+")
_QUOTE = r"""[\\"'`*]{0,4}"""
_GAP = r"""(?:(?>[^\w,]|(?<=[<"'`/.({\[])\w++|\w++(?=[\\"'`]*\s?[=:>({\[]))){0,60}?"""
"""Between the names of a call: marks, and words that touch them, but none of a sentence."""

_GIVEN = r"""(?:=(?!=)|:\s*(?:["'\d\[{<\\]|(?:true|false|null)\b)|>\s*[^\s<]|</\w+>\s*<)"""
"""Behind the name of a parameter, if it has a value: `="`, `: 5`, `>Oban`, `</arg_key><arg_value>`."""

_IN_TAG = r"""[^<>\[\]\s"']{0,40}"""
_TAG = rf"[<\[](?:[^<>\[\]]{{0,40}}\s)?{_IN_TAG}(?i:function|tool|call|invoke){_IN_TAG}(?:\s+name)?\s*[=>\]]"
_MEMBER = rf"(?i:name|function|tool|action)\w{{0,40}}{_QUOTE}\s*:"
_ARGUMENTS_MEMBER = re.compile(rf"(?i:arg|param|input)\w{{0,40}}{_QUOTE}\s*:")


@functools.lru_cache(maxsize=1024)
def _patterns(name: str, parameters: tuple[str, ...] | None) -> tuple[re.Pattern[str], ...]:
    """Return what matches a call of a tool: one that marks say it is, a member of an object, one with a value."""
    exact = rf"(?<![\w-])(?<!def ){re.escape(name)}(?![\w-])"
    tool = rf"(?i:{exact})"
    key = r"\w+" if parameters is None else "|".join(map(re.escape, parameters)) or "(?!)"
    key = rf"(?<!\w)(?:{key})(?![\w-])"
    called = rf"""(?:{tool}(?=\(|[ \t]\w+=)|^[^\w\n]*+{exact}(?![ \t])|{exact}(?=[\\"'`*]*[ \t]?[^\w\s]))"""
    is_word = re.search(r"[a-z][A-Z]|[\W\d_]", name) is None
    valued = (
        rf"{called}{_GAP}(?:{key}{_QUOTE}\s*{_GIVEN}|--{key}|\n\s+(?:- )?{key}:[ \t])",
        rf"{tool}\(\s*[\"']",
        rf"\A(?:\s*```\w*)?\W*(?:\w+\.)*{tool}\([^()]*\)\W*\Z",
        rf"\A[^\w\n]*{exact}\W+\w[^\n]*(?<![.!?:])\Z" if not is_word else r"(?!)",
    )
    marked = (
        rf"{_TAG}\W{{0,8}}{tool}",
        rf"\bto=(?:\w+\.)?{tool}",
        rf"^\W{{0,8}}(?i:action|function|tool)\W{{0,8}}:\W{{0,8}}{tool}(?=[^\w\n]{{0,8}}$)",
    )
    each = ("|".join(marked), rf"{_MEMBER}\s*{_QUOTE}{tool}", "|".join(valued))
    return tuple(re.compile(pattern, re.MULTILINE) for pattern in each)


def with_calls_of_text(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Sequence[Message]:
    """Return the messages with the calls of answers that are nothing else."""
    functions = {tool["function"]["name"]: tool["function"] for tool in tools}
    if not _name_any(messages, functions):
        return messages
    return [_read(message, functions, where=f"$.messages[{number}]") for number, message in enumerate(messages)]


def refuse_calls_in_text(sample: Sample) -> None:
    """Refuse a row with an answer that has calls in its text, unless the answer is not one to imitate."""
    if not sample.tools or (sample.preference is not None and not sample.preference.is_desirable):
        return
    functions = {tool["function"]["name"]: tool["function"] for tool in sample.tools}
    is_named = _name_any(sample.messages, functions)
    for number, message in enumerate(sample.messages):
        if message.fields["role"] != "assistant":
            continue
        text = _answer(message, functions) if is_named else ""
        _refuse_undefined(message, functions, where=f"$.messages[{number}]")
        is_called = bool(message.fields.get("tool_calls"))
        called = (*_in_json(text, functions), *_called(text, functions, is_called=is_called)) if text else ()
        name = next(iter(called), None)
        if name is not None:
            reason = f"a call of {quoted(name)} within the text at $.messages[{number}]"
            raise Refused("bad_tools", f"{reason}, which would be trained letter by letter; give it under `tool_calls`")


def _refuse_undefined(message: Message, functions: Mapping[str, Any], *, where: str) -> None:
    """Refuse an answer that calls, behind a mark of calls, what is no tool of the row."""
    text = message.fields.get("content")
    said = split_thought(text)[1] if isinstance(text, str) else ""
    for value in _values(said[mark.start() :]) if (mark := _CALL_MARK.search(said)) else ():
        call = value.get("function", value) if isinstance(value, dict) else None
        name = call.get("name") if isinstance(call, dict) and not call.keys().isdisjoint(_ARGUMENTS) else None
        if isinstance(name, str) and _tool(name, functions) is None:
            raise Refused("bad_tools", f"a call of {quoted(name)} at {where}, which is not one of the row's tools")


def _in_json(text: str, functions: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tools whose names are keys or values of the objects that a text is."""
    is_json = text.startswith(("{", "["), _end(_MARKS, text, 0))
    stack: list[Any] = [value for value in _values(text) if isinstance(value, dict)] if is_json else []
    while stack:
        value = stack.pop()
        inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
        yield from (name for each in inner if isinstance(each, str) and (name := _tool(each, functions)))
        stack += (each for each in inner if isinstance(each, dict | list))


def _tool(name: Any, functions: Mapping[str, Any]) -> str | None:
    """Return the tool that a name is of, which may be in a namespace, such as `functions.tide`."""
    names = (name, name.rpartition(".")[2]) if isinstance(name, str) else ()
    return next((each for each in names if each in functions), None)


def split_thought(text: str) -> tuple[str, str]:
    """Split off the reasoning before the JSON of a call."""
    if not text.lstrip().startswith("<think>"):
        return "", text
    thought, closing, call = text.partition("</think>")
    return thought + closing, call


def _name_any(messages: Sequence[Message], functions: Mapping[str, Any]) -> bool:
    """Whether some answer may have the name of a tool in its text; in most rows none has."""
    answers = [message.fields.get("content") for message in messages if message.fields["role"] == "assistant"]
    return bool(_named("\n".join([text for text in answers if isinstance(text, str)]), functions))


def _answer(message: Message, functions: Mapping[str, Any]) -> str:
    """Return the text of an answer without its reasoning; or an empty one, if it names no tool."""
    text = message.fields.get("content")
    if message.role != "assistant" or not isinstance(text, str):
        return ""
    return split_thought(text)[1] if _named(text, functions) else ""


def _named(text: str, functions: Mapping[str, Any]) -> list[str]:
    """Return the tools whose names a text may have, in letters of any size."""
    text = text.lower()
    likely = [name for name in functions if all(word in text for word in _words(name))]  # nearly always none
    words = {*_WORD.findall(text)} if likely else set[str]()
    return [*itertools.islice((name for name in likely if words.issuperset(_words(name))), _MOST_TOOLS)]


@functools.lru_cache(maxsize=1024)
def _words(name: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(name.lower()))


def _read(message: Message, functions: Mapping[str, Any], *, where: str) -> Message:
    text = _answer(message, functions)
    if not text or message.spans is not None:  # nearly always
        return message
    for start in (0, *(mark.start() for mark in [_CALL_MARK.search(text)] if mark)):
        calls = [_as_call(value, functions) for value in _values(text[start:])]
        if calls and None not in calls:
            break
    else:
        return message
    read = read_calls(calls, where=where)
    own = message.fields.get("tool_calls") or read
    if [call["function"] for call in own] != [call["function"] for call in read]:
        return message
    before = message.fields["content"].removesuffix(text) + text[:start]
    return Message(fields={**message.fields, "content": before.rstrip(), "tool_calls": own}, trained=message.trained)


def _values(text: str) -> list[Any]:
    """Return the values that a text has between its marks, of each list its items; none if it has anything else."""
    values: list[Any] = []
    end = _end(_MARKS, text, 0)
    try:
        while end < len(text):
            try:
                value, end = json.JSONDecoder().raw_decode(text, end)
            except ValueError:
                start, end = end, _end(_PYTHON, text, end)
                values += _python_values(text[start:end])
            else:
                values.append(value)
            end = _end(_MARKS, text, end)
        values = decode_json(json.dumps(values).encode())  # which is strict
    except (Refused, SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return []
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start, start + MAX_PYTHON if pattern is _PYTHON else len(text))
    assert match is not None, "which may be empty"
    return match.end()


def _python_values(text: str) -> list[Any]:
    with warnings.catch_warnings(action="ignore"):  # on escapes that Python reads as they stand
        tree = ast.parse(text)
    if text.count("#") > ast.unparse(tree).count("#"):
        raise ValueError("a comment")
    return [_python_value(step.value if isinstance(step, ast.Expr) else step) for step in tree.body]


def _python_value(node: ast.AST) -> Any:
    """Return a literal, or a call as an object with its name and arguments."""
    if isinstance(node, ast.List):
        return [_python_value(item) for item in node.elts]
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        return ast.literal_eval(node)  # which takes no call, such as that of a method
    arguments = {each.arg: ast.literal_eval(each.value) for each in node.keywords}
    if None in arguments:
        raise ValueError("arguments that are unpacked")
    return {"name": node.func.id, "arguments": arguments}


def _as_call(item: Any, functions: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an object as a call with `name` and `arguments`; None if it is no call of one of the tools."""
    function = item.get("function", item) if isinstance(item, dict) else None
    function = function if isinstance(function, dict) else item
    if not isinstance(function, dict):
        return None
    names = [key for key, value in function.items() if _tool(value, functions)]
    objects = {key: found for key, value in function.items() if (found := _object(value)) is not None}
    if not objects and (beside := {key: value for key, value in function.items() if key not in (*names, "id", "type")}):
        objects = {"": beside}
    if len(names) != 1 or len(objects) != 1:
        return None
    name, (key, arguments) = _tool(function[names[0]], functions) or "", *objects.items()
    is_definition = key == "parameters" and "properties" in arguments
    if names[0] != "name" or key not in _ARGUMENTS or is_definition:
        known = tool_parameters(functions[name])
        if known is None or not arguments.keys() <= {*known}:
            return None
    return {"name": name, "arguments": arguments} | ({"id": item["id"]} if isinstance(item.get("id"), str) else {})


def _object(value: Any) -> dict[str, Any] | None:
    """Return an object, or the one whose JSON a text is; None for anything else."""
    value = decoded_json(value) if isinstance(value, str) else value
    return value if isinstance(value, dict) else None


def _called(text: str, functions: Mapping[str, Any], *, is_called: bool) -> Iterator[str]:
    """Yield the tools that a text calls.

    A tool is called by what marks say: the tag ``<function=``, ``Action:``, ``to=``, or a member such as `name` beside
    one such as `arguments`. In an answer without other calls it is called, too, if its name is followed by that of a
    parameter with a value, or by a value in brackets, and no word of a sentence stands between. So it is if the text is
    nothing but its name with brackets, or is a line that begins with its name, which is no word (`get_tide`), and that
    ends as no sentence does.
    """
    has_arguments = _ARGUMENTS_MEMBER.search(text) or _CALL_MARK.search(text)
    for name in _named(text, functions):
        known = tool_parameters(functions[name])
        marked, member, valued = _patterns(name, None if known is None else tuple(known))
        tried = [marked, *([member] if has_arguments else []), *([] if is_called else [valued])]
        if any(pattern.search(text) for pattern in tried):
            yield name
