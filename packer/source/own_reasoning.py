"""Reasoning that a row gives in parts beside the content, or in a message of its own before the answer it belongs to.

Logs of APIs have the steps of a turn one by one. As a turn of its own, reasoning would be an answer to learn, or an
answer that was cut off.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from packer.batches import REASONING_FIELDS, Message
from packer.source.decode import Refused
from packer.source.message_parts import TEXT_FIELDS
from packer.source.roles import REASONING_ROLES


def is_reasoning(sender: str, message: Mapping[str, Any]) -> bool:
    """Whether the text of a message is reasoning, by its sender or its channel, and not the code of a call."""
    calls = (message.get("tool_calls"), message.get("function_call"), message.get("recipient") not in (None, "all"))
    return sender.lower() in REASONING_ROLES or (message.get("channel") in REASONING_ROLES and not any(calls))


def reasoning_in(value: Any) -> str | None:
    """Return what a list of nothing but parts of reasoning says, under whatever key a message has it.

    OpenRouter has them under `reasoning_details`, LiteLLM under `thinking_blocks`: their types say what they are.
    """
    if not isinstance(value, list) or not value or not all(map(_is_of_reasoning, value)):
        return None
    texts = [part[name] for part in value for name in TEXT_FIELDS if isinstance(part.get(name), str)]
    return "\n\n".join(texts) or None


def _is_of_reasoning(part: Any) -> bool:
    return isinstance(part, dict) and str(part.get("type")).partition(".")[0] in REASONING_ROLES


def joined_with_answers(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages without those that are nothing but reasoning before an answer that has none: it has theirs.

    Pieces of reasoning in a row are paragraphs of one. If only the reasoning is not to be trained, the answer's text is
    all that is trained of both.
    """
    if not any(map(_reasoning_alone, messages)):
        return messages
    joined: list[Message] = []
    for number, message in enumerate(messages):
        reasoning = _reasoning_alone(joined[-1]) if joined else {}
        more = _reasoning_alone(message)
        has_own = not more and any(message.fields.get(name) for name in REASONING_FIELDS)
        if not reasoning or message.role != "assistant" or has_own:
            joined.append(message)
            continue
        spans = message.spans
        if joined[-1].weight != message.weight:
            text = message.fields["content"]
            if more or joined[-1].weight != 0 or message.fields.get("tool_calls") or not isinstance(text, str):
                reason = f"an answer at $.messages[{number}] with another weight than its reasoning before it"
                raise Refused("wrong_type", f"{reason}; both are one turn")
            spans = spans or ((0, len(text)),)
        both = {name: f"{text}\n\n{more[name]}" if name in more else text for name, text in reasoning.items()}
        joined[-1] = msgspec.structs.replace(message, fields={**message.fields, **both}, spans=spans)
    return joined


def _reasoning_alone(message: Message) -> dict[str, Any]:
    """Return the reasoning of an assistant's message that has nothing else, by its fields; empty for any other."""
    fields = message.fields
    if len(fields) < 3 or message.role != "assistant" or fields.get("tool_calls") or (fields["content"] or "").strip():
        return {}
    return {name: fields[name] for name in REASONING_FIELDS if fields.get(name)}
