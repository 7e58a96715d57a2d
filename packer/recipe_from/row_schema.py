"""How a recipe says what rows look like: a schema, and the columns that go by other names."""

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
class RowSchema:
    schema: str
    columns: Mapping[str, str | None] = field(default_factory=dict)

    def as_source(self) -> dict[str, Any]:
        """The keys of a source that say so; columns that are called as packer calls them are left out."""
        columns = {new: old for new, old in self.columns.items() if new != old}
        return {"schema": self.schema} | ({"columns": columns} if columns else {})


def chat_rows(*, messages: str, role: str, content: str, columns: Mapping[str, str | None]) -> RowSchema | None:
    """Rows of messages; None where packer does not read who speaks, or what is said, under these names."""
    if (role, content) == ("role", "content"):
        return RowSchema(schema="messages", columns={"messages": messages, **columns})
    if role in MESSAGE_FIELDS["role"] and content in MESSAGE_FIELDS["content"]:
        return RowSchema(schema="sharegpt", columns={"conversations": messages, **columns})
    return None


def unread_message_fields(messages: str, role: str, content: str) -> str:
    """Why rows of messages are not read under these names, and the command that renames them."""
    why = "packer reads who speaks in role or from, and what is said in content or value; rename the fields in the rows"
    if not all(name.isidentifier() for name in (messages, role, content)):
        return why  # a name that jq or a shell would read otherwise
    renamed = [(new, old) for new, old in (("role", role), ("content", content)) if new != old]
    moved = " | ".join(f".{new} = .{old}" for new, old in renamed)
    gone = ", ".join(f".{old}" for _, old in renamed)
    return f"{why}: jq -c '.{messages} |= map({moved} | del({gone}))' FILE > NEW"


def alpaca_rows(columns: Mapping[str, str | None]) -> RowSchema:
    """Rows of instruction, input and output; of what else packer would read in them, only what is asked for."""
    hidden: dict[str, str | None] = dict.fromkeys(("history", "system", "tools"))
    return RowSchema(schema="alpaca", columns={**hidden, **columns})


def is_read_as(name: str, role: str) -> bool:
    """Whether packer takes a sender of this name for that role."""
    return ROLES.get(name, ROLES.get(name.lower())) == role or (role == "function_call" and name in CALL_ROLES)
