"""What may be done with fields that `columns` cannot read: programs of jq, each with its condition.

`columns` renames fields of rows. Of several answers, in a list or in fields whose names differ in a last letter, each
becomes a row, or one is picked: by a number that says which one is right, or by the scores that they have. What belongs
to a question is written into it. A key of messages is moved: tools to the row, and a text of answers to the reasoning,
or to the beginning of what is said.
"""

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice, permutations
from typing import Any, NamedTuple

from packer.questions.exchanges import after_history
from packer.questions.flag_programs import masking
from packer.questions.options import Options, all_texts, first_question, numbered, options, options_into_question
from packer.questions.question_fields import list_names
from packer.questions.read_places import ITEMS, places
from packer.source.decode import decoded_json
from packer.source.field_names import meant_field, words_of
from packer.source.file_bytes import FilePath, quoted
from packer.source.flag_values import as_number
from packer.source.jq_commands import jq_field, jq_path, row_command
from packer.source.roles import is_answer
from packer.source.row import Columns, field_value, first_name

KEY_OF_MESSAGES = re.compile(r"(?P<list>[^\[\]]+)\[\]\.(?P<key>[^\[\]]+)")
"""The path of a key of messages, which may be in an object of theirs, as these may be in one of the row."""

_KEY_OF_CALLS = re.compile(r"(?P<list>[^\[\]]+)\[\]\.tool_calls\[\]\.(?P<key>[^\[\]]+)")

_MOST_SCORES = 2
"""Of which each answer has one: what keeps the best by them is named."""

_NO_CONTEXT = ("output", "rejected", "reasoning", "system", "tools")

_SAID = (
    'def said: if type == "object" then to_entries | map("\\(.key): \\(.value)") | join(", ")'
    ' elif type == "array" then map(tostring) | join(" | ") else tostring end;'
    ' "\\n\\($name): " + (.[$name] | if type != "array" then said elif any(type | IN("array", "object"))'
    ' then "\\n" + (map(said) | join("\\n")) else map(tostring) | join(", ") end)'
)
"""What a field says: a table, or a list of objects, row by row."""


def one_answer(path: FilePath, rows: Sequence[Mapping[str, Any]], question: str) -> str | None:
    """Return the steps that leave one of several answers to a question in each row; None for rows that have one."""
    given = [*options(rows, question)]
    ways = (*numbered(rows, question, given), *_siblings(rows, given), *_of_list(rows, question))
    steps = [f"{when}: {command}" for when, program in ways if (command := row_command(path, program)) is not None]
    return f"packer reads one answer a row; {'; '.join(steps)}" if steps else None


def _siblings(rows: Sequence[Mapping[str, Any]], given: Sequence[Options]) -> Iterator[tuple[str, str]]:
    """Yield what makes a row of each answer, and what keeps one, where they are fields such as `solution_1`.

    Their scores are numbers in fields that end alike, or in lists.
    """
    for names, answers, _, _ in given:
        if len(names) > 1 and meant_field(names[0]) == "output":
            scores = [*_in_fields(rows, names), *_in_lists(rows, answers)]
            picks = " | ".join([_picked(names), *(each.picked for each in scores)])
            yield from (best := [*_best_alone(scores, picks)])
            each = f"to train each of {list_names(names)}, a row for each{_with(scores)}"
            yield each, f"range({len(names)}) as $n | {picks}"
            yield from [(f"to train {quoted(names[0])} alone", f"0 as $n | {picks}")] * (not best)


def _of_list(rows: Sequence[Mapping[str, Any]], question: str) -> Iterator[tuple[str, str]]:
    """Yield what makes a row of each of several answers in a list, keeps the best of them, or joins their parts."""
    for place in places(rows):
        name, at = ".".join(place), jq_path(place)
        found = [field_value(row, name) for row in rows]
        if meant_field(name) != "output":
            continue
        is_json = any(isinstance(each, str) for each in found)
        given = [each or [] for each in found]
        no_list = 'if . == "" then [] el' if not all(given) else ""
        decode = f'{at} |= ({no_list}if type == "string" then fromjson else . end) | ' if is_json else ""
        lists = [decoded_json(each) if isinstance(each, str) else each for each in given]
        items = [item for each in lists if isinstance(each, list) for item in each]
        are_texts = all_texts(items)
        if not all(isinstance(each, list) for each in lists) or not items:
            continue
        if not is_json and are_texts and all(len(each) == 1 for each in lists):
            continue  # which `columns` reads
        keys = [[key for key in each if isinstance(each[key], str)] if isinstance(each, dict) else [] for each in items]
        says_answer = all("output" in (meant_field(f"{name}.{key}") for key in each) for each in keys)
        if not are_texts and (is_json or len(place) > 1 or not says_answer):
            continue  # calls, or parts, say
        beside = [each for each in _in_lists(rows, lists) if each.name != name]
        inner = [
            _Scores(key, [[item.get(key) for item in each] for each in lists], f"{at} | map({jq_field(key)})")
            for key in (() if are_texts else items[0])
            if words_of(key)[-1:] != ["id"]
        ]
        picks = " | ".join([f"{at} |= .[$n]", *(each.picked for each in beside)])
        answer = f"each {'text' if are_texts else 'object'} in {quoted(name)} is an answer to {quoted(question)}"
        rated = [each for each in beside if not (are_texts and _are_offsets(rows, lists, each.values))]
        yield from _best_alone([*rated, *inner], picks, decode)
        yield (
            f"if {answer}, a row for each{_with(beside)}",
            f"{decode}range([1, ({at} | length)] | max) as $n | {picks}",
        )
        if are_texts:
            flags = [each for each in beside if any(said and isinstance(said[0], bool) for said in each.values)]
            whole = "".join(f" | ({each.listed} | arrays) |= all" for each in flags)
            yield (
                "if they are the parts of one answer, in their order",
                f'{decode}{at} |= join("\\n"){whole}',
            )


def _are_offsets(
    rows: Sequence[Mapping[str, Any]], answers: Sequence[Sequence[str]], values: Sequence[Sequence[Any]]
) -> bool:
    """Whether numbers say where in a text of the row each answer stands."""
    return any(
        type(start) is int and isinstance(text, str) and text[start : start + len(answer)] == answer
        for row, said, starts in zip(rows, answers, values, strict=True)
        for answer, start in zip(said, starts, strict=False)
        for text in row.values()
    )


class _Scores(NamedTuple):
    """A number, or a yes or no, that each of several answers has."""

    name: str
    values: Sequence[Sequence[Any]]
    """Of the answers of each row; empty where it has none."""

    listed: str
    """The program that lists them."""

    picked: str = ""
    """The program that keeps the one of answer $n; empty for those within answers."""


def _in_lists(rows: Sequence[Mapping[str, Any]], answers: Sequence[Sequence[Any]]) -> Iterator[_Scores]:
    """Yield the scores in lists of the row with one for each answer, or in lists in its objects."""
    first = {name: next((row[name] for row in rows if row.get(name)), None) for row in rows for name in row}
    for name, value in first.items():
        for path in [(name, key) for key in value] if isinstance(value, dict) else [(name,)]:
            found = [field_value(row, ".".join(path)) for row in rows]
            if go_along(found, answers):
                at = jq_path(path)
                yield _Scores(".".join(path), [each or () for each in found], at, f"({at} | arrays) |= .[$n]")


def _in_fields(rows: Sequence[Mapping[str, Any]], answers: Sequence[str]) -> Iterator[_Scores]:
    """Yield the scores in fields that differ in nothing but the last letters of those that have the answers."""
    for field in (field for field in rows[0] if field != answers[0]):
        for found in re.finditer(re.escape(answers[0][-1]), field):
            before, after = field[: found.start()], field[found.end() :]
            names = [f"{before}{name[-1]}{after}" for name in answers]
            values = [[row.get(name) for name in names] for row in rows]
            if all(map(_are_scores, values)):
                listed = f"[{', '.join(map(jq_field, names))}]"
                yield _Scores(before.rstrip("_- ") + after, values, listed, _picked(names))


def _picked(names: Sequence[str]) -> str:
    """Return the program that keeps field $n of some, under the name of the first."""
    first, *others = map(jq_field, names)
    return f"{first} = [{', '.join([first, *others])}][$n] | del({', '.join(others)})"


def _with(scores: Sequence[_Scores]) -> str:
    return f" with its {list_names(each.name for each in scores)}" if scores else ""


def _best_alone(scores: Sequence[_Scores], picks: str, decode: str = "") -> Iterator[tuple[str, str]]:
    """Yield what keeps the best of several answers by their scores."""
    rated = ((each, best) for each in scores if (best := _best(each.values)))
    for each, ends in islice(rated, _MOST_SCORES):
        for which, function in ends:
            when = f"to train the one with the {which} {quoted(each.name)} alone"
            yield when, f"{decode}({each.listed} | map(tonumber) | index({function})) as $n | {picks}"


def go_along(values: Sequence[Any], answers: Sequence[Any]) -> bool:
    """Whether values have a number, or a yes or no, for each of the answers in a list; they may be null."""
    lists = [(each, said) for each, said in zip(values, answers, strict=True) if each is not None]
    return bool(lists) and all(
        isinstance(each, list) and isinstance(said, list) and len(each) == len(said) and _are_scores(each)
        for each, said in lists
    )


def _best(values: Sequence[Sequence[Any]]) -> Sequence[tuple[str, str]]:
    """Return which number may say that an answer is the best, each with its program; none if these are no scores.

    Those that count the answers of each row, from 1 or 0, are ranks. Where no row has more than two answers, 1 and 0
    may also be yes and no, and 1 and 2 scores: the likelier way comes first.
    """
    are_flags = any(isinstance(score, bool) for each in values for score in each)
    numbers = [[*map(as_number, each)] for each in values]
    if are_flags or not all(each and not any(map(math.isnan, each)) for each in numbers):
        return ()
    if not any(len({*each}) > 1 for each in numbers):
        return ()
    counted_from = [
        first for first in (0, 1) if all(sorted(each) == [*range(first, first + len(each))] for each in numbers)
    ]
    highest, lowest = ("highest", "max"), ("lowest", "min")
    if not counted_from:
        return (highest,)
    if max(map(len, values)) > 2:
        return (lowest,)
    return (lowest, highest) if counted_from == [1] else (highest, lowest)


def _are_scores(values: Sequence[Any]) -> bool:
    """Whether values are numbers, also as texts, or a yes or no each, or objects of such."""
    return all(
        _are_scores([*each.values()])
        if isinstance(each, dict) and each
        else isinstance(each, bool) or not math.isnan(as_number(each))
        for each in values
    )


def into_question(
    path: FilePath | None, rows: Sequence[Mapping[str, Any]], columns: Columns, left: Sequence[str]
) -> list[str]:
    """Return the step that makes fields which no column reads, such as the options of a question, part of it."""
    question, read = columns.get("instruction") or "instruction", {first_name(old) for old in columns.values() if old}
    fields = [name for name in dict.fromkeys(map(first_name, left)) if name not in read]
    fields = [name for name in fields if meant_field(name) != "output"]  # which would give the answer away
    is_whole = not columns.keys().isdisjoint({"prompt", "text"})
    if not fields or is_whole or not any(question in row for row in rows):
        return []
    names = ", ".join(map(json.dumps, fields))
    program = f'{jq_field(question)} += ([({names}) as $name | {_SAID}] | join("")) | del(.[{names}])'
    command = row_command(path, program) if path is not None else None
    belong, them = ("belongs", "it") if len(fields) == 1 else ("belong", "them")
    what = f"if {list_names(fields)} {belong} to the question, write {them} into {quoted(question)}"
    return [f"{what}: {command}" if command else what]


def in_place_of(path: FilePath, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Iterator[str]:
    """Yield the step that makes one question of two fields, of which the first is empty in some rows."""
    for one, other in permutations(names, 2):
        are_asked = [bool(row.get(one)) for row in rows]
        if not all(are_asked) and any(are_asked) and all(row.get(one) or row.get(other) for row in rows):
            given = f'{jq_field(one)} | select(. != null and . != "")'
            command = row_command(path, f"{jq_field(other)} = (({given}) // {jq_field(other)}) | del({jq_field(one)})")
            if command is not None:
                yield f"if {quoted(one)} is asked in place of {quoted(other)} where a row has it: {command}"


def programs_for_fields(
    paths: Collection[str],
    left: Collection[str],
    rows: Sequence[Mapping[str, Any]],
    columns: Columns,
    roles: Mapping[str, str],
) -> Iterator[tuple[str, str]]:
    """Yield what unread fields may be, and the programs that move them; `left` are those that no column reads."""
    yield from after_history(rows, columns, paths)
    options = set[str]()
    for names, when, program in options_into_question(rows, columns, paths):
        options.update(names)
        yield when, program
    for path in left:
        yield from () if path in options else _programs_for_key(path, rows, roles)


def _programs_for_key(
    path: str, rows: Sequence[Mapping[str, Any]], roles: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield what a key such as ``messages[].tools``, or a field, may be: a condition, and the program that moves it."""
    if (of_calls := _KEY_OF_CALLS.fullmatch(path)) is not None and meant_field(of_calls["key"]) == "reasoning":
        at = jq_path(of_calls["key"].split("."))
        whole = f'[.reasoning_content, .tool_calls[]{at[1:]}] | map(select(. != null and . != "")) | join("\\n")'
        messages = jq_path([*of_calls["list"].split("."), ITEMS])
        when = f"if `{of_calls['key']}` is the reasoning before the calls"
        moved = f".reasoning_content = ({whole}) | del(.tool_calls[]{at[1:]})"
        yield when, f"({messages} | select(any(.tool_calls[]?; {at} != null))) |= ({moved})"
    if (found := KEY_OF_MESSAGES.fullmatch(path)) is None:
        yield from _into_last_answer(path, rows, roles)
        yield from _into_first_message(path, rows)
        return
    key = found["key"]
    if "." in key and meant_field(key) not in ("reasoning", "tools"):
        return  # of an object that is about a message
    lists = [value for row in rows if isinstance(value := field_value(row, found["list"]), list)]
    having = [each for value in lists for each in value if isinstance(each, dict) and field_value(each, key)]
    values = [field_value(each, key) for each in having]
    answers = [each for value in lists for each in value if isinstance(each, dict) and is_answer(each, roles)]
    messages, at = jq_path(found["list"].split(".")), jq_path(key.split("."))
    move = f"({messages}[]? | select({at})) |= (\0 | del({at}))"
    if meant_field(key) == "tools":
        each = f'{messages}[]?{at[1:]} // empty | if type == "string" then fromjson else . end'
        yield (
            f"if `{key}` has the tools of the row",
            f'.tools = [{each} | if type == "array" then .[] else . end] | del({messages}[]?{at[1:]})',
        )
    elif having and all(isinstance(value, dict) for value in values) and all(is_answer(each, roles) for each in having):
        inner = {name for value in values for name, each in value.items() if each}
        if len(inner) == 1 and meant_field(name := inner.pop()) == "reasoning":  # LangChain's `additional_kwargs` may
            yield (
                "if it is the reasoning before the answer",
                move.replace("\0", f".reasoning_content = {jq_path([*key.split('.'), name])}"),
            )
    elif having and all(isinstance(value, str) for value in values) and all(is_answer(each, roles) for each in having):
        yield f"if `{key}` is the reasoning before the answer", move.replace("\0", f".reasoning_content = {at}")
        said = '.["value"]' if all("value" in each for each in having) else '.["content"]'
        if not any(isinstance(each.get("value", each.get("content")), list) for each in having):
            both = f'([{at}, {said}] | map(select(. != null and . != "")) | join("\\n"))'
            yield f"if `{key}` is what the answer says first", move.replace("\0", f"{said} = {both}")
    if meant_field(key) is None and 0 < len(having) < len(answers) and all(is_answer(each, roles) for each in having):
        yield masking((*found["list"].split("."), ITEMS), (key,))


def _into_last_answer(
    field: str, rows: Sequence[Mapping[str, Any]], roles: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield what a text, whose name says that it is an answer or reasoning, may be to the last message of its row."""
    at, meant = jq_field(field), meant_field(field)
    for name, said in (("messages", "content"), ("conversations", "value")):
        last = [row[name][-1] for row in rows if isinstance(row.get(name), list) and row[name]]
        are_answers = all(isinstance(each, dict) and is_answer(each, roles) and each.get(said) for each in last)
        texts = [row.get(field) or "" for row in rows]
        if len(last) < len(rows) or not are_answers or not all_texts(texts) or not any(texts):
            continue
        text = f".{name}[-1].{said}"
        if meant == "reasoning":
            reasons = f".{name}[-1].reasoning_content = {at} | del({at})"
            yield f"if `{field}` is the reasoning before the last answer", reasons
        elif meant == "output" and all_texts([each[said] for each in last]):
            yield f"if `{field}` goes on where the last answer ends", f"{text} += {at} | del({at})"
            yield f"if `{field}` is said in place of the last answer", f"{text} = ({at} // {text}) | del({at})"


def _has_answer(value: Any) -> bool:
    """Whether a value has a message of the assistant's, at any depth."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (isinstance(value, dict) and "role" in value and is_answer(value)) or any(map(_has_answer, inner))


def _into_first_message(field: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield what writes a field into the first question of a row with messages: a text, or anything else as JSON.

    Nothing if it has an answer, or is a text whose name says that it is something else, or that is JSON itself.
    """
    values = [row[field] for row in rows if row.get(field)]
    texts = [value for value in values if isinstance(value, str)]
    is_other = bool(texts) and (meant_field(field) in _NO_CONTEXT or decoded_json(texts[0]) is not None)
    if not values or is_other or any(map(_has_answer, values)):
        return
    at = jq_field(field)
    if (question := first_question(rows)) is not None:
        asked, is_there = question
        written = f'{asked} += "\\n\\n" + {json.dumps(f"{field}: ")} + ($more | strings // tojson)'
        yield (
            f"if `{field}` belongs to the question",
            f"{at} as $more | if $more and {is_there} then {written} | del({at}) else . end",
        )
