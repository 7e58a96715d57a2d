"""Tools of a row, calls, and results of calls: in OpenAI's form, with arguments as objects.

Chat templates print an object as JSON, but a string as a quoted JSON string.

Results and their calls belong together: a server refuses a request with a result of another call.

What is checked is what both sides say. A result says its call by an id, by the name of the tool, or by both. Where it
says neither, it belongs to the next call in order. An id is told by its value, whatever its key is, or by a key that
ends in `id` and that only results have. A row without any call may have them as text, in the answer before, and a row
without any result has them in what the user says. Otherwise there are as many results as calls before the next message:
messages, or tags in a single one. A single message with a list of as many results, or lines of JSON, becomes a message
for each, as a server sends them.
"""

import ast
import json
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from packer.batches import Message, tool_parameters
from packer.source.decode import Refused, decode_json, decoded_json, nested_json, type_name
from packer.source.file_bytes import quoted

_json = partial(nested_json, code="bad_tools")

_PARAMETERS_KEYS = ("parameters", "input_schema", "inputSchema")
"""Names of a tool's parameters: OpenAI's, Anthropic's and MCP's."""

_KINDS_OF_TOOLS = ("function", "custom")
"""What requests to OpenAI and Anthropic have as the type of a tool."""

_UNIFIED = "a table that was written as JSON gives every row the keys of all: write Parquet, or these as JSON text"

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
        parameters, known = functions[name].get("parameters") or {}, tool_parameters(functions[name])
        more = parameters.get("additionalProperties") if isinstance(parameters, dict) else None
        if known is None or more:
            continue
        for key, value in arguments.items():
            if key not in known and (value is None or more is False):
                what, why = ("a null for ", f"; {_UNIFIED}") if value is None else ("", "")
                reason = f"a call of {quoted(name)} has {what}{quoted(key)}, which the tool does not take"
                raise Refused("bad_tools", f"{reason}{why}")


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


_CLOSING = re.compile(r"</[^<>\s]+>")


def with_ids_of_results(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with each result in a message, and its id and tool where templates look for them.

    They may be under `toolCallId` and `tool_name`, or whatever other key has one that was called.
    """
    if not any(message.fields["role"] == "tool" for message in messages):
        return messages
    messages = _apart(messages)
    of_others = {key for message in messages if message.role != "tool" for key in message.fields}
    made, called = set[str](), set[str]()
    found: list[Message] = []
    for message in messages:
        for call in message.fields.get("tool_calls") or ():
            made |= {str(call["id"])} if call.get("id") else set()
            called.add(call["function"]["name"])
        is_result = message.role == "tool" and called
        fields = _named(message.fields, made, called, of_others) if is_result else message.fields
        found.append(message if fields is message.fields else Message(fields=fields, trained=message.trained))
    return found


def _named(
    fields: dict[str, Any], made: Collection[str], called: Collection[str], of_others: Collection[str]
) -> dict[str, Any]:
    """Return the fields of a result with its tool, one of `called`, and its id, one of `made`, under their own keys."""
    if fields.get("name") and fields.get("tool_call_id"):
        return fields
    said = {key: str(value) for key, value in fields.items() if key not in ("role", "content")}
    key = next((key for key, value in said.items() if key != "tool_call_id" and value in called), None)
    if key is not None and not fields.get("name"):
        fields = {**{other: value for other, value in fields.items() if other != key}, "name": fields[key]}
    if made and not fields.get("tool_call_id"):
        own = {key: str(value) for key, value in fields.items() if key not in ("role", "content", "name")}
        keys = [key for key, value in own.items() if value in made]
        keys = keys or [key for key in own if key.lower().endswith("id") and key not in of_others]
        others = {key: value for key, value in fields.items() if key not in keys}
        fields = {**others, "tool_call_id": str(fields[keys[0]])} if keys else others
    return fields


def _apart(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with a message for each result where a single one has those of several calls."""
    found: list[Message] = []
    turn: list[Mapping[str, Any]] = []
    roles = [message.role for message in messages]
    for number, message in enumerate(messages):
        is_alone = roles[number] == "tool" and "tool" not in (
            *roles[number - 1 : number],
            *roles[number + 1 : number + 2],
        )
        found += _results_in(message.fields, turn) if is_alone and len(turn) > 1 else [message]
        turn = [] if roles[number] == "tool" else [*turn, *(message.fields.get("tool_calls") or ())]
    return found


def _results_in(fields: Mapping[str, Any], turn: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return the results in a message, if there are as many as calls and it does not say that it is of one of these."""
    names = {*(str(call.get("id") or "") for call in turn), *(call["function"]["name"] for call in turn)} - {""}
    text = str(fields.get("content") or "").strip()
    decoded, lines = decoded_json(text), [decoded_json(line) for line in text.splitlines()]
    items = decoded if isinstance(decoded, list) else lines if None not in lines else []
    whose = [
        {key: value for key, value in item.items() if isinstance(value, str) and value in names}
        if isinstance(item, dict)
        else {}
        for item in items
    ]
    others = {}
    for key, value in fields.items():
        if isinstance(value, list) and len(value) == len(items) and names.issuperset(map(str, value)):
            whose = [own | {key: str(each)} for own, each in zip(whose, value, strict=True)]
        elif key not in ("role", "content") and str(value) not in names:
            others[key] = value
    is_of_one = any(str(value) in names for value in fields.values()) and not all(whose)
    if len(items) != len(turn) or is_of_one:
        return [Message(fields=dict(fields))]
    return [
        Message(fields={"role": "tool", "content": _text_of(item, own), **others, **own})
        for item, own in zip(items, whose, strict=True)
    ]


def _text_of(item: Any, own: Collection[str]) -> str:
    """Return what an item of a list says: all of it, or its `content` if it has nothing else but whose it is."""
    if own and all(key in own or key in ("role", "content") or key.lower().endswith("id") for key in item):
        item = item.get("content", item)
    return item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)


def refuse_stray_results(messages: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a conversation with a result of no call, of another tool than its call's, or a second or missing one."""
    if not any(message["role"] == "tool" for message in messages):
        return
    unanswered: Counter[tuple[str, str]] = Counter()
    """How often an id, or a tool, was called since its last result; a call without an id has an empty one."""

    tools_of: defaultdict[str, set[str]] = defaultdict(set)
    num_calls, results, is_answered = 0, list[Mapping[str, Any]](), False
    for number, message in enumerate(messages):
        role, where = message["role"], f"$.messages[{number}]"
        if role != "tool" and (results or role == "user"):
            _refuse_other_results(num_calls, results, f"before {where}")
            num_calls, results = 0, []
        for call in message.get("tool_calls") or ():
            made, tool = str(call.get("id") or ""), call["function"]["name"]
            unanswered.update([("id", made), ("tool", tool)])
            tools_of[made].add(tool)
            num_calls += 1
        is_answered |= role == "assistant"
        if role != "tool":
            continue
        results.append(message)
        made, tool = str(message.get("tool_call_id") or ""), str(message.get("name") or "")
        known = made in tools_of
        is_other = made and not known and "" not in tools_of
        says = ("id", made) if made and known else ("tool", tool)
        reason = None
        if is_other or not is_answered or (tools_of and tool and ("tool", tool) not in unanswered):
            whose = quoted(made if is_other else tool) if is_other or tool else "a tool"
            reason = f"a result of {whose} at {where}, which is not a call before it"
        elif known and made and tool and tool not in tools_of[made]:
            reason = f"a result of {quoted(tool)} at {where}, but the call {quoted(made)} is of another tool"
        elif says[1] and tools_of and unanswered[says] <= 0:
            reason = f"a second result of the call {quoted(says[1])} at {where}"
        if reason is not None:
            raise Refused("bad_tools", reason)
        unanswered.subtract([("id", made), ("tool", tool)])


def _refuse_other_results(num_calls: int, results: Sequence[Mapping[str, Any]], where: str) -> None:
    """Refuse fewer or more results than calls; what is without calls may be in a text."""
    num_results = len(results)
    if num_results == 1 < num_calls:
        num_results = max([1, *Counter(_CLOSING.findall(str(results[0].get("content") or ""))).values()])
    if num_calls and num_results != num_calls:
        reason = f"results and calls differ in number {where}: {num_results} and {num_calls}"
        raise Refused("bad_tools", f"{reason}; a template without ids gives a result to another call")
