"""Conversion of axolotl's data sets for DPO, IPO, SimPO, ORPO and KTO. Based on axolotl 0.19.

A type names the columns of its rows and, before its dot, the template of its prompts and answers.
"""

from collections.abc import Mapping
from typing import Any

from packer.recipe_from.config import EntryLeftOutError, Keys, answer_rows, chat_rows, load_tables, renamed_roles

KINDS = {"dpo": "preference", "ipo": "preference", "orpo": "preference", "simpo": "preference", "kto": "rated"}
"""`rl` → packer's schema of its rows."""

STYLES = {"chatml": "chatml", "llama3": "llama-3"}
"""The template that a type names → packer's name of it."""

_RULES = load_tables("axolotl")

_TYPES: dict[str, dict[str, dict[str, str | None]]] = {
    "preference": {
        "argilla": {"instruction": "instruction", "chosen": "chosen_response", "rejected": "rejected_response"},
        "argilla_chat": {"system": None},
        "icr": {"instruction": "input"},
        "intel": {"instruction": "question"},
        "prompt_pairs": {"instruction": "prompt"},
        "ultra": {"prompt": "prompt"},
    },
    "rated": {
        "argilla": {"instruction": "instruction", "output": "completion"},
        "argilla_chat": {"messages": "completion", "system": None},
        "intel": {"instruction": "question", "output": "completion"},
        "prompt_pairs": {"instruction": "prompt", "output": "completion"},
        "ultra": {"instruction": "prompt", "output": "completion"},
    },
}
"""Schema → type of an entry, behind its dot → packer's name of a field → axolotl's."""

_FIRST_ANSWER = "of a conversation axolotl trains the first answer; packer what follows the messages both sides share"


def read_answers(keys: Keys, schema: str) -> dict[str, Any]:
    """Return schema and columns of an entry of preference data.

    Raises:
        EntryLeftOutError: packer cannot read the rows as this type does.
    """
    types = _TYPES[schema]
    if isinstance(keys.take("type"), Mapping):
        raise EntryLeftOutError("type", f"formats of your own: rename the columns for one of {', '.join(types)}")
    name = keys.take("type", "text") or "passthrough"
    style, _, form = name.partition(".")
    if style == "chat_template" and form in ("", "default", "argilla_chat") and schema == "preference":
        return _chats(keys, is_whole=form == "argilla_chat")
    keys.apply(_RULES["entry of no chats"] | _RULES["entry of no compared chats"])
    if style == "passthrough":
        return answer_rows(schema, {"prompt": "prompt"})
    if name == "chat_template.argilla" and schema == "preference":
        return answer_rows(schema, {"system": "system", **types["ultra"]})
    if style not in STYLES or form not in types:
        reason = "no type that packer reads"
        if style in STYLES and form in ("", "default"):
            reason = "axolotl takes the first of several columns that the rows have"
        raise EntryLeftOutError("type", f"{reason}: rename the columns for one of {', '.join(types)}")
    if form in ("argilla_chat", "ultra") and schema == "preference":
        keys.report("type", _FIRST_ANSWER)
    return answer_rows(schema, {"system": "system", **types[form]})


def _chats(keys: Keys, *, is_whole: bool) -> dict[str, Any]:
    mapped, roles = keys.inner("message_property_mappings"), keys.inner("roles")
    chat_rows(  # checks the names
        "message_property_mappings",
        messages="",
        role=mapped.take("role", "text") or "role",
        content=mapped.take("content", "text") or "content",
        columns={},
    )
    mapped.report_rest()
    columns = {side: keys.take(f"field_{side}", "text") or side for side in ("chosen", "rejected")}
    if not is_whole:
        columns["messages"] = keys.take("field_messages", "text") or "messages"
    keys.apply(_RULES["entry of compared chats"])
    return answer_rows("preference", columns) | named_roles(roles)


def named_roles(roles: Keys) -> dict[str, Any]:
    """Return the key `roles` of a source for an entry's `roles`."""
    senders = {name: roles.take(name, "texts") or () for name in ("system", "user", "assistant", "tool")}
    roles.report_rest()
    return renamed_roles({sender: name for name, own in senders.items() for sender in own})
