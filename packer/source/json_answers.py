"""Calls that an answer has as text: where a row has tools and its answer is JSON that calls one of them.

Datasets of calls have them in the field of the answer: ``[{"name": "tide", "arguments": {"harbor": "Oban"}}]``. Trained
as text they would teach a model to write JSON where its template has a form for calls.

An object is a call if it has the name of one of the tools, and the object of its arguments: under the names that
servers use, or under others if all of them are parameters of that tool.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from packer.batches import Message, tool_parameters
from packer.source.decode import Refused, decode_json
from packer.source.message_parts import read_calls

_ARGUMENTS = ("arguments", "parameters")
"""Names of the arguments in OpenAI's calls, and in those of Llama 3."""


def with_calls_of_text(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return the messages with the calls that answers have as JSON.

    Raises:
        Refused: `bad_tools`; an answer is a list of calls and other things.
    """
    functions = {tool["function"]["name"]: tool["function"] for tool in tools}
    return [_read(message, functions, where=f"$.messages[{number}]") for number, message in enumerate(messages)]


def _read(message: Message, functions: Mapping[str, Any], *, where: str) -> Message:
    text = message.fields.get("content")
    if message.role != "assistant" or message.fields.get("tool_calls") or not isinstance(text, str):
        return message
    thought, answer = split_thought(text)
    items = _decoded(answer.strip())
    calls = [call for item in items if (call := _as_call(item, functions)) is not None]
    if not calls:
        return message
    if len(calls) < len(items):
        raise Refused("bad_tools", f"calls as text, and something else among them, at {where}; give them as tool_calls")
    fields = {**message.fields, "content": thought, "tool_calls": read_calls(calls, where=where)}
    return Message(fields=fields, weight=message.weight)


def split_thought(text: str) -> tuple[str, str]:
    """Split off the reasoning before the JSON of a call."""
    if not text.lstrip().startswith("<think>"):
        return "", text
    thought, closing, call = text.partition("</think>")
    return thought + closing, call


def _decoded(text: str) -> list[Any]:
    """Return the items of a list, or the one object, whose JSON a text is; none if it is not that."""
    if not (text.startswith(("{", "[")) and text.endswith(("}", "]"))):
        return []
    try:
        value = decode_json(text.encode())
    except (Refused, UnicodeEncodeError):
        return []
    return value if isinstance(value, list) else [value]


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
    if names[0] != "name" or key not in _ARGUMENTS:
        known = tool_parameters(functions[name])
        if known is None or not arguments.keys() <= {*known}:
            return None
    return {"name": name, "arguments": arguments} | ({"id": item["id"]} if isinstance(item.get("id"), str) else {})


def _object(value: Any) -> dict[str, Any] | None:
    """Return an object, or the one whose JSON a text is; None for anything else."""
    if isinstance(value, str) and value.strip().startswith("{"):
        (value,) = _decoded(value.strip()) or (None,)
    return value if isinstance(value, dict) else None
