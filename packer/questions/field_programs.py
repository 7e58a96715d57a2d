"""What may be done with fields that `columns` cannot read: programs of jq, each with its condition.

`columns` renames fields of rows. There are three steps beyond it: each of several answers in a list becomes a row, what
belongs to a question is written into it, and a key of messages is moved to where tools, reasoning or flags are read.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from packer.questions.field_names import meant_field
from packer.questions.read_places import ITEMS, Path
from packer.source.decode import decoded_json
from packer.source.jq_commands import jq_field, jq_path
from packer.source.roles import is_answer
from packer.source.row import field_value

KEY_OF_MESSAGES = re.compile(r"(?P<list>[^\[\]]+)\[\]\.(?P<key>[^\[\]]+)")
"""The path of a key of messages, which may be in an object of theirs, as these may be in one of the row."""

_ANSWERS = ("output", "rejected", "reasoning")
_NO_CONTEXT = (*_ANSWERS, "system", "tools")

_WRITTEN = 'map("\\n\\n\\(.key): " + (.value | strings // tojson)) | join("")'
"""What fields say behind a question, each with its name: a text as it stands, anything else as JSON."""

_SPEAKERS = (("messages", "role", "content"), ("conversations", "from", "value"))


def _into(question: str, fields: Sequence[str]) -> str:
    names = ", ".join(map(json.dumps, fields))
    said = f"[to_entries[] | select((.key | IN({names})) and .value)]"
    return f"({said} | {_WRITTEN}) as $more | {question} += $more | del(.[{names}])"


def programs_for_fields(
    left: Collection[str], rows: Sequence[Mapping[str, Any]], roles: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield what unread fields may be, and the programs that move them; `left` are those that no column reads."""
    for path in left:
        found = KEY_OF_MESSAGES.fullmatch(path)
        if found is None:
            yield from _of_row(path, rows, roles)
        else:
            yield from _of_messages(found["list"], found["key"], rows, roles)


def _of_messages(
    field: str, key: str, rows: Sequence[Mapping[str, Any]], roles: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield what a key such as ``messages[].tools`` may be: a condition, and the program that moves it."""
    meant = meant_field(key)
    if "." in key and meant not in ("reasoning", "tools"):
        return  # of an object that is about a message
    lists = [value for row in rows if isinstance(value := field_value(row, field), list)]
    having = [each for value in lists for each in value if isinstance(each, dict) and field_value(each, key)]
    of_answers = bool(having) and all(is_answer(each, roles) for each in having)
    are_texts = all(isinstance(field_value(each, key), str) for each in having)
    messages, at = jq_path((*field.split("."), ITEMS)), jq_path(key.split("."))
    if not having:
        return  # but in JSON, which no program opens
    if meant == "tools":
        each = f'{messages}{at[1:]} // empty | if type == "string" then fromjson else . end'
        listed = f'[{each} | if type == "array" then .[] else . end]'
        yield f"if `{key}` has the tools of the row", f".tools = {listed} | del({messages}{at[1:]})"
    elif of_answers and are_texts:
        moved = f".reasoning_content = {at} | del({at})"
        yield f"if `{key}` is the reasoning before the answer", f"({messages} | select({at})) |= ({moved})"


def moved_flag(messages: Path, key: Path, name: str, value: str, *, silence: str | None = None) -> str:
    """Return the program that moves a flag of messages, as `value` makes it of what they say, to a key that is read.

    `silence`: what a message says that does not have it; None if that says nothing.
    """
    at, which = jq_path(key), f" | select({jq_path(key)} != null)" if silence is None else ""
    said = "" if silence is None else f"if . == null then {silence} else . end | "
    return f"({jq_path(messages)}{which}) |= (.{name} = ({at} | {said}{value}) | del({at}))"


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; nothing of anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _has_answer(value: Any) -> bool:
    """Whether a value has a message of the assistant's, at any depth."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (isinstance(value, dict) and "role" in value and is_answer(value)) or any(map(_has_answer, inner))


def _of_row(field: str, rows: Sequence[Mapping[str, Any]], roles: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what moves a field to the last answer of a row with messages, or writes it into the first question.

    No question if it has an answer, or is a text whose name says that it is something else, or that is JSON itself.
    """
    values = [row[field] for row in rows if row.get(field)]
    texts = [value for value in values if isinstance(value, str)]
    lists = {name: [_objects(row.get(name)) for row in rows] for name, *_ in _SPEAKERS}
    answered = [name for name, each in lists.items() if all(own and is_answer(own[-1], roles) for own in each)]
    if texts == values and meant_field(field) == "reasoning" and answered:
        moved = f".{answered[0]}[-1].reasoning_content = {jq_field(field)} | del({jq_field(field)})"
        yield f"if `{field}` is the reasoning before the last answer", moved
    is_other = bool(texts) and (meant_field(field) in _NO_CONTEXT or decoded_json(texts[0]) is not None)
    if not values or is_other or any(map(_has_answer, values)):
        return
    asking = {"user", "human", *(name.lower() for name, role in roles.items() if role == "user")}
    for name, speaker, said in _SPEAKERS:
        turns = [turn for each in lists[name] for turn in each]
        if turns and all(isinstance(turn.get(said), str) for turn in turns):
            is_asked = f".{speaker} | strings | ascii_downcase | IN({', '.join(map(json.dumps, sorted(asking)))})"
            question = f"(first(.{name}[] | select({is_asked})) | .{said})"
            yield (
                f"if `{field}` belongs to the question",
                f"if any(.{name}[]?; {is_asked}) then {_into(question, [field])} else . end",
            )
            return
