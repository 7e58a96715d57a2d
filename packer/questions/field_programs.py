"""What may be done with fields that `columns` cannot read: programs of jq, each with its condition.

`columns` renames fields of rows. There are three steps beyond it: each of several answers in a list becomes a row, what
belongs to a question is written into it, and a key of messages is moved to where tools, reasoning or flags are read.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from packer.questions.field_names import meant_field
from packer.questions.options import siblings
from packer.questions.read_places import ITEMS, Path, places
from packer.source.decode import decoded_json
from packer.source.file_bytes import FilePath, quoted
from packer.source.jq_commands import jq_field, jq_path, row_command
from packer.source.roles import is_answer
from packer.source.row import Columns, field_value, first_name

KEY_OF_MESSAGES = re.compile(r"(?P<list>[^\[\]]+)\[\]\.(?P<key>[^\[\]]+)")
"""The path of a key of messages, which may be in an object of theirs, as these may be in one of the row."""

_ANSWERS = ("output", "rejected", "reasoning")
_NO_CONTEXT = (*_ANSWERS, "system", "tools")

_WRITTEN = 'map("\\n\\n\\(.key): " + (.value | strings // tojson)) | join("")'
"""What fields say behind a question, each with its name: a text as it stands, anything else as JSON."""

_SPEAKERS = (("messages", "role", "content"), ("conversations", "from", "value"))


def one_answer(path: FilePath, rows: Sequence[Mapping[str, Any]], question: str) -> str | None:
    """Return the steps for several answers in a list, or for the parts of one; None for rows that have one text."""
    for place in places(rows):
        name, at = ".".join(place), jq_path(place)
        lists = [field_value(row, name) for row in rows]
        if meant_field(name) != "output" or not all(isinstance(each, list | None) for each in lists):
            continue
        items = [item for each in lists for item in each or ()]
        texts = [item for item in items if isinstance(item, str) or _has_answer_key(name, item)]
        is_read = len(items) == sum(map(bool, lists)) and all(isinstance(item, str) for item in items)
        if items and len(texts) == len(items) and not is_read:
            what = "text" if isinstance(items[0], str) else "object"
            each = f"if each {what} in {quoted(name)} is an answer to {quoted(question)}, a row for each"
            ways = [(each, f"range([1, ({at} | length)] | max) as $n | {at} |= .[$n]")]
            if what == "text":
                ways.append(("if they are the parts of one answer, in their order", f'({at} | arrays) |= join("\\n")'))
            steps = [f"{when}: {command}" for when, program in ways if (command := row_command(path, program))]
            if steps and (number := _number_of_one(rows, lists)) is not None:
                which = f"if {quoted(number)} says which of {quoted(name)} is the better one"
                steps.insert(0, f"{which}, give rows that one alone, or `chosen` and `rejected`")
            return f"packer reads one answer a row; {'; '.join(steps)}" if steps else None
    return None


def _number_of_one(rows: Sequence[Mapping[str, Any]], lists: Sequence[Sequence[Any] | None]) -> str | None:
    """Return the field that numbers one of the answers in each row, from 0 or 1; None if there is none."""
    counts = [len(each or ()) for each in lists]
    for name in rows[0]:
        numbers = [number for row in rows if type(number := row.get(name)) is int]
        for first in (0, 1) if len(numbers) == len(rows) and len({*numbers}) > 1 else ():
            if all(first <= number < first + count for number, count in zip(numbers, counts, strict=True)):
                return name
    return None


def _has_answer_key(name: str, item: Any) -> bool:
    texts = [key for key, value in item.items() if isinstance(value, str)] if isinstance(item, dict) else []
    return any(meant_field(f"{name}.{key}") == "output" for key in texts)


def into_question(
    path: FilePath | None, rows: Sequence[Mapping[str, Any]], columns: Columns, left: Sequence[str]
) -> list[str]:
    """Return the steps that make fields which no column reads part of the question: options together, others alone."""
    question, read = columns.get("instruction") or "instruction", {first_name(old) for old in columns.values() if old}
    fields = [name for name in dict.fromkeys(map(first_name, left)) if name not in read]
    fields = [name for name in fields if meant_field(name) not in _ANSWERS]  # which would give the answer away
    is_whole = not columns.keys().isdisjoint({"prompt", "text"})
    if not fields or is_whole or not any(question in row for row in rows):
        return []
    options = [*siblings(fields)]
    single = [[name] for name in fields if not any(name in run for run in options)]
    steps = []
    for names in (*options, *single):  # of which only some may
        command = row_command(path, _into(jq_field(question), names)) if path is not None else None
        belong, them = ("belongs", "it") if len(names) == 1 else ("belong", "them")
        what = f"if {', '.join(map(quoted, names))} {belong} to the question, write {them} into {quoted(question)}"
        steps.append(f"{what}: {command}" if command else what)
    return steps


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
