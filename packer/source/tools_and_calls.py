"""Tool calls, and the tools of a row, in OpenAI's form with arguments as objects.

Chat templates print an object as JSON, but a string as a quoted JSON string.
"""

import ast
import json
import re
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from packer.batches import tool_parameters
from packer.source.decode import Refused, decode_json, nested_json, type_name
from packer.source.file_bytes import quoted

_json = partial(nested_json, code="bad_tools")

_PARAMETERS_KEYS = ("parameters", "input_schema", "inputSchema")
"""Names of a tool's parameters: OpenAI's, Anthropic's and MCP's."""

_KINDS_OF_TOOLS = ("function", "custom")
"""What requests to OpenAI and Anthropic have as the type of a tool."""

_UNIFIED = (
    "a table that was written as JSON gives every row the keys of all: write Parquet, or these values as JSON text"
)

_ARGUMENT_KEYS = ("args", "parameters", "input", "params", "kwargs")
"""Other names of arguments: such an object is that of a call without `arguments`, except beside `function`."""

_LOST_KEYS = frozenset({*_ARGUMENT_KEYS, "partial_json"})

_PRINTED = re.compile(r"\s*\[?\s*\{\s*'")
MAX_PYTHON = 2**16
"""Characters that are parsed as Python, whose trees take a hundred times as much memory."""

_CALL_KEYS = frozenset({"name", "arguments", "id", "index", "type"})
KEYS_OF_CALLS = _CALL_KEYS | _LOST_KEYS
"""Keys of calls, and of their `function`, under which neither a flag nor a text beside the call is looked for."""


def read_tools(value: Any, *, where: str) -> list[Any] | None:
    """Return tool definitions as ``{"type": "function", "function": {...}}``; None if there are none.

    A bare ``{"name", "description", "parameters"}`` is wrapped. The order of keys is kept, because it affects the
    rendering.

    `value` is a definition or a list of some, each an object or its JSON, or the JSON of such a list.
    """
    tools = _decoded(value, where=where)
    if not tools:
        return None
    if isinstance(tools, dict):
        tools = [tools]
    if not isinstance(tools, list):
        raise Refused("bad_tools", f"expected a list of tools, got `{type_name(tools)}` at {where}")
    return [_definition(tool, where=f"{where}[{i}]") for i, tool in enumerate(tools)]


def _decoded(value: Any, *, where: str) -> Any:
    """Decode a value that may be given as JSON text; None for an empty text."""
    if not isinstance(value, str):
        return value
    return _json(value, where=where) if value.strip() else None


def _call_of_text(value: Any, *, where: str) -> Any:
    """Decode calls that may be given as text: as JSON, or as Python prints them."""
    if isinstance(value, str) and _PRINTED.match(value) and len(value) <= MAX_PYTHON:
        with suppress(SyntaxError, ValueError, TypeError, RecursionError, MemoryError, Refused):
            with warnings.catch_warnings(action="ignore"):  # on escapes that Python reads as they stand
                printed = ast.literal_eval(value.strip())
            return decode_json(json.dumps(printed).encode())  # which is strict
    return _decoded(value, where=where)


def _definition(tool: Any, *, where: str) -> dict[str, Any]:
    if isinstance(tool, str) and "{" not in tool:
        reason = f"{quoted(tool)} at {where} is only the name of a tool, and models read definitions"
        field = where.removeprefix("$.").partition("[")[0]
        raise Refused("bad_tools", f"{reason}; `columns: {{{field}: null}}` leaves the names out")
    tool = _decoded(tool, where=where)
    if not isinstance(tool, dict):
        raise Refused("bad_tools", f"expected a tool definition, got `{type_name(tool)}` at {where}")
    function = tool.get("function")
    if isinstance(function, dict) and isinstance(function.get("name"), str):
        typed = tool if "type" in tool else {"type": "function", **tool}
        return typed | {"function": _with_parameters(function, where=f"{where}.function")}
    if function is None and isinstance(tool.get("name"), str):
        left_out = {"cache_control"} | ({"type"} if tool.get("type") in _KINDS_OF_TOOLS else set())
        bare = {key: value for key, value in tool.items() if key not in left_out}
        return {"type": "function", "function": _with_parameters(bare, where=where)}
    raise Refused("bad_tools", f"a tool without a name at {where}")


def _with_parameters(function: dict[str, Any], *, where: str) -> dict[str, Any]:
    """Return the definition with its parameters as an object under `parameters`, where templates look for them."""
    key = next((key for key in _PARAMETERS_KEYS if function.get(key)), None)
    if key is None:
        return function
    parameters = _decoded(function[key], where=f"{where}.{key}")
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        if schema is None:
            raise Refused("bad_tools", f"the parameter {quoted(name)} is null at {where}.{key}.properties; {_UNIFIED}")
    if key == "parameters" and parameters is function[key]:
        return function
    others = {name: value for name, value in function.items() if name == key or name != "parameters"}
    return {("parameters" if name == key else name): parameters if name == key else others[name] for name in others}


def refuse_wrong_calls(calls: Iterable[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> None:
    """Refuse calls of tools that are not defined, or with arguments that they do not take.

    What a schema does not name may be given all the same, unless it is closed, or the argument null: such come from a
    table of which every row has the arguments of all calls, written as JSON.
    """
    functions = {tool["function"]["name"]: tool["function"] for tool in tools}
    for call in calls:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if name not in functions:
            raise Refused("bad_tools", f"a call of {quoted(name)}, which is not one of the row's tools")
        known = None if _is_open(functions[name]) else tool_parameters(functions[name])
        is_closed = (functions[name].get("parameters") or {}).get("additionalProperties") is False
        for key, value in arguments.items():
            if known is not None and key not in known and (value is None or is_closed):
                what, why = ("a null for ", f"; {_UNIFIED}") if value is None else ("", "")
                reason = f"a call of {quoted(name)} has {what}{quoted(key)}, which the tool does not take"
                raise Refused("bad_tools", f"{reason}{why}")


def _is_open(function: dict[str, Any]) -> bool:
    """Whether a tool takes parameters that its definition does not name."""
    parameters = function.get("parameters")
    return isinstance(parameters, dict) and bool(parameters.get("additionalProperties"))


def read_calls(value: list[Any] | str | None, *, where: str) -> list[dict[str, Any]]:
    """Return tool calls as ``{"type": "function", "function": {"name", "arguments"}}``; other keys such as `id` stay.

    `value` is a list of calls, each an object or its JSON, or the JSON of one call or of a list of calls.
    """
    calls = _call_of_text(value, where=where)
    if calls is None:
        return []
    if isinstance(calls, dict):
        return [read_call(calls, where=where)]
    if not isinstance(calls, list):
        raise Refused("bad_tools", f"expected a tool call, got `{type_name(calls)}` at {where}")
    return [read_call(call, where=f"{where}[{i}]") for i, call in enumerate(calls)]


def read_call(call: Any, *, where: str) -> dict[str, Any]:
    call = _call_of_text(call, where=where)
    if not isinstance(call, dict):
        raise Refused("bad_tools", f"expected a tool call, got `{type_name(call)}` at {where}")
    named = call.get("function")
    if isinstance(named, str) and not named.startswith("{") and "arguments" in call and "name" not in call:
        call = {"name" if key == "function" else key: value for key, value in call.items()}  # Inspect's logs
    if "function" in call:
        if "arguments" in call or "name" in call:
            raise Refused("bad_tools", f"a call both beside `function` and in it at {where}")
        default = {} if "type" in call else {"type": "function"}
        function = _function(call["function"], where=f"{where}.function")
        beside = [key for key in _ARGUMENT_KEYS if call.get(key)]
        if beside and not function["arguments"]:
            raise Refused("bad_tools", f"a call without `arguments` at {where}; it has `{beside[0]}` beside `function`")
        return {**default, **call, "function": function}
    outer = {key: call[key] for key in ("id", "type") if key in call}
    inner = {key: value for key, value in call.items() if key not in outer}
    function = _function(inner, where=where)
    # What else a log has stays beside the call: some templates write all of `function`, and it would be trained.
    more = {key: function.pop(key) for key in inner if key in function and key not in ("name", "arguments")}
    return {**outer, "type": "function", "function": function, **more}


def _function(function: Any, *, where: str) -> dict[str, Any]:
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise Refused("bad_tools", f"a call without a name at {where}")
    objects = [key for key in _ARGUMENT_KEYS if isinstance(function.get(key), dict) and function[key]]
    if "arguments" not in function and len(objects) == 1 and "properties" not in function[objects[0]]:
        function = {("arguments" if key == objects[0] else key): value for key, value in function.items()}
    arguments = given = function.get("arguments")
    if isinstance(arguments, str):
        arguments = _json(arguments, where=f"{where}.arguments") if arguments.strip() else None
    if arguments is None:
        arguments = {}  # a call without arguments, for which servers write "" or null
    if not isinstance(arguments, dict):
        raise Refused("bad_tools", f"expected an object, got `{type_name(arguments)}` at {where}.arguments")
    # Of a call that has its empty arguments, other keys are the log's own, as the `requestor` of tau2-bench.
    has_own = isinstance(given, dict) or (isinstance(given, str) and bool(given.strip()))
    others = [
        key
        for key, value in function.items()
        if (key in _LOST_KEYS if has_own else key not in _CALL_KEYS) and not isinstance(value, bool)
    ]
    if not arguments and any(function[key] not in (None, "", {}, []) for key in others):
        described = ", ".join(map(quoted, others))
        raise Refused("bad_tools", f"a call without `arguments` at {where}; its other keys: {described}")
    # In this order whatever the row's: some templates write the whole object, and servers give them the name first.
    return {"name": function["name"], "arguments": arguments} | {
        key: value for key, value in function.items() if key not in ("name", "arguments")
    }
