"""Recognizes exports that are no rows yet. A page has the command that makes rows of each."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from packer.questions.conversations import PAGE, conversation_hint
from packer.source.file_bytes import FilePath

EXPORTS: Mapping[str, tuple[str, ...]] = {
    "ChatGPT": ("an export of ChatGPT", "mapping", "current_node"),
    "Claude": ("an export of Claude", "chat_messages"),
    "Claude Code": ("a session of Claude Code", "sessionId", "message"),
    "Glaive": ("a file of transcripts, with tools in their system texts", "system", r'"chat": "USER: '),
    "Label Studio": ("an export of Label Studio", "annotations", "was_cancelled", "data"),
    "Half of a batch": (
        "one half of a log: requests or answers. Rows with both, as `request` and `response`, are read",
        r'"custom_id": |"object": "(response|chat\.completion)"',
    ),
    "AI SDK": ("an export of the AI SDK", "messages", "parts", "text"),
    "Messages of the AI SDK": ("a file of messages of the AI SDK", "messages", "content", "toolCallId"),
    "Open WebUI": ("an export of Open WebUI", "chat", "history", "currentId"),
    "Pydantic AI": ("a file of messages of Pydantic AI", "messages", "part_kind"),
    "Traces": ("a file of traces", "nodes", "sampled"),
    "LangSmith": ("a file of runs of LangSmith", "outputs", "generations", "kwargs"),
    "OpenTelemetry": ("a file of spans of OpenTelemetry", "attributes", r'"gen_ai\.'),
    "Zendesk": ("an export of tickets", "requester_id", "comments", "author_id", "public"),
    "Channels": ("a channel of people, and you say who of them is the assistant", "channel", "author", "timestamp"),
}
"""Of each heading of the page what it is about, and by what a row is recognized: keys at any depth, and other JSON."""


def export_hint(path: FilePath, rows: Sequence[Mapping[str, Any]], field: str | None = None) -> str | None:
    """Return the step that makes rows of messages of an export, or of dialogues under other keys; None for others.

    `rows` are some of the file, and `field` the list with the messages, if it is known.
    """
    written = [json.dumps(row, default=str) for row in rows]
    for heading, (what, *signs) in EXPORTS.items():
        patterns = [sign if '"' in sign else f'"{sign}": (?!null)' for sign in signs]
        if any(all(re.search(pattern, row) for pattern in patterns) for row in written):
            return f"this is {what}; {PAGE}#{heading.lower().replace(' ', '-')} has the command that makes rows of it"
    return conversation_hint(path, rows, field)
