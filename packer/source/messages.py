"""Schema `messages`: OpenAI's chat format, and its dialects with content parts and per-message weights."""

from typing import Any

from packer.batches import Sample
from packer.source.chat import ChatMessage, chat_sample, read_message
from packer.source.row import RowFields, typed, with_filled_messages


class MessagesRow(RowFields, frozen=True, kw_only=True):
    messages: list[ChatMessage]


def read(row: dict[str, Any], number: int) -> Sample:
    """``{"messages": [{"role": "user", "content": "…"}, …], "tools": […], …}``

    Raises:
        Refused: the row cannot be a sample.

    """
    row = with_filled_messages(row, "messages")
    shape = typed(row, MessagesRow)
    raw = row["messages"]
    messages = [read_message(raw[i], message, where=f"$.messages[{i}]") for i, message in enumerate(shape.messages)]
    return chat_sample(row, shape, messages, number=number)
