"""How a recipe says what form rows have: a schema of packer's, and the columns that are called otherwise."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    schema: str
    columns: Mapping[str, str | None] = field(default_factory=dict)

    def as_source(self) -> dict[str, Any]:
        """The keys of a source that say so; columns that are called as packer calls them are left out."""
        columns = {new: old for new, old in self.columns.items() if new != old}
        return {"schema": self.schema} | ({"columns": columns} if columns else {})


def chat_form(*, messages: str, role: str, content: str, columns: Mapping[str, str | None]) -> Form | None:
    """Rows of messages; None where packer does not read who speaks, or what is said, under these names."""
    if (role, content) == ("role", "content"):
        return Form(schema="messages", columns={"messages": messages, **columns})
    if role in MESSAGE_FIELDS["role"] and content in MESSAGE_FIELDS["content"]:
        return Form(schema="sharegpt", columns={"conversations": messages, **columns})
    return None


def alpaca_form(columns: Mapping[str, str | None]) -> Form:
    """Rows of instruction, input and output; of what else packer would read in them, only what is asked for."""
    hidden: dict[str, str | None] = dict.fromkeys(("history", "system", "tools"))
    return Form(schema="alpaca", columns={**hidden, **columns})


def is_read_as(name: str, role: str) -> bool:
    """Whether packer takes a sender of this name for that role."""
    return ROLES.get(name, ROLES.get(name.lower())) == role or (role == "function_call" and name in CALL_ROLES)
