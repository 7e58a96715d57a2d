"""Two answers to one question, and what a row says about which is better: read, where it can be read without guessing.

The names of both differ in a last letter: `response_a` and `response_b`. A text names the better one, or has its
letter; scores end as the answers do; the numbers of a few datasets have a known sense. Any other number has none: that
a `preference` is 1 may mean the first answer or the second.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

from packer.source.decode import Refused
from packer.source.file_bytes import quoted

_SIDES = {"a": "b", "A": "B", "0": "1", "1": "2"}
_ANSWERED = ("response", "answer", "completion", "output", "conversation")
_COMPARED = {
    f"{stem}{line}{one}": (f"{stem}{line}{other}", one, other)
    for stem in _ANSWERED
    for line in ("_", "")
    for one, other in _SIDES.items()
}
"""The second of two answers, and how both end, by the first."""

_STRENGTHS = ("overall_preference", "preference_strength")
"""Numbers that are negative if the first answer is better, and 0 if neither is: HelpSteer3 and HelpSteer2."""

_ONLY_NAMES = ("winner", "better_response_id")
_NAMES = (*_ONLY_NAMES, "preference", "preferred", "choice", "label")
"""Fields that may name the better answer: arenas and SafeRLHF have one of the first, which say nothing else."""

_TIES = frozenset({"tie", "both_bad", "tie (bothbad)"})
_SCORES = [(f"{score}_{one}", f"{score}_{other}") for score in ("score", "rating") for one, other in _SIDES.items()]

VERDICTS = frozenset({*_STRENGTHS, *_NAMES, *chain(*_SCORES)})
ANSWERS = frozenset({*_COMPARED, *(second for second, _, _ in _COMPARED.values())})
"""Fields that say which answer is better, and those of the answers."""


def other_side(name: str) -> str | None:
    """Return how the second of two answers is called, by the name of the first."""
    return name[:-1] + _SIDES[name[-1]] if name[-1:] in _SIDES else None


def chosen_and_rejected(row: Mapping[str, Any]) -> tuple[str, str] | Refused | None:
    """Return the fields of the better and the worse answer of a row, or why none is; None for other rows."""
    for first in _COMPARED.keys() & row.keys():
        second, *sides = _COMPARED[first]
        better = _better(row, (first, second), sides) if row[first] and row.get(second) else None
        if better is not None:
            return better if isinstance(better, Refused) else (second, first) if better else (first, second)
    return None


def _better(row: Mapping[str, Any], answers: tuple[str, str], sides: list[str]) -> int | Refused | None:
    """Return the index of the better answer, why there is none, or None if nothing says it."""
    for name in _STRENGTHS:
        if row.get(name) is not None:
            return _of_numbers(0.0, _number(row[name]), name)
    for name in (name for name in _NAMES if row.get(name) is not None):
        said = str(row[name]).lower()
        if said in _TIES:
            return _no_better(name)
        for index, (answer, side) in enumerate(zip(answers, sides, strict=True)):
            is_letter = name == "better_response_id" or not side.isdigit()
            if said in {answer.lower(), f"model_{side.lower()}", side.lower() if is_letter else answer.lower()}:
                return index
        if name in _ONLY_NAMES:
            expected = f"{' or '.join(answers)}, or its end"
            return Refused("wrong_type", f"expected {expected}, got {quoted(str(row[name]))} at $.{name}")
    for pair in _SCORES:
        if [name[-1] for name in pair] == sides and all(row.get(name) is not None for name in pair):
            return _of_numbers(_number(row[pair[0]]), _number(row[pair[1]]), " and ".join(pair))
    return None


def _of_numbers(first: float | None, second: float | None, names: str) -> int | Refused:
    if first is None or second is None:
        return Refused("wrong_type", f"expected a number at $.{names}")
    return _no_better(names) if first == second else int(second > first)


def _no_better(names: str) -> Refused:
    return Refused("pair_identical", f"by `{names}`, neither answer is preferred")


def _number(value: Any) -> float | None:
    with suppress(OverflowError, TypeError, ValueError):
        number = float(value)
        return None if isinstance(value, bool) or math.isnan(number) else number
    return None
