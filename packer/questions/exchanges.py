"""Recognizes conversations without speakers: texts in turn, and questions with their answers, one after the other.

An exchange is a pair of texts, in a list or in an object with two keys of text, or it is in two lists. Names may say
which text answers the other one; where they do not, the step has its condition.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Any

from packer.questions.conversations import dialogue, step
from packer.questions.question_fields import are_labels
from packer.questions.read_places import places
from packer.source.decode import decoded_json
from packer.source.field_names import meant_field
from packer.source.file_bytes import FilePath, quoted
from packer.source.jq_commands import jq_field, jq_path, row_command
from packer.source.prose import has_word, is_text
from packer.source.roles import ROLES, SPEAKERS, ends_in_question, side_of
from packer.source.row import ID_FIELDS, Columns, field_value, first_name

_SIDES = {"instruction": "user", "output": "assistant"}
"""Who says what a name means."""

_IN_TURN = 'to_entries[] | {role: (if .key % 2 == 0 then "user" else "assistant" end), content: (.value | values)}'

IN_PAIRS = '{role: "user", content: .[0]}, {role: "assistant", content: .[1]}'
"""Program for a list of a question and its answer."""


def turns_hint(path: FilePath, rows: Sequence[Mapping[str, Any]], field: str | None = None) -> str | None:
    """Return the step for a list of texts, or of pairs of them, that may be a dialogue; None if there is none.

    A pair may also be an object with two texts.
    """
    if (rounds := _rounds_hint(path, rows, field, are_named=False)) is not None:
        return rounds
    for name in dict.fromkeys(chain(*rows)) if field is None else (field,):
        at, lists = jq_field(name), [row[name] for row in rows if row.get(name)]
        items = [item for each in lists if isinstance(each, list) and len(each) > 1 for item in each]
        are_pairs = all(isinstance(item, list) and len(item) == 2 and isinstance(item[1], str) for item in items)
        if not items or not (are_pairs or all(isinstance(item, str) for item in items)):
            continue
        what, said = f"if the texts in `{name}` are a user's and the assistant's in turn", f"{at} | {_IN_TURN}"
        if are_pairs:
            what, said = f"if the pairs in `{name}` are questions and answers", f"[{at}[][]] | {_IN_TURN}"
        if are_pairs and all(str(one).lower() in ROLES for one, _ in items):
            what, said = f"the messages in `{name}` are pairs", f"{at}[] | {{role: .[0], content: .[1]}}"
        return _step(path, what, said, [at])
    return None


def exchanges_hint(path: FilePath, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the step for questions and their answers, as their names say, in two lists or in the objects of one.

    None if there are none.
    """
    if (rounds := _rounds_hint(path, rows, None, are_named=True)) is not None:
        return rounds
    given = {place: [field_value(row, place) for row in rows] for place in map(".".join, places(rows))}
    found = {place: [decoded_json(each) if isinstance(each, str) else each for each in given[place]] for place in given}
    lists = {place: each for place, each in found.items() if _are(list, each) and _are(str, [*chain(*each)])}
    in_texts = {place for place in lists if lists[place] != given[place]}
    asking = [place for place in lists if meant_field(place) == "instruction"]
    answering = [place for place in lists if "output" in (meant_field(place), meant_field(first_name(place)))]
    for asked, said in product(asking, answering):
        if asked != said and [*map(len, lists[asked])] == [*map(len, lists[said])]:
            one, other = (jq_path(place.split(".")) for place in (asked, said))
            decoded = "" if in_texts.isdisjoint((asked, said)) else " | map(strings |= fromjson)"
            turns = f"[{one}, {other}]{decoded} | transpose[] | {IN_PAIRS}"
            what = f"if the texts in `{said}` answer those in `{asked}`, one after the other"
            return _step(path, what, turns, [one, other])
    return None


def history_hint(path: FilePath, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the step for messages in a list before a question and its answer; None if there are none."""
    found = next(chain(after_history(rows, {}), _after_texts(rows)), None)
    return None if found is None else step(found[0], row_command(path, found[1]))


def after_history(
    rows: Sequence[Mapping[str, Any]], columns: Columns, paths: Collection[str] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield what makes a conversation of messages in a list, which some paths lead to, and of an exchange after them.

    The question of the row has the name that the texts of the messages have, or one that says so.
    """
    fields = None if paths is None else {*map(first_name, paths)}
    texts = [name for name in _keys_of_text(rows) if all(row.get(name) for row in rows)]
    sides = {name: side for name in texts if (side := _meant_side(name)) is not None}
    sides |= {str(columns[new]): side for new, side in _SIDES.items() if columns.get(new) in texts}
    for place in places(rows):
        lists = [field_value(row, name := ".".join(place)) or [] for row in rows]
        is_asked = (fields is None or place[0] in fields) and all(isinstance(each, list) for each in lists)
        found = dialogue(lists, are_own=True) if is_asked else None
        if found is None or any(map(ends_in_question, lists)):
            continue
        said_in = {key: text for each in lists for message in each for key, text in message.items()}
        asked = [each for each in texts if sides.get(each) == "user" or each in said_in]
        said = [each for each in texts if sides.get(each) == "assistant"] or [each for each in texts if each == "text"]
        both = (*asked, *said)
        told = json.dumps(lists)
        if len(asked) == len(said) == 1 and not any(json.dumps(row[each]) in told for row in rows for each in both):
            last = f"{_says('user', jq_field(asked[0]))}, {_says('assistant', jq_field(said[0]))}"
            gone = ", ".join([jq_path(place), *map(jq_field, both)])
            what = f"if the messages in {quoted(name)} come before {quoted(asked[0])}, which {quoted(said[0])} answers"
            yield what, f"{{messages: [({jq_path(place)}[]? | {found[0]}), {last}]}} + del({gone})"


def _after_texts(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield what makes a conversation of texts in a list, of which the user's is the last, and of their answer.

    Their number is odd and differs. The answer is a text that is called so, or the last of a list of candidates, whose
    number is the same in all rows. Both may be in a list of objects, of which the last has all that was said.
    """
    for name in (None, *rows[0]):
        lists: list[Any] = [[*rows]] if name is None else [row.get(name) for row in rows]
        objects = [item for each in lists for item in each] if all(_are(dict, each) for each in lists) else []
        said: dict[str, list[Any]] = {key: [each.get(key) for each in objects] for key in (objects or [{}])[0]}
        counts = {key: {*map(len, every)} for key, every in said.items() if all(_are(str, each) for each in every)}
        odd = [key for key, found in counts.items() if len(found) > 1 and all(count % 2 for count in found)]
        asked = [key for key in odd if any(map(is_text, chain(*said[key])))]
        sides = {_meant_side(key): key for key, every in said.items() if _are(str, every)}
        listed = [key for key, found in counts.items() if len(found) == 1 and "assistant" not in sides]
        answer = sides.get("assistant") or max(listed, key=lambda key: len(said[key][0]), default=None)
        if len(asked) != 1 or answer is None or "user" in sides:
            continue
        which, end = ("the last of ", "[-1]") if listed else ("", "")
        talk, reply = jq_field(asked[0]), jq_field(answer)
        last, gone = ("", f"{talk}, {reply}") if name is None else (f"{jq_field(name)}[-1] | ", jq_field(name))
        what = f"if the texts in {quoted(asked[0])} are a user's and the assistant's in turn, and {which}"
        turns = f"{last}{talk} + [{reply}{end}] | {_IN_TURN}"
        yield f"{what}{quoted(answer)} answers them", f"{{messages: [{turns}]}} + del({gone})"


def _are(kind: type, values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(each, kind) for each in values)


def _rounds_hint(
    path: FilePath, rows: Sequence[Mapping[str, Any]], field: str | None, *, are_named: bool
) -> str | None:
    """Return the step for a list of objects that all have the same two keys of text; None if there is none.

    With `are_named`, their names have to say who speaks. A question and an answer of the row itself come last.
    """
    own = _keys_of_text(rows)
    last = _pair(own, _meant_side)
    if last is None and "user" in map(_meant_side, own):
        return None  # of which the objects may be answers
    for place in places(rows) if field is None else ((field,),):
        name = ".".join(place)
        values = [field_value(row, name) for row in rows]
        lists = [decoded_json(each) if isinstance(each, str) else each for each in values]
        items = [item for each in lists if isinstance(each, list) for item in each]
        said_in = _with_inner(items)
        keys = sorted(_keys_of_text(said_in), key=lambda key: _meant_side(key) == "assistant")
        sides = (_meant_side, _own_side, lambda key: _meant_side(key) or _own_side(key))
        named = next(filter(None, (_pair(keys, side) for side in sides)), None)
        if named is None and (are_named or not _may_be_exchanges(keys, said_in)):
            continue
        pairs = [named] if named else [(key, keys[-1]) for key in sorted(keys[:-1], key=lambda key: key.count("."))]
        decoded = " | fromjson" if any(isinstance(each, str) for each in values) else ""
        steps = []
        for asked, said in pairs:
            at, question, answer = jq_path(place), _at(asked, items), _at(said, items)
            more = f"del({question}) | {_where(answer)} | {_says('assistant', answer)} + del({answer})"
            turns = f"{at}{decoded} | .[]? | ({_where(question)} | {_says('user', question)}), ({more})"
            what, gone = f"if the objects in {quoted(name)} are questions and answers, one after the other", [at]
            if named is None:
                what += f", and {quoted(said)} answers {quoted(asked)}"
            if last is not None:
                what += f", before {quoted(last[0])} and {quoted(last[1])}"
                gone += map(jq_field, last)
                turns = f"({turns}), {_says('user', gone[1])}, {_says('assistant', gone[2])}"
            steps.append(_step(path, what, turns, gone))
        return "; ".join(steps)
    return None


def _may_be_exchanges(keys: Sequence[str], objects: Sequence[Any]) -> bool:
    """Whether one of two texts, or the only one of several that is called so, may answer another one.

    Steps of a thought and an observation are none, nor is a message beside its name or the reason why it ended.
    """
    are_other = any(meant_field(key) and not _meant_side(key) for key in keys)
    are_prose = all(any(is_text(each.get(key) or "") for each in objects) for key in keys)
    is_inner = any("." in key for key in keys) and [*map(_meant_side, keys)].count("assistant") == 1
    is_said = len(keys) == 2 or (len(keys) > 2 and is_inner)
    return is_said and are_prose and not are_other and SPEAKERS.isdisjoint(chain(*objects))


def _step(path: FilePath, what: str, turns: str, gone: Sequence[str]) -> str:
    return step(what, row_command(path, f"{{messages: [{turns}]}} + del({', '.join(gone)})"))


def _with_inner(items: Sequence[Any]) -> list[Any]:
    """Return objects with the texts in their objects, and in lists of objects with one text each, by their paths.

    These are texts that differ, such as `message.text`: others say what an object is.
    """
    found = [dict(_inner(item)) if isinstance(item, dict) else {} for item in items]
    texts = {key: [each[key] for each in found if key in each] for key in chain(*found)}
    told = {key: [text for text in every if text is not None] for key, every in texts.items()}
    told = {key: every for key, every in told.items() if 10 * len(every) >= 9 * len(texts[key]) and len({*every}) > 1}
    said = {key for key, every in told.items() if 2 * sum(map(is_text, every)) >= len(every)}
    both = zip(items, found, strict=True)
    return [item | {key: each[key] for key in each if key in said} if each else item for item, each in both]


def _inner(item: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str | None]]:
    """Yield the texts within an object by their paths, and None for those in a list whose objects have others, too."""
    for name, value in item.items():
        key = f"{before}{name}"
        if isinstance(value, dict):
            yield from _inner(value, f"{key}.")
        elif isinstance(value, str) and before:
            yield key, value
        elif _are(dict, value):
            texts = [[inner for inner in each if isinstance(each[inner], str)] for each in value]
            are_plain = all(len(each) == 1 for each in texts) and len({*chain(*texts)}) == 1
            for inner in dict.fromkeys(chain(*texts)):
                yield f"{key}[].{inner}", "".join(each[inner] for each in value) if are_plain else None


def _keys_of_text(objects: Sequence[Any]) -> list[str]:
    """Return the keys under which all objects have a text, or null, and some have words."""
    keys = dict.fromkeys(chain(*objects)) if _are(dict, [*objects]) else {}
    texts = {key: [each[key] for each in objects if each.get(key) is not None] for key in keys if key not in ID_FIELDS}
    return [
        key
        for key, every in texts.items()
        if _are(str, every)
        and any(has_word(text) and decoded_json(text) is None for text in every)
        and not are_labels([text for text in every if text])
    ]


def _meant_side(name: str) -> str | None:
    return "user" if name == "input" else _SIDES.get(meant_field(name) or "")


def _pair(names: Sequence[str], side: Callable[[str], str | None]) -> tuple[str, str] | None:
    """Return the one of some names that is the user's, and the one that is the assistant's."""
    asked, said = ([name for name in names if side(name) == role] for role in ("user", "assistant"))
    return (asked[0], said[0]) if len(asked) == len(said) == 1 else None


def _own_side(name: str) -> str | None:
    return None if "." in name else side_of(name)


def _at(key: str, objects: Sequence[Any]) -> str:
    """Return what a program calls the text of an object, or the texts of a list in it."""
    is_own = "." not in key or any(key in each for each in objects if isinstance(each, dict))
    return jq_field(key) if is_own else jq_path(key.replace("[]", ".[]").split("."))


def _where(at: str) -> str:
    return f"select(any({at}; .))" if "[]" in at else f"select({at})"


def _says(role: str, at: str) -> str:
    """Return the program for a message; in a list, what has other texts, too, is left for a build to refuse."""
    listed, is_list, inner = at.rpartition("[]?")
    part = f'if [.[]? | strings] | length == 1 then {{type: "text", text: .{inner}}} else . end'
    return f'{{role: "{role}", content: {f"[{listed}[]? | {part}]" if is_list else at}}}'
