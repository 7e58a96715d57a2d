"""Rows of chats."""

from typing import Any


def chat(*texts: Any, **fields: Any) -> dict[str, Any]:
    """A row of a user and an assistant in turns."""
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)], **fields}
