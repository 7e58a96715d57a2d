"""Results of tools as Anthropic writes them: parts of a user message. Templates expect messages of their own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import msgspec

from packer.batches import Message
from packer.source.decode import Refused
from packer.source.message_parts import Part, read_content


def holds_results(content: Any) -> TypeGuard[list[Part]]:
    """Whether a content is a list of parts with results of tools."""
    return isinstance(content, list) and any(map(_is_result, content))


def read_results(parts: Sequence[Part], role: str, more: Mapping[str, Any], *, where: str) -> Iterator[Message]:
    """Yield a message for each result, and one of the user for the parts behind them.

    Args:
        parts: content of the message.
        role: its role.
        more: its other fields, which each of the messages gets.
        where: path of the content in its row, for reasons of rejections.

    Raises:
        Refused: `wrong_type`, `multimodal`.
    """
    if role != "user":
        raise Refused("wrong_type", f"results of tools in a message that is not the user's at {where}")
    num_results = sum(map(_is_result, parts))
    if not all(map(_is_result, parts[:num_results])):
        raise Refused("wrong_type", f"a part before a result of a tool at {where}: results come first")
    for i, part in enumerate(parts[:num_results]):
        yield _read_result(part, more, where=f"{where}[{i}]")
    if num_results < len(parts):
        content = read_content(list(parts[num_results:]), where=where)
        if content.calls or content.reasoning:
            raise Refused("wrong_type", f"calls or reasoning of a message that is not the assistant's at {where}")
        yield Message(fields={"role": "user", "content": content.text, **more})


def _read_result(part: Part, more: Mapping[str, Any], *, where: str) -> Message:
    try:
        content = msgspec.convert(part.content, str | list[Part] | None)
    except msgspec.ValidationError as error:
        raise Refused("wrong_type", f"{error} in the `content` at {where}") from None
    fields = {"tool_call_id": part.tool_use_id, "is_error": part.is_error or None}
    present = {name: value for name, value in fields.items() if value is not None}
    text = read_content(content, where=f"{where}.content").text
    return Message(fields={"role": "tool", "content": text or "", **present, **more})


def _is_result(part: Part) -> bool:
    return part.type == "tool_result"
