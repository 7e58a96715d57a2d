"""Refuses rows with content that their template does not read: in variables of the row, or under keys of messages."""

import functools
import re
from collections.abc import Container, Mapping
from typing import Any

from packer.batches import Sample
from packer.render.environment import ChatTemplate, RenderError
from packer.render.readback import strings

_KEYS = {
    "function_calls": "tool_call",
    "functions": "tools",
    "tools": "tools",
    "reasoning_details": "reasoning",
    "reasoning_text": "reasoning",
    "thinking_blocks": "reasoning",
    "thought": "reasoning",
    "thoughts": "reasoning",
}
"""Keys of messages under which some data sets have calls, tools or reasoning, with the kind of content that they are.

Some templates read them: OLMo's `function_calls` and `functions`, GLM's `tools`. So only the template decides.
"""

_NOTHING = frozenset({"", "[]", "{}", "null"})
"""Texts that say nothing, among them the JSON of what is empty."""

_WORD = "Zq0W"

NOT_READ = "which the template does not read"

_PLACES = {
    "tool_call": "pass calls as `tool_calls`",
    "tools": "pass tools in the row's field `tools`",
    "reasoning": "pass reasoning as `reasoning_content`",
}


def refuse_unread_variables(sample: Sample, template: ChatTemplate) -> None:
    """Refuse a row that gives the template a text, tools or documents in a variable that the template does not have.

    Raises:
        RenderError: `unread_content`.
    """
    for name, value in sample.template_kwargs.items():
        is_content = _is_prose(value) if isinstance(value, str) else bool(strings(value))
        if is_content and name not in template.read_variables:
            reason = f"`chat_template_kwargs` has {name!r}, which the template does not read"
            hides = "`columns: {chat_template_kwargs: null}` leaves out all variables of rows"
            raise RenderError(f"{reason}; {hides}", code="unread_content")


def refuse_unread_keys(sample: Sample, template: ChatTemplate, allowed: Container[str]) -> None:
    """Refuse a message with calls, tools or reasoning under a key that the template does not read, unless `allowed`.

    Raises:
        RenderError: `dropped_tool_call`, `dropped_tools`, `dropped_reasoning`.
    """
    for number, message in enumerate(sample.messages):
        if len(message.fields) <= 2 or _KEYS.keys().isdisjoint(message.fields):
            continue
        for key, kind in _KEYS.items():
            if kind in allowed or (sample.tools if kind == "tools" else message.role != "assistant"):
                continue
            if _is_lost(message.fields, key, kind) and not _reads(template.source, key):
                if _writes(sample, template, number, key):
                    continue
                reason = f"messages[{number}] has `{key}`, {NOT_READ}; {_PLACES[kind]}"
                raise RenderError(reason, code=f"dropped_{kind}", message=number)


def _is_lost(fields: Mapping[str, Any], key: str, kind: str) -> bool:
    """Whether a key of a message has a text that no other key has.

    Words alone, such as a type, are no reasoning, and names alone are no definitions of tools.
    """
    texts = [text.strip() for text in strings(fields.get(key))]
    texts = [text for text in texts if text not in _NOTHING and (kind != "reasoning" or _is_prose(text))]
    if kind == "tools" and not (any("{" in text for text in texts) or _has_object(fields.get(key))):
        return False
    others = [text for name, value in fields.items() if name not in _KEYS for text in strings(value)]
    return any(not any(text in other for other in others) for text in texts)


def _has_object(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, dict) for each in value))


def _writes(sample: Sample, template: ChatTemplate, number: int, key: str) -> bool:
    """Whether the template writes a word that stands under the key: some write all keys of a message, by no name."""
    messages = [message.fields for message in sample.messages[: number + 1]]
    messages[number] = {**messages[number], key: _WORD}
    try:
        return _WORD in template.render(messages, tools=sample.tools, kwargs=sample.template_kwargs)
    except RenderError:
        return False


@functools.lru_cache(maxsize=256)
def _reads(source: str, key: str) -> bool:
    """Whether a template may read a key of messages: as `.key` or as a text in quotation marks."""
    return re.search(rf"""[.'"]{key}\b""", source) is not None


def _is_prose(text: str) -> bool:
    """Whether a text is more than a setting: several words, or letters of a script that may not separate words."""
    return len(text.split()) > 1 or not text.isascii()
