"""Calls that an answer has as text, where its row has tools.

Datasets of calls have them in the field of the answer: ``[{"name": "tide", "arguments": {"harbor": "Oban"}}]``, in
fences or tags, or as Python. Trained as text they would teach a model to write these where its template has a form for
calls. An answer that is calls and nothing else, but for marks around and between them, is read as calls; before a mark
that says so, such as ``<tool_call>``, it may have a text. Any other answer with a call in it is refused: only a person
knows whether it makes the call or explains it.

An object is a call if it has the name of one of the tools, and the object of its arguments: under the names that
servers use, or under others if all of them are parameters of that tool.
"""

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packer.batches import Message, Sample, tool_parameters
from packer.source.decode import Refused, decode_json
from packer.source.file_bytes import quoted
from packer.source.message_parts import read_calls

_ARGUMENTS = ("arguments", "parameters")
"""Names of the arguments in OpenAI's calls, and in those of Llama 3."""

_MARKS = re.compile(r"(?:[\s,;]|```[\w-]*|<[^<>\s]+>|\[/?[A-Z_]+\])*")
_CALL_MARK = re.compile(r"<[^<>\s/]{0,80}?call[^<>\s]{0,80}>|\[TOOL_CALLS\]", re.IGNORECASE)
_PYTHON = re.compile(r".*?(?=<[/|][^<>\s]+>|```|\Z)", re.DOTALL)
"""What may be Python, up to a mark that closes it."""

_MAX_PYTHON = 2**16
"""Characters that are parsed as Python, whose trees take a hundred times as much memory."""

_NAME = r"([\w.-]{1,128})"
_MEMBER = re.compile(
    r"""(?:name|function|tool|action)\w{0,40}\\*["']\s*:\s*\\*["']([^"'\\\n]{1,128})\\*["']""", re.IGNORECASE
)
_ARGUMENTS_MEMBER = re.compile(r"""(?:arg|param|input)\w{0,40}\\*["']\s*:""", re.IGNORECASE)
_TAG = re.compile(
    rf"""[<\[][^<>\[\]\s]{{0,40}}(?:function|tool|call|invoke)[^<>\[\]]{{0,40}}[=>\]]\s*["']?{_NAME}""", re.IGNORECASE
)
_ATTRIBUTE = re.compile(
    rf"""[<\[][^<>\[\]]{{0,40}}(?:function|tool|call|invoke)\w{{0,40}}(?:\s+name)?\s*=\s*["']{_NAME}["']""",
    re.IGNORECASE,
)
_ACTION = re.compile(
    rf"(?:(?:^\W{{0,8}}action|✿function✿)\W{{0,8}}:\W{{0,8}}(?=[\w.-]{{1,128}}[^\w\n]{{0,8}}(?:\n|\Z))|\bto=){_NAME}",
    re.IGNORECASE | re.MULTILINE,
)
_WITH_PARAMETER = re.compile(
    rf"""(?<![\w.-])(?<!def ){_NAME}(?:\(\s*+(?:\{{\s*+)?|>?\{{\s*+|["']\s*+:\s*+\{{\s*+|>\s*+<)"""
    r"""["']?(\w+)(?:["']?\s*+(?:=(?!=)|:\s*+["'\d\[{<])|>)"""  # f(…, f({…, f{…, <f>{…, "f": {…, <f><…, with a value
)
_BEFORE_JSON = re.compile(
    rf"""^(?:<[^<>\n]{{0,40}}>|\[[A-Z_]+\]|[^\w\n])*+{_NAME}(?:\[[A-Z]+\]|```\w*|[^\w{{}}]){{0,16}}+\{{\s*+"""
    r"""["'](\w+)["']\s*+:""",
    re.MULTILINE,
)
"""Matches a line that begins with a name, but for marks, and goes on with an object: `>>>tide⏎{"harbor": …}`."""

_WHOLE = re.compile(rf"\A(?:\s*```\w*)?\W*{_NAME}\([^()]*\)\W*\Z")
_NAMESPACE = re.compile(r"\A(?:functions|default_api|tools)\.|\.call\Z")

_FEW_TOOLS = 64
"""So many names are looked for in a text one by one."""


def with_calls_of_text(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Sequence[Message]:
    """Return the messages with the calls of answers that are nothing else."""
    functions = {tool["function"]["name"]: tool["function"] for tool in tools}
    if not _name_any(messages, functions):
        return messages
    return [_read(message, functions, where=f"$.messages[{number}]") for number, message in enumerate(messages)]


def refuse_calls_in_text(sample: Sample) -> None:
    """Refuse a row with an answer that has calls in its text, unless the answer is not one to imitate.

    Raises:
        Refused: `bad_tools`.
    """
    if not sample.tools or (sample.preference is not None and not sample.preference.is_desirable):
        return
    functions = {tool["function"]["name"]: tool["function"] for tool in sample.tools}
    for number, message in enumerate(sample.messages if _name_any(sample.messages, functions) else ()):
        text = _answer(message, functions)
        name = next(_called(text, functions, is_called=bool(message.fields.get("tool_calls"))), None) if text else None
        if name is not None:
            reason = f"a call of {quoted(name)} within the text at $.messages[{number}]"
            raise Refused("bad_tools", f"{reason}, which would be trained letter by letter; give it under `tool_calls`")


def split_thought(text: str) -> tuple[str, str]:
    """Split off the reasoning before the JSON of a call."""
    if not text.lstrip().startswith("<think>"):
        return "", text
    thought, closing, call = text.partition("</think>")
    return thought + closing, call


def _name_any(messages: Sequence[Message], functions: Mapping[str, Any]) -> bool:
    """Whether some answer may have the name of a tool in its text; in most rows none has."""
    answers = [message.fields.get("content") for message in messages if message.fields["role"] == "assistant"]
    said = "\0".join([text for text in answers if isinstance(text, str)])
    return len(functions) > _FEW_TOOLS or any(name in said for name in functions)


def _answer(message: Message, functions: Mapping[str, Any]) -> str:
    """Return the text of an answer without its reasoning; or an empty one, if it names no tool."""
    text = message.fields.get("content")
    if message.role != "assistant" or not isinstance(text, str) or not _name_any([message], functions):
        return ""
    return split_thought(text)[1]


def _read(message: Message, functions: Mapping[str, Any], *, where: str) -> Message:
    text = _answer(message, functions)
    if not text:  # nearly always
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
    return Message(fields={**message.fields, "content": before.rstrip(), "tool_calls": own}, weight=message.weight)


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
    match = pattern.match(text, start, start + _MAX_PYTHON if pattern is _PYTHON else len(text))
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
    if not isinstance(node, ast.Call) or node.args or any(each.arg is None for each in node.keywords):
        return ast.literal_eval(node)
    arguments = {each.arg: ast.literal_eval(each.value) for each in node.keywords}
    return {"name": ast.unparse(node.func), "arguments": arguments}


def _as_call(item: Any, functions: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an object as a call with `name` and `arguments`; None if it is no call of one of the tools."""
    function = item.get("function", item) if isinstance(item, dict) else None
    function = function if isinstance(function, dict) else item
    if not isinstance(function, dict):
        return None
    names = [key for key, value in function.items() if isinstance(value, str) and value in functions]
    objects = {key: found for key, value in function.items() if (found := _object(value)) is not None}
    if len(names) != 1 or len(objects) != 1:
        return None
    name, (key, arguments) = function[names[0]], *objects.items()
    is_definition = key == "parameters" and "properties" in arguments
    if names[0] != "name" or key not in _ARGUMENTS or is_definition:
        known = tool_parameters(functions[name])
        if known is None or not arguments.keys() <= {*known}:
            return None
    return {"name": name, "arguments": arguments} | ({"id": item["id"]} if isinstance(item.get("id"), str) else {})


def _object(value: Any) -> dict[str, Any] | None:
    """Return an object, or the one whose JSON a text is; None for anything else."""
    if isinstance(value, str) and value.strip().startswith("{"):
        try:
            value = decode_json(value.encode())
        except (Refused, UnicodeEncodeError):
            return None
    return value if isinstance(value, dict) else None


def _called(text: str, functions: Mapping[str, Any], *, is_called: bool) -> Iterator[str]:
    """Yield the tools that a text calls.

    That is: the value of a member such as `name` or `tool`, beside one such as `arguments` or a mark of calls; what a
    tag such as ``<function=`` or ``<tool_call>`` names; what follows `Action:` or `to=`; and, in an answer without
    other calls, a tool with the value of a parameter, or with brackets and nothing else, and one that an object with
    a parameter follows.
    """
    named = [*_TAG.findall(text), *_ATTRIBUTE.findall(text), *_ACTION.findall(text)]
    named += _MEMBER.findall(text) if _ARGUMENTS_MEMBER.search(text) or _CALL_MARK.search(text) else []
    if not is_called:
        known = {name: tool_parameters(function) for name, function in functions.items()}
        named += _WHOLE.findall(text)
        found = [*_WITH_PARAMETER.findall(text), *_BEFORE_JSON.findall(text)]
        named += [name for name, key in found if key in (known.get(name) or [key])]
    yield from (name for each in named if (name := _NAMESPACE.sub("", each).rstrip(".-")) in functions)
