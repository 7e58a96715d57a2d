"""The shape of a conversation: everything except its texts.

Conversations of one shape have the same roles and weights, and the same fields in the same order, with texts, empty
texts, nulls and truth values in the same places. Some conversations have no shape: those with tools, calls, reasoning
in a field, or a blank text.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from packer.batches import REASONING_FIELDS, Message, Sample

Field: TypeAlias = "str | tuple[Any]"
"""Value of a field: ``"text"`` for any text, or a constant in a tuple."""

Shape: TypeAlias = tuple[tuple[float | None, tuple[tuple[str, Field], ...]], ...]
"""Weight and fields of each message."""

TEXT = "text"
_PLAIN = ["role", "content"]


class _ShapelessError(Exception):
    """A message has a field that no shape describes."""


def shape_of(sample: Sample, texts: list[str]) -> Shape | None:
    """Return the shape of a conversation, and append its texts to `texts`; None if it has no shape."""
    if sample.kind != "chat" or sample.template_kwargs or sample.tools:
        return None
    try:
        return tuple([(message.weight, _fields(message.fields, texts)) for message in sample.messages])
    except _ShapelessError:
        return None


def conversation_of(shape: Shape, texts: Sequence[str]) -> Sample:
    """Return the conversation of this shape with these texts."""
    left = iter(texts)
    messages = [
        Message(fields={name: next(left) if field == TEXT else field[0] for name, field in fields}, weight=weight)
        for weight, fields in shape
    ]
    return Sample(kind="chat", row=0, messages=tuple(messages))


def num_texts(shape: Shape) -> int:
    return sum(field == TEXT for _, fields in shape for _, field in fields)


def _fields(message: Mapping[str, Any], texts: list[str]) -> tuple[tuple[str, Field], ...]:
    if [*message] == _PLAIN:  # nearly always
        text = message["content"]
        if type(text) is str and text and not text.isspace():
            texts.append(text)
            return _plain(message["role"])
    if any(name in message for name in REASONING_FIELDS):
        raise _ShapelessError
    return tuple([(name, _field(name, value, texts)) for name, value in message.items()])


@functools.lru_cache(64)
def _plain(role: str) -> tuple[tuple[str, Field], ...]:
    return (("role", (role,)), ("content", TEXT))


def _field(name: str, value: Any, texts: list[str]) -> Field:
    if value is None or type(value) is bool or (type(value) is str and (name == "role" or not value)):
        return (value,)
    if type(value) is not str or value.isspace():
        raise _ShapelessError
    texts.append(value)
    return TEXT
