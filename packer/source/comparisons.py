"""Two answers to one question and a verdict, as arenas have them: refused, as verdicts differ in what they say.

The names of both answers differ in a last letter: `response_a` and `response_b`. A verdict names the better one, or is
a number whose sense only a data set's own page explains; a tie is no pair.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from packer.source.decode import Refused
from packer.source.unsupported_rows import CHOSEN_FIELDS, REJECTED_FIELDS

_PAGE = "docs/how-to/preference.md#two-answers-and-a-verdict"

_SIDES = {"a": "b", "A": "B", "0": "1", "1": "2"}
"""Of names that differ in a last letter or digit, those of the first two."""

_COMPARED = {
    f"{stem}{line}{one}": f"{stem}{line}{other}"
    for stem in ("response", "answer", "completion", "output", "conversation")
    for line in ("_", "")
    for one, other in _SIDES.items()
}
"""The second of two answers, by the first."""

_ONLY_VERDICTS = ("overall_preference", "preference_strength", "winner", "better_response_id")
"""Fields of HelpSteer3, HelpSteer2, arenas and SafeRLHF that say nothing else."""

_NAMES = ("preference", "preferred", "better", "choice", "label")
"""Fields that may name the better answer."""

_TIES = frozenset({"tie", "both_bad", "tie (bothbad)"})
_SCORES = [(f"{score}_{one}", f"{score}_{other}") for score in ("score", "rating") for one, other in _SIDES.items()]

VERDICTS = frozenset({*_ONLY_VERDICTS, *_NAMES, *chain(*_SCORES)})
ANSWERS = frozenset(chain(*_COMPARED.items()))
"""Fields that say which answer is better, and those of the answers."""


def compared_answers(row: Mapping[str, Any]) -> Refused | None:
    """Return why a row with two answers and a verdict is refused; None for other rows, and for pairs."""
    if all(any(map(row.get, side)) for side in (CHOSEN_FIELDS, REJECTED_FIELDS)):
        return None
    for one, other in _COMPARED.items():
        if row.get(one) and row.get(other) and (verdict := _verdict(row, one, other)) is not None:
            said = f"of two answers, `{one}` and `{other}`, `{verdict}` says which is better"
            return Refused("wrong_type", f"{said}; write them as `chosen` and `rejected`: {_PAGE}")
    return None


def _verdict(row: Mapping[str, Any], one: str, other: str) -> str | None:
    """Return the field of a row that says which of two answers is better."""
    sides = one[-1].lower(), other[-1].lower()
    words = {*filter(str.isalpha, sides), *_TIES, *map("model_{}".format, sides), one.lower(), other.lower()}
    told = (name for name in _ONLY_VERDICTS if row.get(name) is not None)
    named = (name for name in _NAMES if str(row.get(name)).lower() in words)
    scored = (first for first, second in _SCORES if first[-1] == one[-1] and {first, second} <= row.keys())
    return next(chain(told, named, scored), None)
