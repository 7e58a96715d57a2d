"""Tool definitions and tool calls, from the forms they come in to OpenAI's.

Arguments become objects: chat templates print an object as JSON, but a string as a string within JSON.
"""

from typing import Any

from packer.source.decode import Refused
from packer.source.file_bytes import shown
from packer.source.row import nested_json, type_name

_CALL_KEYS = frozenset({"name", "arguments", "id", "type"})


def read_tools(value: list[Any] | str | None, *, where: str) -> list[Any] | None:
    """Tool definitions as ``{"type": "function", "function": {...}}``; None where there are none.

    A bare ``{"name", "description", "parameters"}`` is wrapped; the order of keys is kept, for it shows when rendered.

    Args:
        value: A list of definitions, each an object or its JSON, or the JSON of such a list.
        where: Path of the value, for the reason.

    Raises:
        Refused: `bad_tools`.

    """
    if isinstance(value, str):
        value = nested_json(value, where=where) if value.strip() else None
    tools: Any = value
    if not tools:
        return None
    if isinstance(tools, dict):
        tools = [tools]
    if not isinstance(tools, list):
        raise Refused("bad_tools", f"expected a list of tools, got `{type_name(tools)}` at {where}")
    return [_definition(tool, where=f"{where}[{i}]") for i, tool in enumerate(tools)]


def _definition(tool: Any, *, where: str) -> dict[str, Any]:
    tool = nested_json(tool, where=where) if isinstance(tool, str) else tool
    if not isinstance(tool, dict):
        raise Refused("bad_tools", f"expected a tool definition, got `{type_name(tool)}` at {where}")
    function = tool.get("function")
    if isinstance(function, dict) and isinstance(function.get("name"), str):
        return tool if "type" in tool else {"type": "function", **tool}
    if function is None and isinstance(tool.get("name"), str):
        bare = {key: value for key, value in tool.items() if (key, value) != ("type", "function")}
        return {"type": "function", "function": bare}
    raise Refused("bad_tools", f"a tool without a name at {where}")


def read_calls(value: list[Any] | str | None, *, where: str) -> list[dict[str, Any]]:
    """Tool calls as ``{"type": "function", "function": {"name", "arguments"}}``, other keys such as `id` kept.

    Args:
        value: A list of calls, each an object or its JSON, or the JSON of one call or of a list of calls.
        where: Path of the value, for the reason.

    Raises:
        Refused: `bad_tools`.

    """
    if isinstance(value, str):
        value = nested_json(value, where=where) if value.strip() else None
    calls: Any = value
    if calls is None:
        return []
    if isinstance(calls, dict):
        return [_call(calls, where=where)]
    if not isinstance(calls, list):
        raise Refused("bad_tools", f"expected a tool call, got `{type_name(calls)}` at {where}")
    return [_call(call, where=f"{where}[{i}]") for i, call in enumerate(calls)]


def _call(call: Any, *, where: str) -> dict[str, Any]:
    call = nested_json(call, where=where) if isinstance(call, str) else call
    if not isinstance(call, dict):
        raise Refused("bad_tools", f"expected a tool call, got `{type_name(call)}` at {where}")
    if "function" in call:
        if "arguments" in call or "name" in call:
            raise Refused("bad_tools", f"a call both beside `function` and in it at {where}")
        default = {} if "type" in call else {"type": "function"}
        return {**default, **call, "function": _function(call["function"], where=f"{where}.function")}
    outer = {key: call[key] for key in ("id", "type") if key in call}
    inner = {key: value for key, value in call.items() if key not in outer}
    return {**outer, "type": "function", "function": _function(inner, where=where)}


def _function(function: Any, *, where: str) -> dict[str, Any]:
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise Refused("bad_tools", f"a call without a name at {where}")
    arguments = function.get("arguments")
    if isinstance(arguments, str) and arguments.strip():
        arguments = nested_json(arguments, where=f"{where}.arguments")
    elif arguments is None or isinstance(arguments, str):
        arguments = {}  # a call without arguments; servers write "" for it
    if not isinstance(arguments, dict):
        raise Refused("bad_tools", f"expected an object, got `{type_name(arguments)}` at {where}.arguments")
    others = [key for key in function if key not in _CALL_KEYS and isinstance(function[key], str | dict | list)]
    if not arguments and any(function[key] for key in others):
        named = ", ".join(map(shown, others))
        raise Refused("bad_tools", f"a call without `arguments` at {where}; its other keys: {named}")
    return {**function, "arguments": arguments}
