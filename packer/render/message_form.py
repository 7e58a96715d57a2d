"""Finds the form in which a template accepts messages: the row's own, or with other nulls, arguments or contents."""

import functools
import json
import math
from collections.abc import Callable
from typing import Any, TypeAlias

from packer.render.conversation import Conversation, JSONMessage
from packer.render.environment import RenderError
from packer.render.readback import num_garbled

Change: TypeAlias = tuple[Callable[[JSONMessage], JSONMessage], ...]


def renderable(conversation: Conversation, last: int) -> Conversation:
    """Return the conversation in a form that the template accepts, tried on messages up to `last`.

    The forms, in order: as the row has it; null contents as empty strings; tool-call arguments as JSON strings; both.
    For templates of some vision models each is tried with contents as lists of one part first. Leaving null contents as
    they are is not accepted if the template prints them as the word None.

    Of the accepted forms, the first whose calls can be read back from the rendering is chosen, or else the first that
    garbles the fewest calls. If none is accepted, the first that the template refuses deliberately is returned, so that
    the rejection has its reason; else the conversation as the row has it.
    """
    messages = conversation.messages
    nulls = any(message.get("content", "") is None for message in messages)
    calls = any(message.get("tool_calls") for message in messages)
    parts = conversation.template.takes_only_parts
    if not nulls and not calls and not parts:
        return conversation
    changes = changes_of(nulls=nulls, calls=calls)
    if parts:
        changes = [*((*change, _text_parts) for change in changes), *changes]
    best: Conversation | None = None
    refused: Conversation | None = None
    fewest = math.inf
    for change in changes:
        tried = changed(conversation, change)
        try:
            text = tried.render(tried.messages[: last + 1], {})
        except RenderError as error:
            refused = refused or (tried if error.refusal else None)
            continue
        if nulls and _without_null not in change and prints_none(tried, text, last):
            continue
        garbled = num_garbled(messages[: last + 1], text, tools=conversation.tools) if calls else 0
        if garbled < fewest:
            best, fewest = tried, garbled
        if not garbled:
            break
    return best or refused or conversation


def changed(conversation: Conversation, change: Change) -> Conversation:
    """Return a conversation with its messages changed step by step."""
    if not change:
        return conversation
    messages = [functools.reduce(lambda message, step: step(message), change, each) for each in conversation.messages]
    return conversation.with_messages(messages)


def changes_of(*, nulls: bool, calls: bool) -> list[Change]:
    """Return the forms of messages in the order in which they are tried: what is changed, step by step."""
    changes: list[Change] = [()]
    changes += [(_without_null,)] * nulls + [(_string_arguments,)] * calls
    return changes + [(_without_null, _string_arguments)] * (nulls and calls)


def prints_none(conversation: Conversation, text: str, last: int) -> bool:
    """Whether the text, the rendering of messages up to `last`, contains null contents as the word None."""
    if "None" not in text:
        return False
    empty = conversation.attempt([_without_null(message) for message in conversation.messages[: last + 1]], {})
    return empty is not None and text.count("None") > empty.count("None")


def _without_null(message: JSONMessage) -> JSONMessage:
    """Return the message with null content replaced by an empty string."""
    return {**message, "content": ""} if message.get("content", "") is None else message


def _text_parts(message: JSONMessage) -> JSONMessage:
    content = message.get("content")
    return {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message


def _string_arguments(message: JSONMessage) -> JSONMessage:
    """Return the message with the arguments of its calls as JSON strings."""
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [_string_call(call) for call in calls]} if calls else message


def _string_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or isinstance(function.get("arguments"), str | None):
        return call
    return {**call, "function": {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}}
