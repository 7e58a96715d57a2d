"""Names that data sets use for the fields of a row, and fields that a schema would leave unread because of their name.

A row of instruction and response may keep its system message under `system_prompt`, or its reasoning under `cot`.
Training the answer without them would lose them silently, so such a row is refused until `columns` says what they are.
"""

import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from packer.source.decode import Refused
from packer.source.file_bytes import quoted
from packer.source.row import PlaceOf

SYNONYMS = {
    "instruction": ("instruction", "question", "prompt", "query", "problem", "inputs"),
    "output": (
        *("output", "answer", "response", "completion", "solution", "target", "targets", "reply"),
        *("generation", "generatedsolution"),
    ),
    "input": ("input", "context", "contexts", "passage", "passages", "document", "documents", "article", "paragraph"),
    "system": (
        *("system", "systemprompt", "systemmessage", "systeminstruction", "systeminstructions", "systemcontent"),
        *("sysprompt", "metainstruction"),
    ),
    "reasoning": (
        *("reasoning", "reasoningcontent", "reasoningtext", "reasoningtrace", "cot", "complexcot", "chainofthought"),
        *("think", "thinking", "thinkingcontent", "thought", "thoughts", "rationale"),
    ),
    "tools": ("tools", "availabletools", "tooldefinitions", "toolschemas"),
}
"""Fields of schema `alpaca` and the names that data sets use for them, reduced to lower-case letters and digits."""

_SETTINGS = frozenset({"on", "off", "true", "false", "yes", "no", "none", "low", "medium", "high"})
"""What data sets of models with and without reasoning have under `reasoning` to say which row is which."""

_SEVERAL = ("answers", "responses", "outputs")
"""Names under which data sets have a list of answers, or an API's whole response, beside the messages before it."""

_NOTHING = frozenset({"", "[]", "{}", "null"})
"""Texts that say nothing, among them the JSON of what is empty."""

_WHOLE_LENGTH = 12
"""Shorter answers are compared with whole texts: that some message has a B in it does not say that the answer is B."""

_YAML_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off"})

_AROUND_THE_ANSWER = ("input", "system", "reasoning", "tools")
"""Optional fields: one under another name would be lost without an error."""

_AROUND_THE_ANSWER_BY_ANY_NAME = ("input", "context", "system", "reasoning")
"""The names by which schemas read such fields."""

_FIELD_BY_SYNONYM = {synonym: field for field, synonyms in SYNONYMS.items() for synonym in synonyms}


def meant_field(name: str) -> str | None:
    """Return the field that a name usually stands for, or None.

    Example:
        >>> meant_field("System_Prompt"), meant_field("topic")
        ('system', None)
    """
    return _FIELD_BY_SYNONYM.get(re.sub(r"[^a-z0-9]", "", name.lower()))


def is_setting(reasoning: Any) -> bool:
    """Whether what a row has under `reasoning` says only whether, or how much, it is reasoned."""
    return isinstance(reasoning, str) and reasoning.strip().lower() in _SETTINGS


@functools.lru_cache(maxsize=4096)
def unread_fields(names: tuple[str, ...], fields: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Return the names that stand for a field of a schema but are none of its fields, each with that field."""
    meant = ((name, meant_field(name)) for name in names if name not in fields)
    return tuple((name, field) for name, field in meant if field in _AROUND_THE_ANSWER and field in fields)


@functools.lru_cache(maxsize=4096)
def answer_names(names: tuple[str, ...], fields: frozenset[str]) -> tuple[str, ...]:
    """Return the names that stand for the answer to messages in another field, and are no fields of their schema."""
    return tuple(
        name for name in names if name not in fields and (meant_field(name) == "output" or name.lower() in _SEVERAL)
    )


def refuse_lost_answer(row: Mapping[str, Any], fields: frozenset[str]) -> None:
    """Refuse a row whose messages do not end with the assistant's and whose answer is in another field.

    Raises:
        Refused: `unread_content`.
    """
    read = [name for name in row if name in fields]
    lost = next((name for name in answer_names(tuple(row), fields) if _is_lost(row, name, read, whole=True)), None)
    if lost is None:
        return
    reason = f"the messages end before the answer, and {quoted(lost)} is not read"
    is_read = "messages" in read and isinstance(row[lost], str)
    columns = {"prompt": "messages", "completion": lost} if is_read else None
    raise _unread(reason, [lost], columns=columns)


def refuse_unread(row: Mapping[str, Any], fields: frozenset[str], place_of: PlaceOf | None) -> None:
    """Refuse a row with texts that would be lost: its schema, or this form of its rows, does not read them.

    Raises:
        Refused: `unread_content`.
    """
    unread = unread_fields(tuple(row), fields)
    if place_of is not None:
        own = [name for name in _AROUND_THE_ANSWER_BY_ANY_NAME if name in fields and row.get(name)]
        unread = (*((name, _FIELD_BY_SYNONYM[name]) for name in own if place_of(row, name) != {}), *unread)
    if not unread:
        return
    read = fields.difference(name for name, _ in unread)
    names = {name: field for name, field in unread if _is_lost(row, name, read)}
    if not names:
        return
    columns: dict[str, str | None] = {}
    taken = {field for field in names.values() if field in read and row.get(field)}
    for name, field in names.items():
        is_readable = field not in taken and (field == "tools" or _is_readable(row[name], field))
        place = None if not is_readable else {} if place_of is None else place_of(row, field)
        if place is None:
            columns[name] = None
            continue
        taken.add(field)
        columns |= place if name == field else {**place, field: name}
    reason = f"{_listed(names)} {'is' if len(names) == 1 else 'are'} not read"
    raise _unread(reason, names, columns=columns if any(columns.values()) else None)


def refuse_lost(
    row: Mapping[str, Any],
    name: str,
    reason: str,
    *,
    read: Collection[str],
    columns: Mapping[str, str | None] | None = None,
) -> None:
    """Refuse a row if a field that is not read has a text that no field that is read contains.

    `reason` says why it is not read, and `columns` would read it.

    Raises:
        Refused: `unread_content`.
    """
    if _is_lost(row, name, read):
        raise _unread(reason, [name], columns=columns)


def _is_readable(value: Any, field: str) -> bool:
    """Whether a field can be read from a value: a text, but no setting as reasoning, or parts of a system message."""
    if isinstance(value, str):
        return field != "reasoning" or not is_setting(value)
    return field == "system" and isinstance(value, list) and all(map(_is_text_part, value))


def _is_text_part(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str) and part.get("type", "text") == "text"


def _is_lost(row: Mapping[str, Any], name: str, read: Collection[str], *, whole: bool = False) -> bool:
    """Whether a field has a text, alone or in a list or an object, that no field that is read contains.

    `whole`: a short text has to be all that the other field says.
    """
    texts = [text for each in _texts(row.get(name)) if (text := each.strip()) not in _NOTHING]
    others = [other for key in row if key in read and key != name for other in _texts(row[key])] if texts else []
    return any(
        not any(text == other.strip() if whole and len(text) < _WHOLE_LENGTH else text in other for other in others)
        for text in texts
    )


def _unread(reason: str, names: Collection[str], *, columns: Mapping[str, str | None] | None) -> Refused:
    what = "it" if len(names) == 1 else "them"
    if columns is not None:
        left_out = [name for name in names if columns.get(name, name) is None]
        reads = _listed([name for name in names if name not in left_out]) if left_out else what
        reason = f"{reason}; `columns: {{{columns_yaml(columns)}}}` reads {reads},"
    else:
        reason = f"{reason};"
    return Refused("unread_content", f"{reason} `columns: {{{columns_yaml(dict.fromkeys(names))}}}` leaves {what} out")


def _listed(names: Iterable[str]) -> str:
    return " and ".join(map(quoted, names))


def columns_yaml(columns: Mapping[str, str | None]) -> str:
    """Return columns as the members of a YAML mapping within single quotes of a shell."""
    return ", ".join(f"{as_yaml(new)}: {'null' if old is None else as_yaml(old)}" for new, old in columns.items())


def as_yaml(name: str) -> str:
    """Return a name as a YAML value within single quotes of a shell."""
    is_plain = re.fullmatch(r"[^\W\d]\w*", name) and name.lower() not in _YAML_WORDS
    return name if is_plain else json.dumps(name, ensure_ascii=False).replace("'", "'\\''")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | Collection) and not isinstance(value, bytes | bytearray):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)
