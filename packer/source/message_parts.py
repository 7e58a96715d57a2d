"""Parts of a message other than plain text: content parts, tool calls, and the tools of its row.

Templates disagree about lists of content parts, and many render them wrongly or not at all; a string is rendered by
all. So texts are concatenated, and reasoning and calls move to the fields that messages have for them. Tools and calls
are converted to OpenAI's form with arguments as objects: chat templates print an object as JSON, but a string as a
quoted JSON string.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from packer.batches import tool_parameters
from packer.source.decode import Refused, decode_json
from packer.source.file_bytes import quoted
from packer.source.forms import known_parts
from packer.source.row import coalesce_aliases, nested_json, type_name, typed
from packer.source.unsupported_rows import is_media_part, refuse_media_tags

_json = partial(nested_json, code="bad_tools")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a content list.

    OpenAI stores its text under `text` or `refusal`, LLaMA-Factory under `value`, others under `content`. The fields of
    calls and of their results are Anthropic's.
    """

    type: str
    text: str | None = None
    value: Any = None
    thinking: Any = None
    summary: Any = None
    """All that some servers give of reasoning."""
    closed: bool | None = None
    """Mistral's: whether the reasoning ended."""
    refusal: Any = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    arguments: Any = None
    args: Any = None
    parameters: Any = None
    partial_json: Any = None
    """LangChain's: arguments as they arrived, which may be missing in `input`."""
    tool_use_id: str | None = None
    content: Any = None
    is_error: bool | None = None
    train: bool | None = None
    weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    text: str | None
    reasoning: str | None = None
    calls: tuple[dict[str, Any], ...] = ()
    trained: frozenset[bool] = frozenset()
    """The parts' own settings of whether they are trained. If any part has one, a part without one counts as trained.
    """

    spans: tuple[tuple[int, int], ...] = ()
    """Characters of the parts of its text that alone are trained, if the parts say different things."""


_NOT_INPUT = ("args", "parameters", "partial_json")
"""Names under which other tools have the arguments of a call that should be Anthropic's."""

_TEXT_KEYS = {"type", "text"}
"""Keys of the texts that Mistral has within a part of thinking, and OpenAI in a summary."""

TEXT_FIELDS = ("text", "value", "thinking", "summary", "refusal", "content")
"""Names of the text of a part."""

_ORDER = {
    "thinking": 0,
    "reasoning": 0,
    "text": 1,
    "input_text": 1,
    "output_text": 1,
    "refusal": 1,
    "tool_call": 2,
    "tool_use": 2,
}
"""A message has its reasoning first, then its text, then its calls; no other order can be preserved."""


_PART_TYPES = (*_ORDER, "tool_result")


def read_content(content: str | list[Part] | None, *, where: str) -> Content:
    """Split a content into text, reasoning and calls.

    Raises:
        Refused: `multimodal`, `wrong_type`, `bad_tools`.
    """
    if not isinstance(content, list):
        if content:
            refuse_media_tags(content)
            _refuse_parts_as_text(content, where=where)
        return Content(text=content)
    rank = 0
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[dict[str, Any]] = []
    for i, part in enumerate(content):
        at = f"{where}[{i}]"
        if is_media_part(part.type):
            raise Refused("multimodal", f"a part of type `{part.type}` at {at}")
        if part.type not in _ORDER:
            advice = "; give calls as `tool_calls`, and results as messages of the role `tool`" * ("tool" in part.type)
            raise Refused(
                "wrong_type", f"a part of a type packer does not know at {at}.type: {quoted(part.type)}{advice}"
            )
        if _ORDER[part.type] < rank:
            raise Refused("wrong_type", f"a part out of order at {at}: reasoning, then text, then calls")
        rank = _ORDER[part.type]
        if part.type == "tool_use":
            calls.append(_call(_used(part, where=at), where=at))
        elif part.type == "tool_call":
            if part.value is None:
                raise Refused("bad_tools", f"no call under `value` at {at}")
            calls += read_calls(part.value, where=f"{at}.value")
        else:
            (texts if rank else reasoning).append(_part_text(part, where=at))
    refuse_media_tags("".join(texts))
    flags = _flags(content, where=where)
    spans = _spans(content, texts, flags) if len({*flags}) > 1 else ()
    return Content(
        text="".join(texts) if texts or not calls else None,
        reasoning="".join(reasoning) if reasoning else None,
        calls=tuple(calls),
        trained=frozenset([True] if spans else flags),
        spans=spans,
    )


class _SystemParts(msgspec.Struct, frozen=True):
    system: list[Part]


def read_system(system: str | list[Any] | None) -> str | None:
    """Return the text of the field `system` of a row: a text, parts, or the JSON of parts, as in a cell of CSV.

    Raises:
        Refused: `multimodal`, `wrong_type`.
    """
    parts = _parts_in(system) if isinstance(system, str) else system
    if parts is None:
        return system if isinstance(system, str) else None
    content = read_content(typed({"system": known_parts(parts)}, _SystemParts).system, where="$.system")
    if content.calls or content.reasoning:
        raise Refused("wrong_type", "calls or reasoning of a message that is not the assistant's at $.system")
    return content.text


def _refuse_parts_as_text(text: str, *, where: str) -> None:
    """Refuse the JSON of parts with calls or their results: a table cannot have texts and lists in one column.

    Raises:
        Refused: `wrong_type`.
    """
    parts = _parts_in(text) if "tool_" in text or "\\" in text else None
    if parts and any(part["type"] in {"tool_use", "tool_result"} for part in parts):
        raise Refused("wrong_type", f"the JSON of parts as a text at {where}; give the list, or the JSON of `messages`")


def _parts_in(text: str) -> list[dict[str, Any]] | None:
    """Return the parts whose JSON a text is; None if it is anything else."""
    if not text.startswith(PARTS_START):
        return None
    try:
        parts = decode_json(text.encode())
    except (Refused, UnicodeEncodeError):
        return None
    are_parts = all(isinstance(part, dict) and part.get("type") in _PART_TYPES for part in parts)
    return parts if are_parts else None


def _used(part: Part, *, where: str) -> dict[str, Any]:
    """Return the call of Anthropic's part as OpenAI writes it, with what it has under other names of arguments."""
    lost = [name for name in TEXT_FIELDS if getattr(part, name)]
    if lost:
        raise Refused("wrong_type", f"a call and `{lost[0]}` in one part at {where}")
    arguments = coalesce_aliases({"input": part.input, "arguments": part.arguments}, where=where)
    call = {"id": part.id, "name": part.name, "arguments": arguments}
    call |= {name: getattr(part, name) for name in _NOT_INPUT if getattr(part, name) is not None}
    return {key: value for key, value in call.items() if value is not None}


def _flags(parts: list[Part], *, where: str) -> list[bool]:
    if any(part.weight not in (None, 0, 1) for part in parts):
        raise Refused("wrong_type", f"a part with a weight of its own at {where}; give the message one weight")
    flags = [part.train if part.train is not None else part.weight for part in parts]
    return [] if all(flag is None for flag in flags) else [flag is None or bool(flag) for flag in flags]


def _spans(parts: list[Part], texts: list[str], flags: list[bool]) -> tuple[tuple[int, int], ...]:
    """Return the characters of the texts that are trained; none if other parts are trained, or are calls."""
    of_texts = [flag for part, flag in zip(parts, flags, strict=True) if _ORDER[part.type] == 1]
    if sum(of_texts) < sum(flags) or any(_ORDER[part.type] > 1 for part in parts):
        return ()
    ends = [*itertools.accumulate(map(len, texts))]
    return tuple((end - len(text), end) for end, text, flag in zip(ends, texts, of_texts, strict=True) if flag and text)


def _part_text(part: Part, *, where: str) -> str:
    if part.closed is False:
        raise Refused("cut_off", f"`closed` is false at {where}: the reasoning did not end")
    present = {name: getattr(part, name) for name in TEXT_FIELDS if getattr(part, name) not in (None, [])}
    if len(present) > 1:
        present.pop("summary", None)
    for name, value in present.items():
        if isinstance(value, list) and all(isinstance(each, dict) and each.keys() == _TEXT_KEYS for each in value):
            present[name] = ("\n\n" if name == "summary" else "").join(str(each["text"]) for each in value)
        elif not isinstance(value, str):
            raise Refused("wrong_type", f"expected `str` at {where}.{name}")
    text: str | None = coalesce_aliases(present, where=where)
    if text is None:
        raise Refused("wrong_type", f"no field `text` at {where}")
    return text


_PARAMETERS_KEYS = ("parameters", "input_schema", "inputSchema")
"""Names of a tool's parameters: OpenAI's, Anthropic's and MCP's."""

PARTS_START = "[{"
"""How the JSON of parts begins."""

_KINDS_OF_TOOLS = ("function", "custom")
"""What requests to OpenAI and Anthropic have as the type of a tool."""

_UNIFIED = (
    "a table that was written as JSON gives every row the keys of all: write Parquet, or these values as JSON text"
)

_ARGUMENT_KEYS = ("args", "parameters", "input", "params", "kwargs")
"""Other names of arguments: such an object is that of a call without `arguments`, except beside `function`.
"""

_LOST_KEYS = frozenset({*_ARGUMENT_KEYS, *_NOT_INPUT})

_CALL_KEYS = frozenset({"name", "arguments", "id", "index", "type"})


def read_tools(value: list[Any] | str | None, *, where: str) -> list[Any] | None:
    """Return tool definitions as ``{"type": "function", "function": {...}}``; None if there are none.

    A bare ``{"name", "description", "parameters"}`` is wrapped. The order of keys is kept, because it affects the
    rendering.

    `value` is a list of definitions, each an object or its JSON, or the JSON of such a list.

    Raises:
        Refused: `bad_tools`.
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


def _definition(tool: Any, *, where: str) -> dict[str, Any]:
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

    Raises:
        Refused: `bad_tools`.
    """
    functions = {tool["function"]["name"]: tool["function"] for tool in tools}
    for call in calls:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if name not in functions:
            raise Refused("bad_tools", f"a call of {quoted(name)}, which is none of the row's tools")
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

    Raises:
        Refused: `bad_tools`.
    """
    calls = _decoded(value, where=where)
    if calls is None:
        return []
    if isinstance(calls, dict):
        return [_call(calls, where=where)]
    if not isinstance(calls, list):
        raise Refused("bad_tools", f"expected a tool call, got `{type_name(calls)}` at {where}")
    return [_call(call, where=f"{where}[{i}]") for i, call in enumerate(calls)]


def _call(call: Any, *, where: str) -> dict[str, Any]:
    call = _decoded(call, where=where)
    if not isinstance(call, dict):
        raise Refused("bad_tools", f"expected a tool call, got `{type_name(call)}` at {where}")
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
