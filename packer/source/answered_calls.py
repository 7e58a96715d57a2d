"""Results of tools and their calls belong together: a server refuses a request with a result of another call.

What is checked is what both sides say. A result says its call by an id, by the name of the tool, or by both. Where it
says neither, it belongs to the next call in order. An id is told by its value, whatever its key is, or by a key that
ends in `id` and that only results have. A row without any call may have them as text, in the answer before. Calls
without any result are no error. Otherwise there are as many results as calls: messages, or the items of a list, the
lines of JSON, or the tags in a single one, which have the order of the calls.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from packer.batches import Message
from packer.source.decode import Refused, decoded_json
from packer.source.file_bytes import quoted

_NO_IDS = ("role", "content", "name")
_NO_NAMES = ("role", "content", "tool_call_id")
_CLOSING = re.compile(r"</[^<>\s]+>")


def with_ids_of_results(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with the ids and tools of results where templates look for them.

    They may be under `toolCallId` and `tool_name`, or whatever other key has one that was called.
    """
    made: set[str] = set()
    called: set[str] = set()
    found: list[Message] = []
    for message in messages:
        fields = message.fields
        if calls := fields.get("tool_calls"):
            made.update(str(call["id"]) for call in calls if call.get("id"))
            called.update(call["function"]["name"] for call in calls)
        if called and fields["role"] == "tool" and not fields.get("name"):
            key = next((key for key, value in fields.items() if key not in _NO_NAMES and str(value) in called), None)
            if key is not None:
                fields = {**{name: value for name, value in fields.items() if name != key}, "name": fields[key]}
                message = Message(fields=fields, weight=message.weight)  # noqa: PLW2901 - moved
        if made and fields["role"] == "tool" and not fields.get("tool_call_id"):
            own = {key: str(value) for key, value in fields.items() if key not in _NO_IDS}
            keys = [key for key, value in own.items() if value in made]
            keys = keys or [key for key in own if key.lower().endswith("id") and key not in _keys_of_others(messages)]
            others = {key: value for key, value in fields.items() if key not in keys}
            ids = {"tool_call_id": str(fields[keys[0]])} if keys else {}
            message = Message(fields={**others, **ids}, weight=message.weight)  # noqa: PLW2901 - moved
        found.append(message)
    return found


def _keys_of_others(messages: Sequence[Message]) -> set[str]:
    return {key for message in messages if message.role != "tool" for key in message.fields}


def refuse_stray_results(messages: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a conversation with a result of no call, of another tool than its call's, or a second or missing one."""
    unanswered: Counter[tuple[str, str]] = Counter()
    """How often an id, or a tool, was called since its last result; a call without an id has an empty one."""

    tools_of: defaultdict[str, set[str]] = defaultdict(set)
    turn, results, is_answered = list[str](), list[Mapping[str, Any]](), False
    for number, message in enumerate(messages):
        role, calls = message["role"], message.get("tool_calls") or ()
        if role == "tool":
            results.append(message)
        elif results:
            if turn:
                _refuse_other_results(turn, results, f"before $.messages[{number}]")
            turn, results = [], []
        turn += [str(call.get("id") or "") for call in calls]
        for call in calls:
            made, tool = str(call.get("id") or ""), call["function"]["name"]
            unanswered["id", made] += 1
            unanswered["tool", tool] += 1
            tools_of[made].add(tool)
        is_answered |= role == "assistant"
        if role != "tool":
            continue
        made, tool = str(message.get("tool_call_id") or ""), str(message.get("name") or "")
        known = made in tools_of
        is_other = made and not known and "" not in tools_of
        if is_other or not is_answered or (tools_of and tool and ("tool", tool) not in unanswered):
            whose = quoted(made if is_other else tool) if is_other or tool else "a tool"
            reason = f"a result of {whose} at $.messages[{number}], which is not a call before it"
            raise Refused("bad_tools", reason)
        if known and made and tool and tool not in tools_of[made]:
            reason = (
                f"a result of {quoted(tool)} at $.messages[{number}], but the call {quoted(made)} is of another tool"
            )
            raise Refused("bad_tools", reason)
        says = ("id", made) if made and known else ("tool", tool)
        if says[1] and tools_of and unanswered[says] <= 0:
            raise Refused("bad_tools", f"a second result of the call {quoted(says[1])} at $.messages[{number}]")
        unanswered["id", made] -= 1
        unanswered["tool", tool] -= 1


def _refuse_other_results(turn: Sequence[str], results: Sequence[Mapping[str, Any]], where: str) -> None:
    """Refuse fewer or more results than calls, whose ids are `turn`, and a list of results in another order."""
    text = str(results[0].get("content") or "").strip()
    decoded = decoded_json(text)
    items = decoded if isinstance(decoded, list) else []
    lines = [line for line in text.splitlines() if decoded_json(line) is not None]
    tags = Counter(_CLOSING.findall(text)).values()
    num_results = max(1, len(items), len(lines), *tags) if len(results) == 1 < len(turn) else len(results)
    if num_results != len(turn):
        reason = f"results and calls differ in number {where}: {num_results} and {len(turn)}"
        raise Refused("bad_tools", f"{reason}; a template without ids gives a result to another call")
    for each in (items, *(value for value in results[0].values() if isinstance(value, list))):
        said = [str(value) for item in each for value in (item.values() if isinstance(item, dict) else [item])]
        named = [value for value in said if value and value in turn]
        if named != [made for made in turn if made in named]:
            raise Refused("bad_tools", f"results in another order than their calls {where}")
