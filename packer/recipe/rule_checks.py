"""Checks of the rules that choose rows, and the times of split rules."""

import datetime as dt

from packer.errors import RecipeError
from packer.recipe.row_rules import MEASURES, WHERE, Cutoffs, Deduplicate, Filter, Range, RowRules, Shares, Split

MAX_CONDITIONS = 60
"""Most rules with a condition that may apply to one source; each uses one bit of a column."""

_KEYS = "docs/how-to/choose-rows.md shows every rule"

_SUBJECTS = ("field", "of", "messages", "tokens")
"""Keys that say what a filter is about; a filter has exactly one of them."""


def check_rules(rules: RowRules, where: str) -> None:
    """Refuse rules that contradict each other or have no effect."""
    names = [each.name for each in rules.filters]
    for i, each in enumerate(rules.filters):
        _check_filter(each, f"{where}: filters[{i}] '{each.name}'")
        if each.name == WHERE or each.name in names[:i]:
            raise RecipeError(f"{where}: filters[{i}]: the name '{each.name}' is taken", hint="give it another name")
    for source, conditions in enumerate(rules.where):
        for field, condition in conditions.items():
            place = f"{where}: sources[{source}].where.{field}"
            if not field or not condition.is_set:
                raise RecipeError(f"{place}: no condition", hint="min, max, in, not_in, matches or not_matches")
            _check_range(condition.min, condition.max, place)
        if len(conditions) + len(rules.filters) > MAX_CONDITIONS:
            raise RecipeError(f"{where}: more than {MAX_CONDITIONS} filters and conditions of one source", hint=_KEYS)
    if rules.deduplicate is not None and rules.deduplicate == Deduplicate():
        raise RecipeError(f"{where}: deduplicate: is empty", hint="--set deduplicate.exact=bytes")
    if rules.decontaminate is not None and not rules.decontaminate.against:
        raise RecipeError(f"{where}: decontaminate.against: names no file", hint="against: [{path: benchmark.jsonl}]")
    if rules.split is not None:
        _check_split(rules.split, f"{where}: split")


def _check_filter(each: Filter, place: str) -> None:
    about = [name for name in _SUBJECTS if getattr(each, name) is not None]
    if len(about) != 1:
        found = " and ".join(about) or "none"
        raise RecipeError(f"{place}: expected one of field, of, messages and tokens, found {found}", hint=_KEYS)
    measured = {key: given for key in MEASURES if (given := getattr(each, key)) is not None}
    if measured and each.of is None:
        raise RecipeError(
            f"{place}: {next(iter(measured))} is of texts", hint="of: answers, prompts or conversation names them"
        )
    if each.of is not None and any(value is not None for value in (each.min, each.max, each.one_of, each.none_of)):
        raise RecipeError(f"{place}: min, max, in and not_in are for fields", hint="chars: {min: 2} counts characters")
    if each.is_set and about[0] in {"messages", "tokens"}:
        raise RecipeError(f"{place}: {about[0]} has min and max of its own", hint=f"{about[0]}: {{min: 1, max: 100}}")
    ranges = [given for given in (*measured.values(), each.messages, each.tokens) if given is not None]
    if not each.is_set and all(given == Range() for given in ranges):
        raise RecipeError(f"{place}: no condition", hint=_KEYS)
    for given in ranges:
        _check_range(given.min, given.max, place)
    _check_range(each.min, each.max, place)


def _check_range(least: float | None, most: float | None, place: str) -> None:
    if least is not None and most is not None and least > most:
        raise RecipeError(f"{place}: min {least:g} is more than max {most:g}", hint="no row would pass")


def _check_split(split: Split, place: str) -> None:
    shares, cutoffs = split.shares, split.cutoffs
    if shares.validation + shares.test >= 1:
        raise RecipeError(
            f"{place}.shares: validation {shares.validation:g} and test {shares.test:g} leave nothing to train on",
            hint="for example shares: {validation: 0.02, test: 0.01}",
        )
    if split.time is None:
        if cutoffs != Cutoffs():
            raise RecipeError(f"{place}.cutoffs: no field with the times is set", hint="split.time names it")
        if shares == Shares() and split.leakage is None:
            raise RecipeError(f"{place}: nothing is held out", hint="--set split.shares.validation=0.02")
        return
    if shares != Shares():
        raise RecipeError(f"{place}: shares and time are two ways to split", hint="leave one of them out")
    if cutoffs == Cutoffs():
        raise RecipeError(f"{place}: no cutoff", hint="--set split.cutoffs.validation=2026-01-01")
    times = [
        time_of(text, f"{place}.cutoffs.{name}")
        for name, text in (("validation", cutoffs.validation), ("test", cutoffs.test))
        if text is not None
    ]
    if sorted(set(times)) != times:
        raise RecipeError(f"{place}.cutoffs: test does not begin after validation", hint="train < validation < test")


def time_of(text: str, place: str = "split.cutoffs") -> int:
    """Return a cutoff as microseconds since 1970 in UTC."""
    try:
        return microseconds(text)
    except ValueError as error:
        raise RecipeError(f"{place}: {error}", hint="an ISO date or time such as 2026-01-01T00:00:00Z") from None


def microseconds(text: str) -> int:
    """Return an ISO time as microseconds since 1970 in UTC; a time that names no zone is in UTC.

    Raises:
        ValueError: the text is no ISO time.
    """
    time = dt.datetime.fromisoformat(text)
    return (time.replace(tzinfo=time.tzinfo or dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(
        microseconds=1
    )
