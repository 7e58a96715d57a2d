"""Requests and logs of other servers, rewritten as rows of messages: what each calls its parts, items and answers.

The tables below are all that is known of a form. Parts become those that :mod:`packer.source.message_parts` reads, so
each form is held to the same rules. A log is one request and its answer: the answer is trained, the request is not.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from packer.media.carried import INLINE
from packer.source.comparisons import ANSWERS, VERDICTS, compared_answers
from packer.source.decode import Refused, decoded_json
from packer.source.file_bytes import quoted
from packer.source.roles import ends_in_question
from packer.source.row import ID_FIELDS, VARIABLES, field_value
from packer.source.unsupported_rows import refuse_cut


class _Kind(NamedTuple):
    """What a part is to packer: its type, and what another server calls each of its fields."""

    type: str
    fields: Mapping[str, str]


_GEMINI_CALL = _Kind("tool_use", {"id": "id", "name": "name", "input": "args"})
_GEMINI_RESULT = _Kind("tool_result", {"tool_use_id": "id", "name": "name", "content": "response"})
_PARTS = {
    "functionCall": _GEMINI_CALL,
    "function_call": _GEMINI_CALL,
    "functionResponse": _GEMINI_RESULT,
    "function_response": _GEMINI_RESULT,
}
"""Parts of Gemini, which have no type, by the key that holds them."""

_ITEMS = {
    "reasoning": _Kind("thinking", {"thinking": "content"}),
    "function_call": _Kind("tool_use", {"id": "call_id", "name": "name", "input": "arguments"}),
    "function_call_output": _Kind("tool_result", {"tool_use_id": "call_id", "content": "output"}),
}
"""Items of OpenAI's Responses that are parts of a turn, by their type; those of type `message` are messages."""

_ORDER = {"thinking": 0, "text": 1, "tool_use": 2}
"""Parts of a turn of the assistant's; an item that would come before the last part begins another turn."""

_REQUESTS = ("messages", "contents", "input")
"""What servers call the messages of a request: OpenAI and Anthropic; Gemini; Responses."""

_SYSTEMS = ("system", "instructions", "systemInstruction", "system_instruction")
_DECLARATIONS = ("functionDeclarations", "function_declarations")
_EFFORT = "reasoning.effort"
"""Where Responses and OpenRouter have what servers give the template as `reasoning_effort`."""

_STORED = {
    "previous_response_id": "continues another, by",
    "conversation": "continues another, by",
    "prompt.id": "uses a stored prompt,",
}
"""Fields of a request to Responses whose other messages only the server has, with what they say."""

_LOGS = (
    ("request", "response"),
    ("request.body", "response.body"),
    ("request", "response.body"),
    ("request.body", "response"),
    ("body", "response.body"),
)
"""Where logs have a request and its answer: in general, and OpenAI's batches."""

_ANSWERS: Mapping[str, Callable[[Any], list[Any]]] = {
    "choices": lambda choices: [field_value(choice, "message") for choice in choices],
    "candidates": lambda candidates: [field_value(candidate, "content") for candidate in candidates],
    "message": lambda message: [message],
    "output": lambda items: [*_messages_of_items(items)],
    "content": lambda parts: [{"role": "assistant", "content": parts}],
}
"""Where an answer has its messages: OpenAI's chats, Gemini, Ollama, Responses, Anthropic."""

_CHOICES = ("choices", "candidates")
"""Of these, a server may give several."""

FIELDS = frozenset(
    ANSWERS
    | VERDICTS
    | {path.partition(".")[0] for log in _LOGS for path in log}
    | {*_REQUESTS, *_SYSTEMS, *_STORED, *_CHOICES, "message", "output", "object", "status", "tools"}
)
"""Fields that a row of these forms may have, besides those of the schemas."""

_MARKS = frozenset({*VERDICTS, *ANSWERS, "response", "contents"})
"""Fields of which a row of another server's has one, unless its `output` is no text or it has `messages`."""

FORM_MARKS = _MARKS | {*_CHOICES, "message", "input", "output"}
"""Fields of which every row with a form has one."""


class Form(NamedTuple):
    """A form that a row has: the schema of the row that it is rewritten as, and what rewrites it."""

    schema: str
    rewrite: Callable[[], dict[str, Any]]


def form_of(row: dict[str, Any]) -> Form | None:
    """Return the form of a row of another server's; None if it has none of those described here.

    What rewrites it raises :class:`~packer.source.decode.Refused` with `wrong_type` or `cut_off`.
    """
    if row.get("messages") is not None:
        beside = {name: value for name, value in row.items() if name not in _ANSWERS or _are_choices(name, value)}
        said = _object(row, "response") or {**beside, "message": _object(row, "message")}
        if any(_answers(said)) and ends_in_question(row["messages"]):
            return Form("completion", partial(_log, row, row, said))
        return None
    if _MARKS.isdisjoint(row) and not isinstance(row.get("output"), list | dict):
        are_said = _is_conversation(row.get("input")) and not ends_in_question(row["input"])
        return Form("messages", lambda: _kept(row, row) | _asked(row, "messages")) if are_said else None
    if (refusal := compared_answers(row)) is not None:
        return Form("preference", partial(_refuse, refusal))
    for places in _LOGS:
        request, answer = (_object(row, place) for place in places)
        if request is not None and answer is not None and _asks(request) and any(_answers(answer)):
            return Form("completion", partial(_log, row, request, answer))
    if _are_items(row.get("output")) and isinstance(row.get("input"), str | list):
        return Form("completion", partial(_log, row, row, row))
    if isinstance(row.get("contents"), list):
        return Form("messages", lambda: _kept(row, row) | _asked(row, "messages"))
    return None


def _log(row: dict[str, Any], request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    name, value = next(_answers(answer))
    for said in [answer, *(each for each in (value if name in _CHOICES else ()) if isinstance(each, dict))]:
        refuse_cut(said, where="the answer", more=("status",))
    messages = [_content_of(each, "assistant") for each in _ANSWERS[name](value)]
    if name in _CHOICES and len(messages) > 1:
        raise Refused("wrong_type", f"{len(messages)} answers under `{name}`; give one of them")
    return _kept(row, request) | _asked(request, "prompt") | {"completion": messages}


def _are_choices(name: str, value: Any) -> bool:
    """Whether a field has what a server answers, and not, say, the options of a question."""
    return name in _CHOICES and isinstance(value, list) and any(_object(each, "message") for each in value)


def _asks(request: Mapping[str, Any]) -> bool:
    return any(isinstance(request.get(name), str | list) for name in _REQUESTS)


def _answers(answer: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield where an answer has its messages, and what is there."""
    for name in _ANSWERS:
        value = answer.get(name)
        is_there = isinstance(value, dict if name == "message" else list) and bool(value)
        if is_there and (name != "output" or _are_items(value)):
            yield name, value


def with_known_parts(message: Any) -> Any:
    """Return a message with parts of Gemini as those that packer reads."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or all(isinstance(part, dict) and "type" in part for part in content):
        return message
    return message | {"content": known_parts(content)}


def known_parts(parts: Sequence[Any]) -> list[Any]:
    """Return content parts with the types that packer knows; those of no known form stay as they are.

    Example:
        >>> known_parts([{"text": "Hi"}, {"functionCall": {"name": "f", "args": {}}}])
        [{'type': 'text', 'text': 'Hi'}, {'type': 'tool_use', 'name': 'f', 'input': {}}]
    """
    return [*map(_known_part, parts)]


def _known_part(part: Any) -> Any:
    if not isinstance(part, dict) or "type" in part:
        return part
    given = {key: value for key, value in part.items() if value is not None}  # a table has the keys of all parts
    for key, kind in _PARTS.items():
        if isinstance(given.get(key), dict):
            return _as_part(given[key], kind)
    if any(isinstance(given.get(key), dict) for key in INLINE):
        return {"type": "image"}
    if isinstance(given.get("text"), str) and given.keys() <= {"text", "thought", "thoughtSignature"}:
        return {"type": "thinking" if given.get("thought") else "text", "text": given["text"]}
    return part


def _as_part(value: Mapping[str, Any], kind: _Kind) -> dict[str, Any]:
    found = {name: value.get(key) for name, key in kind.fields.items()}
    part = {"type": kind.type} | {name: each for name, each in found.items() if each is not None}
    if kind.type == "tool_result" and isinstance(part.get("content"), dict):
        part["content"] = json.dumps(part["content"], ensure_ascii=False)  # templates expect a text
    if kind.type == "thinking" and isinstance(part.get("thinking"), list):
        part["thinking"] = "".join(str(each.get("text") or "") for each in part["thinking"] if isinstance(each, dict))
    return part


def _are_items(value: Any) -> bool:
    """Whether a value is a list of items of Responses."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        return False
    kinds = [each.get("type") or ("message" if each.get("role") else None) for each in value]
    return all(isinstance(kind, str) for kind in kinds) and not {"message", *_ITEMS}.isdisjoint(kinds)


def _is_conversation(value: Any) -> bool:
    """Whether a value has items of Responses, of which one at least says so: a list of the name may have anything."""
    return _are_items(value) and any(item.get("type") in ("message", *_ITEMS) for item in value)


def _messages_of_items(items: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield messages of which each has the items of one turn."""
    role, parts = "", list[Any]()
    for item in items:
        refuse_cut(item, where="an item", more=("status",))
        found = item.get("content")
        if item.get("type") in (None, "message"):
            now = str(item.get("role") or "")
            found = [{"type": "text", "text": found}] if isinstance(found, str) else found
            if not isinstance(found, list) or not found:
                raise Refused("wrong_type", "a message without content among the items")
        else:
            kind = _ITEMS.get(item["type"])
            if kind is None:
                raise Refused("wrong_type", f"an item of a type packer does not read: {quoted(item['type'])}")
            found = [_as_part(item, kind)]
            now = "user" if kind.type == "tool_result" else "assistant"
            if kind.type == "thinking" and not found[0].get("thinking"):
                if not item.get("summary"):
                    continue  # nothing is given of it
                found = [{"type": "reasoning", "summary": item["summary"]}]
        if parts and (now != role or not _continues(parts, found)):
            yield {"role": role, "content": parts}
            parts = []
        role, parts = now, [*parts, *found]
    if parts:
        yield {"role": role, "content": parts}


def _continues(parts: Sequence[Any], more: Sequence[Any]) -> bool:
    """Whether parts belong to the turn of others of the same role: text after reasoning, calls after both."""
    before, after = (str(each.get("type")) for each in (parts[-1], more[0]))
    if before == after:
        return before in ("tool_use", "tool_result")
    return "tool_result" not in (before, after) and _ORDER.get(before, 1) < _ORDER.get(after, 1)


def _asked(request: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return the messages of a request under the name of a field, with its system message and tools."""
    for name, how in _STORED.items():
        if field_value(request, name) is not None and "input" in request:
            raise Refused("wrong_type", f"the request {how} `{name}`, whose messages the row lacks")
    found = next(value for name in _REQUESTS if isinstance(value := request.get(name), str | list))
    if isinstance(found, str):
        messages = [{"role": "user", "content": found}]
    elif "contents" in request:
        messages = [_content_of(each, "user") for each in found]
    elif "input" in request and _are_items(found):
        messages = [*_messages_of_items(found)]
    else:
        messages = found
    asked: dict[str, Any] = {field: messages}
    system = next((value for name in _SYSTEMS if (value := request.get(name))), None)
    if system:
        asked["system"] = system["parts"] if isinstance(system, dict) and "parts" in system else system
    return asked | ({"tools": _tools(request["tools"])} if request.get("tools") else {})


def _content_of(content: Any, role: str) -> Any:
    """Return a message for one whose parts are under `parts`, as Gemini's are; else the message itself."""
    if not isinstance(content, dict) or "parts" not in content:
        return content
    parts = content["parts"]
    role = content.get("role") or role
    return {"role": "user" if role == "function" else role, "content": parts if isinstance(parts, list) else [parts]}


def _tools(tools: Any) -> Any:
    """Return the definitions in tools of Gemini (`functionDeclarations`); others stay as they are."""
    if not isinstance(tools, list):
        return tools
    found: list[Any] = []
    for tool in tools:
        given = [tool.get(name) for name in _DECLARATIONS] if isinstance(tool, dict) else []
        declared = next((each for each in given if isinstance(each, list)), None)
        found += [tool] if declared is None else map(_lower_types, declared)
    return found


def _lower_types(value: Any) -> Any:
    """Return a definition with types as JSON Schema spells them: Gemini's are `STRING`, `OBJECT` and so on."""
    if isinstance(value, list):
        return [_lower_types(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        ("parameters" if key == "parametersJsonSchema" else key): (
            each.lower() if key == "type" and isinstance(each, str) else _lower_types(each)
        )
        for key, each in value.items()
    }


def _refuse(refusal: Refused) -> dict[str, Any]:
    raise refusal


def _object(row: Mapping[str, Any], path: str) -> dict[str, Any] | None:
    value = field_value(row, path)
    value = decoded_json(value) if isinstance(value, str) else value  # a cell of CSV
    return value if isinstance(value, dict) else None


def _kept(row: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row that mean the same in every form, and the variable that its request sets."""
    kept = {name: row[name] for name in (*ID_FIELDS, "tools", VARIABLES) if row.get(name)}
    effort, given = field_value(request, _EFFORT), kept.get(VARIABLES, {})
    return kept | {VARIABLES: {"reasoning_effort": effort} | given} if effort and isinstance(given, dict) else kept
