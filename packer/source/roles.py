"""The roles of a chat, and what else they are called."""

import re

from packer.source.decode import Refused

ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "ipython": "tool",
    "tool_response": "tool",
}

CALL_ROLES = frozenset({"function_call", "tool_call"})
"""Senders whose message is the JSON of a call, or of a list of calls, made by the assistant."""


def role_of(name: str, *, where: str) -> str:
    """The OpenAI name of a role.

    Raises:
        Refused: `unknown_role`; the reason quotes the role only where it looks like a name.

    """
    role = ROLES.get(name) or ROLES.get(name.lower())
    if role is None:
        named = f"`{name}`" if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,31}", name) else "no role packer knows"
        raise Refused("unknown_role", f"the role at {where} is {named}; known: {', '.join(ROLES)}")
    return role
