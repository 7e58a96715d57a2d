"""How a recipe says what rows look like: a schema, and the columns that go by other names."""

from collections.abc import Mapping
from typing import Any

from packer.recipe_from.config_keys import EntryLeftOutError
from packer.source.chat import CALL_ROLES, ROLES

MESSAGE_FIELDS = {
    "role": ("role", "from"),
    "content": ("content", "value"),
    "reasoning_content": ("reasoning_content", "reasoning", "thinking"),
    "tool_calls": ("tool_calls",),
    "tool_call_id": ("tool_call_id",),
    "name": ("name",),
}
"""What packer reads in a message, by the name that templates know it by; a message's own fields cannot be renamed."""


def rows_of(schema: str, columns: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """The keys of a source; columns that are called as packer calls them are left out."""
    renamed = {new: old for new, old in (columns or {}).items() if new != old}
    return {"schema": schema} | ({"columns": renamed} if renamed else {})


def chat_rows(key: str, *, messages: str, role: str, content: str, columns: Mapping[str, str | None]) -> dict[str, Any]:
    """Rows of messages.

    Raises:
        EntryLeftOutError: packer does not read who speaks, or what is said, under these names, which `key` gives.

    """
    if (role, content) == ("role", "content"):
        return rows_of("messages", {"messages": messages, **columns})
    if role in MESSAGE_FIELDS["role"] and content in MESSAGE_FIELDS["content"]:
        return rows_of("sharegpt", {"conversations": messages, **columns})
    raise EntryLeftOutError(
        key, "packer reads who speaks in role or from, and what is said in content or value: rename them in the rows"
    )


def alpaca_rows(columns: Mapping[str, str | None]) -> dict[str, Any]:
    """Rows of instruction, input and output; of what else packer would read in them, only what is asked for."""
    return rows_of("alpaca", dict.fromkeys(("history", "system", "tools")) | dict(columns))


def is_read_as(name: str, role: str) -> bool:
    """Whether packer takes a sender of this name for that role."""
    return ROLES.get(name, ROLES.get(name.lower())) == role or (role == "function_call" and name in CALL_ROLES)
