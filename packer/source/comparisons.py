"""Two answers to one question, and what a row says about which is better: read, where it can be read without guessing.

The names of both differ in a last letter: `response_a` and `response_b`. A text names the better one, or has its
letter, and a `winner` may have its number; scores end as the answers do; the numbers of a few datasets have a known
sense. Any other number has none: that a `preference` is 1 may mean the first answer or the second.
"""

import math
from collections.abc import Mapping
from itertools import chain
from typing import Any

from packer.source.decode import Refused, as_number
from packer.source.file_bytes import quoted

_SIDES = {"a": "b", "A": "B", "0": "1", "1": "2"}
"""Of names that differ in a last letter or digit, those of the first two."""

_COMPARED = {
    f"{stem}{line}{one}": f"{stem}{line}{other}"
    for stem in ("response", "answer", "completion", "output", "conversation")
    for line in ("_", "")
    for one, other in _SIDES.items()
}
"""The second of two answers, by the first."""

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


def chosen_and_rejected(row: Mapping[str, Any]) -> tuple[str, str] | Refused | None:
    """Return the fields of the better and the worse answer of a row, or why none is; None for other rows."""
    for first in (name for name in _COMPARED if name in row):  # in an order that no hash decides
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
            is_named = said == side and (name in _ONLY_NAMES or side.isalpha())
            if is_named or said in (answer.lower(), f"model_{side}"):
                return index
        if said in _TIES:
            return Refused("pair_identical", f"by `{name}`, neither answer is preferred")
        if name in _ONLY_NAMES:
            known = " or ".join((*(answer[-1] for answer in answers), *answers))
            return Refused("wrong_type", f"expected {known}, got {quoted(str(row[name]))} at $.{name}")
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
