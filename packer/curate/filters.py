"""Conditions on fields and texts of rows, tested by `pyarrow.compute`.

Regular expressions are RE2's: their time is linear in the text, whatever the pattern.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from packer.arrow_arrays import numbers_of
from packer.batches import Bool, Sample
from packer.curate.texts import answers, conversation, prompts, sides
from packer.errors import RecipeError
from packer.recipe.row_rules import MEASURES, Condition, Filter, Range, Scalar

_TEXTS: dict[str, Callable[[Sample], list[str]]] = {
    "answers": answers,
    "prompts": prompts,
    "conversation": lambda sample: [conversation(sample)],
}


class ConditionTester:
    """Tests rows for one condition: on a field, or on texts or messages."""

    def __init__(self, condition: Condition, name: str, field: str | None) -> None:
        self.field = field
        self._condition = condition
        self._among, self._not_among = (
            None if values is None else {_typed(value) for value in values}
            for values in (condition.one_of, condition.none_of)
        )
        for pattern in (condition.matches, condition.not_matches):
            if pattern is not None:
                _refuse_pattern(pattern, name)

    def of_values(self, values: Sequence[Any]) -> Bool:
        """Return which values of the field pass; a missing one does not.  # bool[R]"""
        condition, passed = self._condition, np.array([value is not None for value in values], np.bool_)
        if condition.min is not None or condition.max is not None:
            passed &= _within(np.array([_number(value) for value in values], np.float64), condition)
        if self._among is not None:
            passed &= np.array([_typed(value) in self._among for value in values], np.bool_)
        if self._not_among is not None:
            passed &= np.array([_typed(value) not in self._not_among for value in values], np.bool_)
        if condition.matches is not None or condition.not_matches is not None:
            passed &= self._matching([value if isinstance(value, str) else None for value in values])
        return passed

    def of_samples(self, samples: Sequence[Sample]) -> Bool:
        """Return which rows pass: all texts, or the number of messages, meet the condition.  # bool[S]

        A pair passes if both of its sides do.
        """
        each = [sides(sample) for sample in samples]
        return _all_of(each, self._of_sides(list(chain(*each))))

    def _of_sides(self, samples: Sequence[Sample]) -> Bool:
        rule = self._condition
        assert isinstance(rule, Filter), "conditions of a source are about fields"
        if rule.of is None:
            return _within(np.array([len(side.messages) for side in samples], np.float64), rule.messages or Range())
        texts = [_TEXTS[rule.of](side) for side in samples]
        flat = list(chain(*texts))
        passed = self._matching(flat)
        for key, measure in MEASURES.items():
            limits = getattr(rule, key)
            if limits is not None:
                passed &= _within(np.array([measure(text) for text in flat], np.float64), limits)
        return _all_of(texts, passed)

    def _matching(self, texts: Sequence[str | None]) -> Bool:
        """Return which texts satisfy the patterns; None does not."""
        import pyarrow.compute as pc  # noqa: PLC0415 - takes 0.05 s, which builds without rules save

        column = pa.array(texts, pa.large_string())
        passed = np.array([text is not None for text in texts], np.bool_)
        for pattern, wanted in ((self._condition.matches, True), (self._condition.not_matches, False)):
            if pattern is not None:
                found = pc.fill_null(pc.match_substring_regex(column, pattern), not wanted)
                passed &= (numbers_of(pc.cast(found, pa.uint8())) == 1) == wanted
        return passed


def _all_of(items: Sequence[Sequence[Any]], passed: Bool) -> Bool:
    """Return which rows have no failing item; `passed` covers the items of all rows.  # bool[R]"""
    row = np.repeat(np.arange(len(items)), np.array([len(each) for each in items], np.int64))
    all_passed: Bool = np.bincount(row[~passed], minlength=len(items)) == 0
    return all_passed


def _refuse_pattern(pattern: str, name: str) -> None:
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise RecipeError(
            f"filter '{name}': '{pattern}' is not a valid RE2 regular expression: {error}",
            hint="RE2 has no look-around and no back references, because they do not run in linear time",
        ) from None


def _within(numbers: np.typing.NDArray[np.float64], limits: Condition | Range) -> Bool:
    """Return which numbers lie within the limits; NaN does not."""
    passed = ~np.isnan(numbers)
    if limits.min is not None:
        passed &= numbers >= limits.min
    if limits.max is not None:
        passed &= numbers <= limits.max
    return passed


def _number(value: Any) -> float:
    """Return a number, or parse a text that is one, as CSV has only texts; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return np.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return np.nan


def _typed(value: Scalar | Any) -> tuple[str, Any]:
    """Return a key by which only values of one type are equal: true is not 1, but 1 and 1.0 are one JSON number."""
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int | float):
        return "number", value
    return ("text", value) if isinstance(value, str) else ("other", None)
