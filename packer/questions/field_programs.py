"""What may be done with fields that `columns` cannot read: programs of jq, each with its condition.

`columns` renames fields of rows. There are two steps beyond it: each of several answers in a list becomes a row, and
what belongs to a question is written into it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from packer.questions.field_names import meant_field
from packer.questions.options import siblings
from packer.questions.read_places import places
from packer.source.file_bytes import FilePath, quoted
from packer.source.jq_commands import jq_field, jq_path, row_command
from packer.source.row import Columns, field_value, first_name

_ANSWERS = ("output", "rejected", "reasoning")

_WRITTEN = 'map("\\n\\n\\(.key): " + (.value | strings // tojson)) | join("")'
"""What fields say behind a question, each with its name: a text as it stands, anything else as JSON."""


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
