"""Results of tools and their calls belong together: a server refuses a request with a result of another call.

What is checked is what both sides say. A result says its call by an id, by the name of the tool, or by both. Where it
says neither, it belongs to the next call in order, and nothing can be compared; so it is where a call has no id. A call
without a result is no error: some datasets put all results of an answer into one message.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from packer.source.decode import Refused
from packer.source.file_bytes import quoted


def refuse_stray_results(messages: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a conversation with a result of no call, of another tool than its call's, or a second one of one call.

    Raises:
        Refused: `bad_tools`.
    """
    unanswered: Counter[tuple[str, str]] = Counter()
    """How often an id, or a tool, was called since its last result; a call without an id has an empty one."""

    tools_of: defaultdict[str, set[str]] = defaultdict(set)
    for number, message in enumerate(messages):
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
