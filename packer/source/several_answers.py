"""Rows with several answers of which one is to be trained: the programs of jq that pick it, each with its condition.

They may be the items of a list, or fields whose names differ in a last letter; a number may say which one is right.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packer.source.field_names import meant_field
from packer.source.file_bytes import FilePath, quoted
from packer.source.jq_commands import jq_field, row_command
from packer.source.question_fields import list_names

_FEWEST_SIBLINGS = 3
"""Of two fields that differ in a last letter, either may be the better answer."""


def pick_hint(path: FilePath, rows: Sequence[Mapping[str, Any]], question: str) -> str | None:
    """Return the steps that leave one answer to a question in rows that have several; None for other rows."""
    ways = (*_numbered(rows, question), *_first_of_list(rows, question))
    steps = [f"{when}: {command}" for when, program in ways if (command := row_command(path, program)) is not None]
    return f"packer reads one answer a row; {'; '.join(steps)}" if steps else None


def _numbered(rows: Sequence[Mapping[str, Any]], question: str) -> Iterator[tuple[str, str]]:
    """Yield what picks the answer by its number, and writes all of them into the question."""
    for names, options, listed in _options(rows, but=question):
        numbers = {name: _first_numbers([row.get(name) for row in rows], options) for name in rows[0]}
        found = sorted(filter(numbers.get, numbers), key=lambda name: meant_field(name) != "output")
        field = next(iter(found), "")
        for first in numbers.get(field, ()):
            lettered = '[$all | to_entries[] | "\\([.key + 65] | implode). \\(.value)"] | join("\\n")'
            asked = f'.instruction = {jq_field(question)} + "\\n" + ({lettered})'
            said = f".output = $all[{jq_field(field)} - {first}]"
            gone = (each for each in (*names, field, question) if each not in ("instruction", "output"))
            yield (
                f"if {quoted(field)} is the number, from {first}, of the right one in {list_names(names)}",
                f"{listed} as $all | {asked} | {said} | del({', '.join(map(jq_field, gone))})",
            )


def _first_numbers(values: Sequence[Any], options: Sequence[Sequence[str]]) -> list[int]:
    """Return the numbers from which values may count the answers of their rows."""
    if not all(type(value) is int for value in values) or len({*values}) == 1 < len(values):
        return []
    return [
        first
        for first in (0, 1)
        if all(first <= value < first + len(each) for value, each in zip(values, options, strict=True))
    ]


def _options(
    rows: Sequence[Mapping[str, Any]], but: str
) -> Iterator[tuple[Sequence[str], Sequence[Sequence[str]], str]]:
    """Yield fields with the answers to choose from, these answers in each row, and the program that lists them."""
    siblings: dict[str, list[str]] = {}
    for name in sorted(rows[0].keys() - {but}):
        values = [row.get(name) for row in rows]
        lists = [each for each in values if isinstance(each, list) and len(each) > 1 and _are_texts(each)]
        if len(lists) == len(rows):
            yield [name], lists, jq_field(name)
        elif _are_texts(values) and len(name) > 1:
            siblings.setdefault(name[:-1], []).append(name)
    for names in (names for names in siblings.values() if len(names) >= _FEWEST_SIBLINGS):
        first = ord(names[0][-1])
        if [ord(name[-1]) for name in names] == [*range(first, first + len(names))]:
            yield names, [[row[name] for name in names] for row in rows], f"[{', '.join(map(jq_field, names))}]"


def _first_of_list(rows: Sequence[Mapping[str, Any]], question: str) -> Iterator[tuple[str, str]]:
    """Yield what keeps the first of several answers, which are texts, or objects with one."""
    for name in (name for name in rows[0] if meant_field(name) == "output"):
        lists = [each for row in rows if isinstance(each := row.get(name), list) and len(each) > 1]
        items = [item if isinstance(item, dict) else {"": item} for each in lists for item in each]
        lengths: Counter[str] = Counter()
        for item in items:
            lengths.update({key: len(value) for key, value in item.items() if isinstance(value, str)})
        longest = max(lengths, key=lambda key: lengths[key], default=None)
        if len(lists) == len(rows) and longest is not None and all(longest in item for item in items):
            text = f".[0]{jq_field(longest)[1:] if longest else ''}"
            when = f"if the first text in {quoted(name)} is the answer to {quoted(question)}, keep that one"
            yield when, f"{jq_field(name)} |= {text}"


def _are_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(each, str) for each in values)
