"""Answers to choose from, and the right one of them: in a list, in an object with a key for each letter, in a text of
which each has its letter, or in fields whose names differ in a last letter. A question without its options teaches
letters alone, so programs of jq write them into it.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from packer.questions.question_fields import list_names
from packer.source.comparisons import BEFORE_OPTION, is_one_of, lists_options, siblings
from packer.source.decode import decoded_json
from packer.source.field_names import meant_field
from packer.source.file_bytes import quoted
from packer.source.jq_commands import jq_field
from packer.source.prose import has_word, is_text
from packer.source.row import ANSWERS, LETTERS, Columns, first_name, rename

FEWEST = 3
"""Of two texts in fields that differ in a last letter, either may be the better answer."""

_LETTERED = '([$all | to_entries[] | "\\([.key + 65] | implode). \\(.value)"] | join("\\n"))'


class Options(NamedTuple):
    """What rows have to choose from."""

    names: Sequence[str]
    """The field, or the fields, with them."""

    values: Sequence[Sequence[Any]]
    """Those of each row."""

    listed: str
    """The program that lists them."""

    are_texts: bool
    """In lists, or in fields, and in no JSON: `columns` reads such a list."""


def options(rows: Sequence[Mapping[str, Any]], but: str | None) -> Iterator[Options]:
    """Yield what rows have to choose from; `but` is the name of their question. Ids are nothing to choose from."""
    names = sorted({*rows[0]} - {but})
    for name in names:
        found: list[Any] = [row.get(name) for row in rows]
        is_json = any(isinstance(each, str) for each in found)
        lists: list[Any] = [decoded_json(each) if isinstance(each, str) else each for each in found]
        at = f"({jq_field(name)} | fromjson)" if is_json else jq_field(name)
        if all(map(lists_options, found)):
            lists = [re.split(BEFORE_OPTION, each)[1:] for each in found]
            at = f'[{jq_field(name)} | splits({json.dumps(BEFORE_OPTION)}) | select(. != "")]'
        if all(map(_are_options, lists)):
            if all(lists_options("\n".join(map(str, each))) for each in lists):
                at = f'[{at}[] | sub({json.dumps(BEFORE_OPTION)}; "")]'
            yield Options([name], lists, at, all(map(all_texts, lists)) and not is_json)
        elif all(map(are_lettered, lists)):
            values = [[each[key] for key in sorted(each)] for each in lists]
            listed = f"[{at} | to_entries | sort_by(.key)[] | .value]"
            yield Options([name], values, listed, are_texts=False)
    for run in siblings(names):
        every = [[row.get(name) for name in run] for row in rows]
        values = [[each for each in said if each not in (None, "")] for said in every]
        are_first = all(said[: len(some)] == some for said, some in zip(every, values, strict=True))
        if are_first and all(map(_are_options, values)) and not (len(run) < FEWEST and _are_other(values)):
            given = "" if values == every else ' | map(select(. != null and . != ""))'
            yield Options(run, values, f"[{', '.join(map(jq_field, run))}]{given}", all(map(all_texts, values)))


def _are_options(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(type(each) in (str, int, float) for each in value)


def are_lettered(value: Any) -> bool:
    """Whether a value is an object with texts or numbers under A, B and so on."""
    are_letters = isinstance(value, dict) and sorted(map(str, value)) == [*LETTERS[: len(value)]]
    return are_letters and _are_options([*value.values()])


def all_texts(values: Iterable[Any]) -> bool:
    """Whether all values are texts."""
    return all(isinstance(each, str) for each in values)


def _are_other(values: Sequence[Sequence[Any]]) -> bool:
    """Whether two values in each row are texts, numbers or ids, of which no other value is the right one."""
    said = [str(each) for both in values for each in both]
    return any(map(is_text, said)) or (not any(map(has_word, said)) and len({*said}) == len(said))


def numbered(rows: Sequence[Mapping[str, Any]], question: str, given: Sequence[Options]) -> Iterator[tuple[str, str]]:
    """Yield what picks the answer by its number or its letter, and writes all of them into the question, a text."""
    kinds = {type(row.get(question)) for row in rows}
    answers = [[row.get(name) for row in rows] for name in rows[0] if meant_field(name) == "output"]
    pairs = (zip(values, each.values, strict=True) for values, each in product(answers, given))
    has_right_one = any(all(value in some for value, some in both) for both in pairs)
    for each in given if str in kinds <= {str, type(None)} and not has_right_one else ():
        said = {name: [row.get(name) for row in rows] for name in rows[0] if name not in each.names}
        ways = {name: [*_picks(jq_field(name), values, each)] for name, values in said.items()}
        fields = sorted(filter(ways.get, ways), key=lambda name: meant_field(name) != "output")
        if not each.are_texts:
            are_letters = {name: all(map(str.isalpha, map(str, said[name]))) for name in fields}
            fields = [name for name in fields if are_letters[name] or meant_field(name) == "output"]  # no other number
        picks = [(name, f"{what} of the right one in", picked) for name in fields[:1] for what, picked in ways[name]]
        reasons = [name for name in said if meant_field(name) == "reasoning" and all_texts(said[name])]
        picks += [(name, "the answer, and chooses from", jq_field(name)) for name in reasons if picks]
        for field, what, picked in picks:
            asked = f'.instruction = {jq_field(question)} + "\\n" + {_LETTERED}'
            read = {*each.names, field, question} - {"instruction", "output"}
            gone = ", ".join(map(jq_field, sorted(read)))
            when = f"if {quoted(field)} is {what} {list_names(each.names)}"
            yield when, f"{each.listed} as $all | {asked} | .output = ({picked}) | del({gone})"


def _picks(at: str, values: Sequence[Any], given: Options) -> Iterator[tuple[str, str]]:
    """Yield what values may be of the options of their rows, and the program that picks it."""
    if len({*map(str, values)}) == 1 < len(values):
        return
    counts = [*zip(values, map(len, given.values), strict=True)]
    if all(type(value) is int or str(value).isdecimal() for value in values):
        for first in (0, 1):
            if all(first <= int(value) < first + count for value, count in counts):
                yield f"the number, from {first},", f"$all[({at} | tonumber) - {first}] | tostring"
    elif all(str(value).upper() in [*LETTERS[:count]] for value, count in counts):
        yield "the letter", f"$all[({at} | ascii_upcase | explode[0]) - 65] | tostring"
        yield "the letter, to be trained alone,", at


def options_into_question(
    rows: Sequence[Mapping[str, Any]], columns: Columns, paths: Collection[str]
) -> Iterator[tuple[Sequence[str], str, str]]:
    """Yield fields that rows with answers choose from, and when and how a program writes them into the question."""
    fields = {*map(first_name, paths)}
    read = [rename(dict(row), columns) for row in rows]
    answers = [_answer(row) for row in read]
    if not answers or not all(answers):
        return
    for each in options(rows, None):
        both = [*zip(answers, each.values, strict=True)]
        fits = all(is_one_of(answer or "", said) for answer, said in both) and not fields.isdisjoint(each.names)
        are_other_answers = each.are_texts and any(answer in said and is_text(str(answer)) for answer, said in both)
        if fits and not are_other_answers and (into := _question_at(rows, columns)) is not None:
            gone = ", ".join(map(jq_field, each.names))
            written = f'{each.listed} as $all | {into[0]} += "\\n" + {_LETTERED} | del({gone})'
            what = f"if the question is to choose from {list_names(each.names)}"
            yield each.names, what, f"if {jq_field(each.names[0])} != null and {into[1]} then {written} else . end"


def _question_at(rows: Sequence[Mapping[str, Any]], columns: Columns) -> tuple[str, str] | None:
    """Return what a program calls the end of the question, or the first one, and whether a row has it."""
    asked, more = (columns.get(name) or name for name in ("instruction", "input"))
    if not all(isinstance(row.get(asked), str) for row in rows):
        return first_question(rows)
    if not any(row.get(more) for row in rows):
        return jq_field(asked), jq_field(asked)
    return f'(if ({jq_field(more)} // "") != "" then {jq_field(more)} else {jq_field(asked)} end)', jq_field(asked)


def first_question(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Return what a program calls the first question in messages, and whether a row has it; None for other rows."""
    keys = (("role", "content"), ("from", "value"))
    for name, (speaker, said) in product(("messages", "conversations", "conversation"), keys):
        lists = [row.get(name) for row in rows]
        turns = [turn for each in lists if isinstance(each, list) for turn in each]
        if all(lists) and turns and all(isinstance(turn, dict) and isinstance(turn.get(said), str) for turn in turns):
            is_asked = f'.{speaker} | IN("user", "human")'
            return f"(first(.{name}[] | select({is_asked})) | .{said})", f"any(.{name}[]?; {is_asked})"
    return None


def _answer(row: Mapping[str, Any]) -> str | None:
    """Return the answer of a row that has one."""
    lists = (row.get(name) for name in ("messages", "conversations"))
    last = next((each[-1] for each in lists if isinstance(each, list) and each), None)
    said = last.get("content", last.get("value")) if isinstance(last, dict) else None
    return next((each.strip() for each in (said, *map(row.get, ANSWERS)) if isinstance(each, str)), None)
