"""Results of tools and their calls belong together by id: a server refuses a request with a result of another call.

What is checked is what both sides say. Where an id is missing, results belong to their calls in order, and nothing can
be compared. A call without a result is no error: some datasets put all results of an answer into one message.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from packer.source.decode import Refused
from packer.source.file_bytes import quoted


def refuse_stray_results(messages: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a conversation with a result of no call, or two results of one call.

    Raises:
        Refused: `bad_tools`.
    """
    calls: set[str] = set()
    answered: set[str] = set()
    for number, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            calls.add(str(call.get("id") or ""))
            answered.discard(str(call.get("id") or ""))  # some number the calls of each answer anew
        name = str(message.get("tool_call_id") or "")
        if message["role"] != "tool" or not name or "" in calls or not calls:
            continue
        if name not in calls:
            reason = f"a result of {quoted(name)} at $.messages[{number}], which is no call before it"
            raise Refused("bad_tools", reason)
        if name in answered:
            raise Refused("bad_tools", f"a second result of the call {quoted(name)} at $.messages[{number}]")
        answered.add(name)
