"""Results of tools and their calls belong together: a server refuses a request with a result of another call.

What is checked is what both sides say. A result says its call by an id, by the name of the tool, or by both. Where it
says neither, it belongs to the next call in order. An id is told by its value, whatever its key is, or by a key that
ends in `id` and that only results have. A row without any call may have them as text, in the answer before, and a row
without any result has them in what the user says. Otherwise there are as many results as calls before the next message:
messages, or tags in a single one. A single message with a list of as many results, or lines of JSON, becomes a message
for each, as a server sends them.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from packer.batches import Message
from packer.source.decode import Refused, decoded_json
from packer.source.file_bytes import quoted

_CLOSING = re.compile(r"</[^<>\s]+>")


def with_ids_of_results(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with each result in a message, and its id and tool where templates look for them.

    They may be under `toolCallId` and `tool_name`, or whatever other key has one that was called.
    """
    messages = _apart(messages)
    of_others = {key for message in messages if message.role != "tool" for key in message.fields}
    made, called = set[str](), set[str]()
    found: list[Message] = []
    for message in messages:
        for call in message.fields.get("tool_calls") or ():
            made.add(str(call.get("id") or ""))
            called.add(call["function"]["name"])
        is_result = message.role == "tool" and called
        fields = _named(message.fields, made - {""}, called, of_others) if is_result else message.fields
        found.append(message if fields is message.fields else Message(fields=fields, weight=message.weight))
    return found


def _named(
    fields: dict[str, Any], made: Collection[str], called: Collection[str], of_others: Collection[str]
) -> dict[str, Any]:
    """Return the fields of a result with its tool, one of `called`, and its id, one of `made`, under their own keys."""
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
