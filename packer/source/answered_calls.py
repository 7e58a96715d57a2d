"""Results of tools and their calls belong together by id: a server refuses a request with a result of another call.

What is checked is what both sides say. Where an id is missing, results belong to their calls in order, and nothing can
be compared. A call without a result is no error: some datasets put all results of an answer into one message.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from packer.source.decode import Refused
from packer.source.file_bytes import quoted


def refuse_stray_results(messages: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a conversation with a result of no call, or two results of one call.

    Raises:
        Refused: `bad_tools`.
    """
    unanswered: Counter[str] = Counter()
    for number, message in enumerate(messages):
        unanswered.update(str(call.get("id") or "") for call in message.get("tool_calls") or ())
        name = str(message.get("tool_call_id") or "")
        if message["role"] != "tool" or not name or "" in unanswered or not unanswered:
            continue
        if name not in unanswered:
            reason = f"a result of {quoted(name)} at $.messages[{number}], which is no call before it"
            raise Refused("bad_tools", reason)
        if not unanswered[name]:
            raise Refused("bad_tools", f"a second result of the call {quoted(name)} at $.messages[{number}]")
        unanswered[name] -= 1
