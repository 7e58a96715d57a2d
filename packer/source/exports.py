"""Recognizes exports that are no rows yet. A page has the command that makes rows of each."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from packer.source.conversations import conversation_hint
from packer.source.exchanges import history_hint
from packer.source.file_bytes import FilePath

_Recognizes: TypeAlias = Callable[[Mapping[str, Any]], bool]

PAGE = "docs/how-to/exports.md"


def _with(*names: str) -> _Recognizes:
    return lambda row: all(row.get(name) is not None for name in names)


def _in(field: str, *keys: str) -> _Recognizes:
    """Recognize rows that have some keys in a field, at any depth."""
    names = [f'"{key}": ' for key in keys]
    return lambda row: all(map(json.dumps(row.get(field), default=str).__contains__, names))


EXPORTS: Mapping[str, tuple[str, _Recognizes]] = {
    "ChatGPT": ("an export of ChatGPT", _with("mapping", "current_node")),
    "Claude": ("an export of Claude", _with("chat_messages")),
    "Claude Code": ("a session of Claude Code", _with("sessionId", "message")),
    "Glaive": (
        "a file of transcripts, with tools in their system texts",
        lambda row: isinstance(row.get("system"), str) and str(row.get("chat")).startswith("USER: "),
    ),
    "Label Studio": ("an export of Label Studio", _with("annotations", "data")),
    "Half of a batch": (
        "one half of a log: requests or answers. Rows with both, as `request` and `response`, are read",
        lambda row: "custom_id" in row or row.get("object") in ("response", "chat.completion"),
    ),
    "AI SDK": ("an export of the AI SDK", _in("messages", "parts", "text")),
    "Messages of the AI SDK": ("a file of messages of the AI SDK", _in("messages", "content", "toolCallId")),
    "Open WebUI": (
        "an export of Open WebUI",
        lambda row: isinstance(row.get("chat"), dict) and "history" in row["chat"],
    ),
    "Pydantic AI": ("a file of messages of Pydantic AI", _in("messages", "part_kind")),
    "LM Studio": ("a conversation of LM Studio", _in("messages", "versions", "currentlySelected")),
    "Traces": ("a file of traces", _in("nodes", "sampled")),
    "LangSmith": ("a file of runs of LangSmith", _in("outputs", "generations", "kwargs")),
    "Google ADK": ("a file of sessions of Google's ADK", _in("events", "author", "content", "parts")),
    "OpenTelemetry": (
        "a file of spans of OpenTelemetry",
        lambda row: "gen_ai." in json.dumps(row.get("attributes"), default=str),
    ),
    "AutoGen": ("a file of messages of AutoGen", _in("messages", "source", "models_usage")),
    "smolagents": (
        "a file of memories of smolagents",
        lambda row: '"tool-response"' in json.dumps(row.get("messages"), default=str),
    ),
    "BFCL": ("a file of Berkeley's function calls", _with("question", "function", "ground_truth")),
    "Samples of lm-eval": ("a file of samples of lm-eval", _with("doc", "arguments", "resps")),
    "Zendesk": (
        "an export of tickets",
        lambda row: row.get("requester_id") is not None and _in("comments", "author_id", "public")(row),
    ),
    "Channels": (
        "a channel of people, and you say who of them is the assistant",
        lambda row: row.get("channel") is not None and _in("messages", "author", "content", "timestamp")(row),
    ),
}
"""Of each heading of the page what it is about, and what recognizes it."""


def export_hint(path: FilePath, rows: Sequence[Mapping[str, Any]], field: str | None = None) -> str | None:
    """Return the step that makes rows of messages of an export, or of dialogues under other keys; None for others.

    `rows` are some of the file, and `field` the list with the messages, if it is known.
    """
    for heading, (what, recognizes) in EXPORTS.items():
        if any(map(recognizes, rows)):
            return f"this is {what}; {PAGE}#{heading.lower().replace(' ', '-')} has the command that makes rows of it"
    return (history_hint(path, rows) if field is None else None) or conversation_hint(path, rows, field)
