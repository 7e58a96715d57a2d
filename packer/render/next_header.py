"""The stop token that opens the header after a turn, for templates that close turns with the next header (GLM)."""

import re
from collections.abc import Callable, Sequence
from typing import Any

_ANSWER = "Zq0W"
"""A word in place of an answer."""

Message = dict[str, Any]


def next_header(
    attempt: Callable[[Sequence[Message]], str | None],
    messages: Sequence[Message],
    k: int,
    whole: str,
    stops: re.Pattern[str],
) -> str | None:
    """Return the stop token, if any, that opens the header after message k; `whole` is the rendering up to it."""
    turn = messages[k]
    calls = bool(turn.get("tool_calls"))
    after: Message = {"role": "tool", "content": "?"} if calls else {"role": "user", "content": "?"}
    following = messages[k + 1] if k + 1 < len(messages) else after
    longer = attempt([*messages[: k + 1], following]) or ""
    if not longer.startswith(whole):
        # The next message rewrites this turn: try a conversation in which there is little to rewrite.
        plain: list[Message] = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _ANSWER}]
        if calls:
            plain[1] = {**plain[1], "tool_calls": turn["tool_calls"]}
        shorter, longer = attempt(plain), attempt([*plain, after]) or ""
        if shorter is None or not longer:
            return None
        whole = shorter
        if not longer.startswith(whole):
            # What stands before an answer may go even there, such as an empty block of reasoning (GLM 5.1).
            whole, longer = whole.rpartition(_ANSWER)[2], longer.rpartition(_ANSWER)[2]
    match = stops.match(longer, len(whole)) if longer.startswith(whole) else None
    return match[0] if match else None
