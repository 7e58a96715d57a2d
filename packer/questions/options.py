"""Answers to choose from, and whether an answer is one of them, or the letter or the number of one."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from packer.source.row import LETTERS

FEWEST = 3
"""Of two texts in fields that differ in a last letter, either may be the better answer."""

_FIRST = "aA01"

_BEHIND_ANSWER = " \n.)]}*:;!\"'"


def siblings(names: Collection[str]) -> Iterator[list[str]]:
    """Yield names of a row that differ in nothing but a last letter or digit, in its order, from A, 0 or 1 on.

    Example:
        >>> [*siblings(["question", "opb", "opa", "opc", "A"])], [*siblings(["side_1", "side_2", "side_4"])]
        ([['opa', 'opb', 'opc']], [['side_1', 'side_2']])
    """
    known = frozenset(names)  # a row may have a hundred thousand fields
    for first in names:
        if first[-1:] and first[-1] in _FIRST and not (first[-1] == "1" and f"{first[:-1]}0" in known):
            run = [first]
            while (following := f"{first[:-1]}{chr(ord(run[-1][-1]) + 1)}") in known:
                run.append(following)
            if len(run) > 1:
                yield run


def is_one_of(answer: str, options: Sequence[Any]) -> bool:
    """Whether an answer is one of some options, or the letter or the number of one."""
    count = len(options)
    return answer in (*map(str, options), *LETTERS[:count], *map(str, range(count + 1)))


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


def are_lettered(value: Mapping[str, Any]) -> bool:
    """Whether an object has texts or numbers under A, B and so on."""
    are_letters = len(value) > 1 and sorted(map(str, value)) == [*LETTERS[: len(value)]]
    return are_letters and all(type(each) in (str, int, float) for each in value.values())
