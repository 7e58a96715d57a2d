"""Results of tools as Anthropic writes them: parts of a user message. Templates expect messages of their own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from packer.batches import Message
from packer.source.decode import Refused
from packer.source.file_bytes import quoted
from packer.source.message_parts import TEXT_FIELDS, Part, read_content
from packer.source.row import type_reason

_RESULT_FIELDS = frozenset({"type", "tool_use_id", "content", "is_error", "id", "name", "cache_control"})


def holds_results(content: Any) -> bool:
    """Whether the content of a message, as its row has it, is a list of parts with results of tools."""
    return isinstance(content, list) and any(map(_is_result, content))


def read_results(
    raw: Sequence[Mapping[str, Any]], parts: Sequence[Part], more: Mapping[str, Any], *, where: str
) -> Iterator[Message]:
    """Yield a message for each result at the beginning of a content; the other parts are what the user says.

    `parts` are those of the row, typed; each of the messages gets the other fields of theirs, `more`.
    """
    num_results = sum(map(_is_result, raw))
    if not all(map(_is_result, raw[:num_results])):
        raise Refused("wrong_type", f"a part before a result of a tool at {where}: results come first")
    for i, part in enumerate(parts[:num_results]):
        yield _read_result(raw[i], part, more, where=f"{where}[{i}]")


def _read_result(raw: Mapping[str, Any], part: Part, more: Mapping[str, Any], *, where: str) -> Message:
    others = [name for name, value in raw.items() if name not in _RESULT_FIELDS and value not in (None, "", [], {})]
    if part.content is None and others:
        raise Refused("no_content", f"no `content` at {where}; its other keys: {', '.join(map(quoted, others))}")
    lost = [name for name in TEXT_FIELDS if name in others]
    if lost:
        raise Refused("wrong_type", f"`content` and `{lost[0]}` in one result of a tool at {where}")
    try:
        parts = msgspec.convert(part.content, str | list[Part] | None)
    except msgspec.ValidationError as error:
        raise Refused("wrong_type", f"{type_reason(str(error))} in the `content` at {where}") from None
    content = read_content(parts, where=f"{where}.content")
    if content.calls or content.reasoning:
        raise Refused("wrong_type", f"calls or reasoning in a result of a tool at {where}")
    fields = {"tool_call_id": part.tool_use_id, "name": part.name, "is_error": part.is_error or None}
    present = {name: value for name, value in fields.items() if value is not None}
    return Message(fields={"role": "tool", "content": content.text or "", **present, **more})


def _is_result(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_result"
