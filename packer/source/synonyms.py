"""Names that data sets use for the fields of a row, and fields that a schema would leave unread because of their name.

A row of instruction and response may keep its system message under `system_prompt`, or its reasoning under `cot`.
Training the answer without them would lose them silently, so such a row is refused until `columns` says what they are.
"""

import functools
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from packer.source.decode import Refused
from packer.source.file_bytes import quoted

SYNONYMS = {
    "instruction": ("instruction", "question", "prompt", "query", "problem"),
    "output": ("output", "answer", "response", "completion", "solution"),
    "input": ("input", "context", "passage"),
    "system": ("system", "systemprompt", "systemmessage"),
    "reasoning": ("reasoning", "reasoningcontent", "cot", "complexcot", "chainofthought", "thinking", "rationale"),
}
"""Fields of schema `alpaca` and the names that data sets use for them, reduced to lower-case letters and digits."""

_YAML_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off"})

_AROUND_THE_ANSWER = ("input", "system", "reasoning")
"""Fields that a row may lack. One that is there under another name would not be missed."""

_FIELD_BY_SYNONYM = {synonym: field for field, synonyms in SYNONYMS.items() for synonym in synonyms}


def meant_field(name: str) -> str | None:
    """Return the field that a name usually stands for, or None.

    Example:
        >>> meant_field("System_Prompt"), meant_field("topic")
        ('system', None)
    """
    return _FIELD_BY_SYNONYM.get(re.sub(r"[^a-z0-9]", "", name.lower()))


@functools.lru_cache(maxsize=4096)
def unread_fields(names: tuple[str, ...], fields: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Return the names that stand for a field of a schema but are none of its fields, each with that field."""
    meant = ((name, meant_field(name)) for name in names if name not in fields)
    return tuple((name, field) for name, field in meant if field in _AROUND_THE_ANSWER and field in fields)


def refuse_unread(row: Mapping[str, Any], fields: frozenset[str]) -> None:
    """Refuse a row with a text that would be lost because its schema does not read it under this name.

    Args:
        row: the row, its columns renamed.
        fields: those of its schema.

    Raises:
        Refused: `unread_content`.
    """
    for name, field in unread_fields(tuple(row), fields):
        refuse_lost(row, name, f"{quoted(name)} is not read", read=fields, columns=f"{field}: {as_yaml(name)}")


def refuse_lost(
    row: Mapping[str, Any], name: str, reason: str, *, read: Collection[str], columns: str | None = None
) -> None:
    """Refuse a row if a field that is not read has a text that no field that is read contains.

    Args:
        row: the row.
        name: the field.
        reason: why it is not read.
        read: the fields that are read.
        columns: with which it would be, as YAML; None if there are none.

    Raises:
        Refused: `unread_content`.
    """
    value = row.get(name)
    text = value.strip() if isinstance(value, str) else ""
    if text and not any(text in other for key in row if key in read and key != name for other in _texts(row[key])):
        reads = "" if columns is None else f"`columns: {{{columns}}}` reads it, "
        raise Refused("unread_content", f"{reason}; {reads}`columns: {{{as_yaml(name)}: null}}` leaves it out")


def as_yaml(name: str) -> str:
    """Return a name as a YAML value within single quotes of a shell."""
    is_plain = re.fullmatch(r"[^\W\d]\w*", name) and name.lower() not in _YAML_WORDS
    return name if is_plain else json.dumps(name, ensure_ascii=False).replace("'", "'\\''")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | Collection):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)
