"""Two answers to one question, and what a row says about which is better: read, where it can be read without guessing.
Of three or more, one is the right one, and they are options.

The names of both differ in a last letter: `response_a` and `response_b`. A text names the better one, or has its
letter, and a `winner` may have its number; scores end as the answers do; the numbers of a few datasets have a known
sense. Any other number has none: that a `preference` is 1 may mean the first answer or the second.
"""

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, combinations, permutations
from typing import Any, NamedTuple

from packer.source.decode import Refused
from packer.source.field_names import meant_field, says_better, words_of
from packer.source.file_bytes import quoted
from packer.source.flag_values import as_flag, as_number
from packer.source.jq_commands import jq_field
from packer.source.prose import is_text
from packer.source.row import LETTERS

_SIDES = {"a": "b", "A": "B", "0": "1", "1": "2"}
"""Of names that differ in a last letter or digit, those of the first two."""

_COMPARED = {
    f"{stem}{line}{one}": f"{stem}{line}{other}"
    for stem in ("response", "answer", "completion", "output", "conversation")
    for line in ("_", "")
    for one, other in _SIDES.items()
}
"""The second of two answers, by the first."""

BEFORE_OPTION = r"(?:^|\s*[,;\n]\s*|\s+(?=\(?[A-Ha-h] ?\)))\(?[A-Ha-h] ?[).:]\s*(?=\S)"
"""Matches the letter of one of several options in a text, with what divides it from the option before."""

_BEHIND_ANSWER = " \n.)]}*:;!\"'"

_STRENGTHS = ("overall_preference", "preference_strength")
"""Numbers that are negative if the first answer is better, and 0 if neither is: HelpSteer3 and HelpSteer2."""

_ONLY_NAMES = ("winner", "better_response_id")
_NAMES = (*_ONLY_NAMES, "preference", "preferred", "better", "choice", "label")
"""Fields that may name the better answer: arenas and SafeRLHF have one of the first, which say nothing else."""

_TIES = frozenset({"tie", "both_bad", "tie (bothbad)"})
_SCORES = [(f"{score}_{one}", f"{score}_{other}") for score in ("score", "rating") for one, other in _SIDES.items()]

VERDICTS = frozenset({*_STRENGTHS, *_NAMES, *chain(*_SCORES)})
ANSWERS = frozenset(chain(*_COMPARED.items()))
"""Fields that say which answer is better, and those of the answers."""


class Sides(NamedTuple):
    """Two texts of a row, and what says which is the better one: the word in which their names differ."""

    fields: tuple[str, str]
    """Of each text the field that says so: the one that names it, or a yes or no of its own."""

    texts: tuple[str, str]
    """The fields of the texts."""

    said: tuple[list[Any], list[Any]]
    """Of each text the values of the field that name it."""


def is_verdict(name: str) -> bool:
    """Whether a field is called as one that says which of two answers is better."""
    return name in VERDICTS or says_better(name)


def named_sides(rows: Sequence[Mapping[str, Any]]) -> Sides | None:
    """Return the texts of which a field names the better one, as `left` names `response_left`."""
    columns = {name: [row[name] for row in rows if row.get(name) is not None] for name in rows[0]}
    texts = [name for name, said in columns.items() if said and all(isinstance(each, str) for each in said)]
    for field in (name for name in columns if is_verdict(name) or meant_field(name) == "output"):
        values = [*dict.fromkeys(each for each in columns[field] if type(each) in (str, int))]
        for one, other in combinations([name for name in texts if name != field], 2):
            if (differing := _differing(one, other)) is None:
                continue
            at, sides = differing
            first, second = ([each for each in values if side in words_of(str(each))] for side in sides)
            is_known = all(isinstance(each, str) or each in (*first, *second) for each in values)
            are_two = first and second and is_known and not any(each in second for each in first)
            if are_two and not _has_third(
                [name for name in texts if name not in (one, other)], words_of(one), at, values
            ):
                return Sides((field, field), (one, other), (first, second))
    return None


def flagged_sides(rows: Sequence[Mapping[str, Any]]) -> Sides | None:
    """Return the texts of which each has a yes or no, as `reply_a` has `winner_a`; both may be no, and never yes."""
    flags = [name for name in rows[0] if is_verdict(name) and all(as_flag(row.get(name)) is not None for row in rows)]
    texts = [name for name in rows[0] if all(isinstance(row.get(name), str) and is_text(row[name]) for row in rows)]
    for both in combinations(flags, 2):
        word = _differing(*both)
        said = [[*{str(row[name]): row[name] for row in rows if as_flag(row[name])}.values()] for name in both]
        are_sides = word is not None and all(said) and not any(all(as_flag(row[name]) for name in both) for row in rows)
        for one, other in permutations(texts, 2) if are_sides else ():
            differing = _differing(one, other)
            if word is None or differing is None or differing[1] != word[1]:
                continue
            others = [name for name in texts if name not in (one, other)]
            if not _has_third(others, words_of(one), differing[0], [name for name in flags if name not in both]):
                return Sides(both, (one, other), (said[0], said[1]))
    return None


def _differing(one: str, other: str) -> tuple[int, tuple[str, str]] | None:
    """Return where two names differ in a single word, and both words."""
    words, others = words_of(one), words_of(other)
    found = [k for k, pair in enumerate(zip(words, others, strict=False)) if pair[0] != pair[1]]
    return (found[0], (words[found[0]], others[found[0]])) if len(found) == 1 and len(words) == len(others) else None


def numbered_sides(rows: Sequence[Mapping[str, Any]]) -> list[Sides]:
    """Return both ways to read a number, yes or no that says which of two texts is better: nothing says its sense."""
    for *texts, last in siblings(rows[0]):
        said = [row.get(name) for row in rows for name in (*texts, last)]
        are_sides = len(texts) == 1 and meant_field(last) != "instruction"
        are_sides = are_sides and all(isinstance(text, str) and is_text(text) for text in said)
        for field in (name for name in rows[0] if are_sides and is_verdict(name.removesuffix("s"))):
            values = {str(row.get(field)): row.get(field) for row in rows}
            if {*values} in ({"0", "1"}, {"1", "2"}, {"True", "False"}):
                one, other = (values[each] for each in sorted(values, key=lambda each: each not in ("1", "True")))
                return [Sides((field, field), both, ([one], [other])) for both in ((texts[0], last), (last, texts[0]))]
    return []


def of_a_list(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield rows in which the texts of two objects in a list are fields with their numbers, and the program for them.

    Example:
        >>> [row for _, row in of_a_list([{"said": [{"text": "Yes, I do."}, {"text": "No, never."}], "choice": 1}])]
        [[{'choice': 1, 'said_0': 'Yes, I do.', 'said_1': 'No, never.'}]]
    """
    for name in rows[0]:
        pairs: list[list[Any]] = [pair if isinstance(pair := row.get(name), list) else [] for row in rows]
        is_taken = any(f"{name}_{k}" in row for row in rows for k in (0, 1))
        if is_taken or not all(len(pair) == 2 and all(isinstance(each, dict) for each in pair) for pair in pairs):
            continue
        for key in pairs[0][0]:
            texts = [f"{json.dumps(f'{name}_{k}')}: {jq_field(name)}[{k}]{jq_field(key)[1:]}" for k in (0, 1)]
            if all(isinstance(text := each.get(key), str) and is_text(text) for each in chain(*pairs)):
                others = ({other: row[other] for other in row if other != name} for row in rows)
                both = zip(others, pairs, strict=True)
                made = [row | {f"{name}_{k}": each[key] for k, each in enumerate(pair)} for row, pair in both]
                yield f". + {{{', '.join(texts)}}} | del({jq_field(name)}) | ", made


def _has_third(names: Collection[str], words: Sequence[str], at: int, values: Sequence[Any]) -> bool:
    """Whether one more text is called so, but for a letter, or for a word that says that it may be the better one."""
    for other in map(words_of, names):
        if len(other) == len(words) and all(other[k] == words[k] for k in range(len(words)) if k != at):
            is_letter = len(other[at]) == len(words[at]) == 1
            if is_letter or any(other[at] in words_of(str(value)) for value in values):
                return True
    return False


def siblings(names: Collection[str]) -> Iterator[list[str]]:
    """Yield names of a row that differ in nothing but a last letter or digit, in its order, from A, 0 or 1 on.

    Example:
        >>> [*siblings(["question", "opb", "opa", "opc", "A"])], [*siblings(["side_1", "side_2", "side_4"])]
        ([['opa', 'opb', 'opc']], [['side_1', 'side_2']])
    """
    known = frozenset(names)  # a row may have a hundred thousand fields
    for first in names:
        if first[-1:] in _SIDES and not (first[-1] == "1" and f"{first[:-1]}0" in known):
            run = [first]
            while (following := f"{first[:-1]}{chr(ord(run[-1][-1]) + 1)}") in known:
                run.append(following)
            if len(run) > 1:
                yield run


def is_one_of(answer: str, options: Sequence[Any]) -> bool:
    """Whether an answer is one of some options, or the letter or the number of one."""
    count = len(options)
    return answer in (*map(str, options), *LETTERS[:count], *map(str, range(count + 1)))


def lists_options(text: object) -> bool:
    """Whether a text is a list of options, each behind its letter: it asks, and is never an answer.

    Example:
        >>> [*map(lists_options, ["a ) 38 , b ) 27.675", "(A) Oban (B) Mull", "I met A. Smith and B. Jones"])]
        [True, True, False]
    """
    marks = re.findall(BEFORE_OPTION, text) if isinstance(text, str) and re.match(BEFORE_OPTION, text) else []
    letters = re.findall("[A-H]", "".join(marks).upper())
    return len(letters) > 1 and letters == [*LETTERS[: len(letters)]]


def names_one_of(answer: str, options: Sequence[str]) -> bool:
    """Whether an answer ends with one of some options, or with the letter of one.

    Example:
        >>> names_one_of("So it is (B).", ["Oban", "Mallaig"]), names_one_of("B. Mallaig", ["Oban", "Mallaig"])
        (True, True)
    """
    end = answer.rstrip(_BEHIND_ANSWER)
    letter = end[-1:] if not end[-2:-1].isalnum() else ""
    named = any(option and end.endswith(option.rstrip(_BEHIND_ANSWER)) for option in options)
    return named or letter in [*LETTERS[: len(options)]]


def chosen_and_rejected(row: Mapping[str, Any]) -> tuple[str, str] | Refused | None:
    """Return the fields of the better and the worse answer of a row, or why none is; None for other rows."""
    for first in _COMPARED.keys() & row.keys():
        answers = (first, _COMPARED[first])
        better = _better(row, answers) if all(row.get(name) for name in answers) else None
        if better is not None:
            return better if isinstance(better, Refused) else (answers[better], answers[1 - better])
    return None


def _better(row: Mapping[str, Any], answers: tuple[str, str]) -> int | Refused | None:
    """Return the index of the better answer, why there is none, or None if nothing says it."""
    numbers = [(name, (0, row[name])) for name in _STRENGTHS if row.get(name) is not None]
    for name in (name for name in _NAMES if row.get(name) is not None and not numbers):
        said = str(row[name]).lower()
        for index, answer in enumerate(answers):
            side = answer[-1].lower()
            known = {
                answer.lower(),
                f"model_{side}",
                *([side] if name in _ONLY_NAMES or side.isalpha() else []),
            }
            if said in known:
                return index
        if said in _TIES:
            return Refused("pair_identical", f"by `{name}`, neither answer is preferred")
        if name in _ONLY_NAMES:
            return Refused("wrong_type", f"expected the name of an answer, got {quoted(str(row[name]))} at $.{name}")
    ends = [answer[-1] for answer in answers]
    pairs = [pair for pair in _SCORES if [name[-1] for name in pair] == ends]
    numbers += [(" and ".join(pair), (row[pair[0]], row[pair[1]])) for pair in pairs if {*pair} <= row.keys()]
    for names, both in numbers:
        first, second = map(as_number, both)
        if math.isnan(first - second):
            return Refused("wrong_type", f"expected a number at $.{names}")
        return (
            Refused("pair_identical", f"by `{names}`, neither is preferred") if first == second else int(second > first)
        )
    return None
