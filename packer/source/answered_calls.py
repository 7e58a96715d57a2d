"""Results of tools and their calls belong together: a server refuses a request with a result of another call.

What is checked is what both sides say. A result says its call by an id, by the name of the tool, or by both. Where it
says neither, it belongs to the next call in order, and nothing can be compared; so it is where a call has no id. Calls
without any result are no error, nor is one message for all of them, as some datasets have it: it has no id, or is a
list. Otherwise each call has a result if one has.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from packer.source.decode import Refused
from packer.source.file_bytes import quoted


def refuse_stray_results(messages: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a conversation with a result of no call, of another tool than its call's, or a second or missing one.

    Raises:
        Refused: `bad_tools`.
    """
    unanswered: Counter[tuple[str, str]] = Counter()
    """How often an id, or a tool, was called since its last result; a call without an id has an empty one."""

    tools_of: defaultdict[str, set[str]] = defaultdict(set)
    num_calls, results = 0, list[tuple[str, Any]]()
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            results.append((str(message.get("tool_call_id") or ""), message.get("content")))
        elif results:
            (made, text), *others = results
            is_of_all = not others and (not made or str(text).lstrip().startswith("["))
            if len(results) < num_calls and not is_of_all:
                reason = f"{len(results)} of {num_calls} calls have a result before $.messages[{number}]"
                raise Refused("bad_tools", f"{reason}, so that a template without ids gives it to another call")
            num_calls, results = 0, []
        num_calls += len(message.get("tool_calls") or ())
        for call in message.get("tool_calls") or ():
            made, tool = str(call.get("id") or ""), call["function"]["name"]
            unanswered["id", made] += 1
            unanswered["tool", tool] += 1
            tools_of[made].add(tool)
        if message["role"] != "tool" or not tools_of:
            continue
        made, tool = str(message.get("tool_call_id") or ""), str(message.get("name") or "")
        known = made in tools_of
        if (made and not known and "" not in tools_of) or (tool and ("tool", tool) not in unanswered):
            reason = f"a result of {quoted(tool if known or not made else made)} at $.messages[{number}]"
            raise Refused("bad_tools", f"{reason}, which is no call before it")
        if known and made and tool and tool not in tools_of[made]:
            reason = (
                f"a result of {quoted(tool)} at $.messages[{number}], but the call {quoted(made)} is of another tool"
            )
            raise Refused("bad_tools", reason)
        says = ("id", made) if made and known else ("tool", tool)
        if says[1] and unanswered[says] <= 0:
            raise Refused("bad_tools", f"a second result of the call {quoted(says[1])} at $.messages[{number}]")
        unanswered["id", made] -= 1
        unanswered["tool", tool] -= 1
