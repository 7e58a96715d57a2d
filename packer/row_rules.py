"""Rules that choose rows: which are trained on, and which split each belongs to.

All rules are off by default. They depend only on properties of rows and documents that a build stores, so changing a
rule never tokenizes anything again; see :mod:`packer.curate`.
"""

import datetime as dt
import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from packer.errors import RecipeError
from packer.names import RuleName

Count = Annotated[int, Meta(ge=0, le=2**62)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Scalar = str | int | float | bool
Values = Annotated[tuple[Scalar, ...], Meta(min_length=1)]

WHERE = "where"
"""Rule name used for the conditions in a source's `where`."""

MAX_CONDITIONS = 60
"""Most rules with a condition that may apply to one source; each uses one bit of a column."""

MAX_NGRAM = 64

_KEYS = "docs/how-to/choose-rows.md shows every rule"


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all rules: unknown keys are refused, and a manifest stores only what differs from the defaults."""


class Range(Rule, frozen=True, kw_only=True):
    """A number has at least `min` and at most `max`."""

    min: Count | None = None
    max: Count | None = None


class Condition(Rule, frozen=True, kw_only=True):
    """Conditions on a value, all of which must be met. A row without the value does not pass."""

    min: float | None = None
    max: float | None = None
    one_of: Values | None = msgspec.field(default=None, name="in")
    none_of: Values | None = msgspec.field(default=None, name="not_in")
    matches: str | None = None
    """A regular expression (RE2) to search for in the text."""

    not_matches: str | None = None

    @property
    def is_set(self) -> bool:
        """Whether any condition is set."""
        given = (self.min, self.max, self.one_of, self.none_of, self.matches, self.not_matches)
        return any(value is not None for value in given)


class Filter(Condition, frozen=True, kw_only=True):
    """A rule about a field of the row, its texts, or its tokens. Rows that fail it are dropped."""

    name: RuleName
    field: str | None = None
    """Name of a field of the input row; dots reach into nested objects."""

    of: Literal["answers", "prompts", "conversation"] | None = None
    """Which texts to check: each assistant message, each user message, or the whole conversation as one text."""

    chars: Range | None = None
    """Number of characters of each text."""

    language: Annotated[tuple[str, ...], Meta(min_length=1)] | None = None
    """Languages (ISO 639) that the texts, taken together, may be in. Texts with too few letters to tell pass."""

    messages: Range | None = None
    """Number of messages in the row."""

    tokens: Range | None = None
    """Length of the row's longest document, in tokens."""


_SUBJECTS = ("field", "of", "messages", "tokens")
"""Keys that say what a filter is about; a filter has exactly one of them."""

_OF_TEXTS = tuple(
    key for key in Filter.__struct_fields__ if key not in ("name", *_SUBJECTS, *Condition.__struct_fields__)
)
"""Keys of a filter that apply only to texts."""


class Take(Rule, frozen=True, kw_only=True):
    """Limit on the number of rows from a source, applied after every other rule."""

    rows: Annotated[int, Meta(ge=1, le=2**62)]
    order: Literal["hash", "first"] = "hash"
    """``hash``: pick rows by a hash of their content. The choice does not depend on row order, and a larger number
    keeps the rows that a smaller one picked. ``first``: pick rows in the order of the source."""


class BenchmarkColumns(Rule, frozen=True, kw_only=True):
    """Names of the fields in a benchmark's rows."""

    question: str | None = None
    """By default the first field present of question, prompt, problem, …"""


class Benchmark(Rule, frozen=True, kw_only=True):
    """A file of benchmark questions."""

    path: str
    name: RuleName | None = None
    """Defaults to the file's name without its extension."""

    columns: BenchmarkColumns = BenchmarkColumns()

    sha256: str | None = None
    """Filled in by the build. If it is set beforehand, the file must match it."""

    questions: Count | None = None
    """Number of questions; filled in by the build."""


class Decontaminate(Rule, frozen=True, kw_only=True):
    """Drop rows that contain questions of benchmarks."""

    against: tuple[Benchmark, ...] = ()
    ngram: Annotated[int, Meta(ge=1, le=MAX_NGRAM)] = 8
    """Length of the n-grams to compare, in words. A shorter question is compared as a whole with whole messages."""

    cover: Annotated[float, Meta(gt=0, le=1)] = 0.5
    """Fraction of a question's n-grams that a row must contain to count as contaminated."""

    common: Annotated[int, Meta(ge=2, le=2**62)] = 5
    """Ignore n-grams that occur in at least this many questions of a benchmark."""


class Near(Rule, frozen=True, kw_only=True):
    """Drop rows that are nearly identical to an earlier row."""

    jaccard: Annotated[float, Meta(gt=0, le=1)] = 0.8
    """Jaccard similarity of the two rows' shingles from which on they count as near duplicates."""

    ngram: Annotated[int, Meta(ge=1, le=MAX_NGRAM)] = 3
    """Length of a shingle, in words."""

    of: Literal["conversation", "prompt"] = "conversation"


class Deduplicate(Rule, frozen=True, kw_only=True):
    """Drop rows that repeat an earlier row."""

    exact: Literal["bytes", "normalized"] | None = None
    """``bytes``: messages, tools, training marks and texts are identical. ``normalized``: identical except for white
    space and the case of ASCII letters."""

    near: Near | None = None


class Shares(Rule, frozen=True, kw_only=True):
    """Fractions of the rows, or of the groups, to hold out."""

    validation: Share = 0
    test: Share = 0


class Cutoffs(Rule, frozen=True, kw_only=True):
    """Times from which on rows are held out, as ISO dates or times: train < validation ≤ … < test ≤ …."""

    validation: str | None = None
    test: str | None = None


class Leakage(Rule, frozen=True, kw_only=True):
    """Drop rows of ``train`` that are near duplicates of a held-out row."""

    near: Annotated[float, Meta(gt=0, le=1)] = 0.8
    ngram: Annotated[int, Meta(ge=1, le=MAX_NGRAM)] = 3
    of: Literal["conversation", "prompt"] = "prompt"


class Split(Rule, frozen=True, kw_only=True):
    """How to divide the rows of the split ``train``: by hash (`shares`) or by time (`time`, `cutoffs`)."""

    group: str | None = None
    """A field of the row; rows with the same value go to the same split. None groups rows by their first prompt."""

    shares: Shares = Shares()
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    time: str | None = None
    """A field of the row that contains a time."""

    unit: Literal["iso", "s", "ms", "us", "ns"] = "iso"
    """Format of `time`: ISO text, or a number of these units since 1970 in UTC."""

    zone: str | None = None
    """Time zone of times and cutoffs that do not name one: ``UTC`` or an offset such as ``+02:00``."""

    cutoffs: Cutoffs = Cutoffs()
    leakage: Leakage | None = None
    """If set, training rows that are near duplicates of a held-out row are dropped."""


class RowRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All rules of a recipe that choose rows."""

    filters: tuple[Filter, ...] = ()
    decontaminate: Decontaminate | None = None
    deduplicate: Deduplicate | None = None
    split: Split | None = None
    where: tuple[dict[str, Condition], ...] = ()
    """For each source, conditions by field name, sorted by name as in a manifest."""

    take: tuple[Take | None, ...] = ()
    """One entry for each source."""

    @property
    def is_set(self) -> bool:
        """Whether any rule is set."""
        rules = (self.filters, self.decontaminate, self.deduplicate, self.split, any(self.where), any(self.take))
        return any(map(bool, rules))

    @property
    def names(self) -> tuple[str, ...]:
        """Names that `SelectedRows.detail` refers to: the filters, then the conditions of each source."""
        where = (f"sources[{i}].{WHERE}.{field}" for i, own in enumerate(self.where) for field in own)
        return (*(each.name for each in self.filters), *where)

    @property
    def without_places(self) -> "RowRules":
        """The same rules without file paths, so that renaming a file changes nothing."""
        asked = self.decontaminate
        if asked is None:
            return self
        against = tuple(msgspec.structs.replace(each, path="") for each in asked.against)
        return msgspec.structs.replace(self, decontaminate=msgspec.structs.replace(asked, against=against))

    def question(self, number: int) -> str:
        """Describe a benchmark question for an error or a report, given its number among the questions of all
        benchmarks.
        """
        assert self.decontaminate is not None, "somebody looked for it"
        for each in self.decontaminate.against:
            if number < (each.questions or 0):
                return f"question {number} of {benchmark_name(each)}"
            number -= each.questions or 0
        raise IndexError(number)


def named_rule(name: str) -> str:
    """Describe a rule of `RowRules.names` for users."""
    return name if name.startswith("sources[") else f"filter {name}"


def benchmark_name(benchmark: Benchmark) -> str:
    """Return the name to show for a benchmark."""
    return benchmark.name or PurePosixPath(benchmark.path).stem


def check_rules(rules: RowRules, where: str) -> None:
    """Refuse rules that contradict each other or have no effect.

    Raises:
        RecipeError: names the rule.
    """
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
    is_text = each.of is not None
    for name in _OF_TEXTS:
        if getattr(each, name) is not None and not is_text:
            raise RecipeError(f"{place}: {name} is of texts", hint="of: answers, prompts or conversation names them")
    if is_text and any(value is not None for value in (each.min, each.max, each.one_of, each.none_of)):
        raise RecipeError(f"{place}: min, max, in and not_in are for fields", hint="chars: {min: 2} counts characters")
    if each.is_set and about[0] in {"messages", "tokens"}:
        raise RecipeError(f"{place}: {about[0]} has min and max of its own", hint=f"{about[0]}: {{min: 1, max: 100}}")
    given = [value for name in (*_OF_TEXTS, "messages", "tokens") if (value := getattr(each, name)) is not None]
    if not each.is_set and all(isinstance(value, Rule) and value == type(value)() for value in given):
        raise RecipeError(f"{place}: no condition", hint=_KEYS)
    for value in given:
        if isinstance(value, Rule):
            _check_range(getattr(value, "min", None), getattr(value, "max", None), place)
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
            raise RecipeError(f"{place}.cutoffs: no field holds the times", hint="split.time names it")
        if shares == Shares() and split.leakage is None:
            raise RecipeError(f"{place}: nothing is held out", hint="--set split.shares.validation=0.02")
        return
    if shares != Shares():
        raise RecipeError(f"{place}: shares and time are two ways to split", hint="leave one of them out")
    if cutoffs == Cutoffs():
        raise RecipeError(f"{place}: no cutoff", hint="--set split.cutoffs.validation=2026-01-01")
    zone_of(split, place)
    times = [
        time_of(text, split, f"{place}.cutoffs.{name}")
        for name, text in (("validation", cutoffs.validation), ("test", cutoffs.test))
        if text is not None
    ]
    if sorted(set(times)) != times:
        raise RecipeError(f"{place}.cutoffs: test does not begin after validation", hint="train < validation < test")


def zone_of(split: Split, place: str = "split") -> dt.timezone | None:
    """Return the default time zone of a split rule, or None if it has none.

    Only UTC and offsets are accepted: what a named zone means depends on the machine's time zone database.

    Raises:
        RecipeError: the zone is neither UTC nor an offset.
    """
    if split.zone is None:
        return None
    if re.fullmatch(r"UTC|[+-]([01]\d|2[0-3]):[0-5]\d", split.zone) is None:
        raise RecipeError(f"{place}.zone: expected UTC or an offset such as +02:00, found '{split.zone}'", hint=_KEYS)
    offset = dt.datetime.strptime(split.zone.replace("UTC", "+00:00"), "%z").utcoffset()
    return dt.timezone(offset or dt.timedelta(0))


def time_of(text: str, split: Split, place: str = "split.cutoffs") -> int:
    """Return a cutoff as microseconds since 1970 in UTC.

    Raises:
        RecipeError: the text is not an ISO time, or has no time zone.
    """
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise RecipeError(f"{place}: {error}", hint="an ISO date or time such as 2026-01-01T00:00:00Z") from None
    zone = found.tzinfo or zone_of(split)
    if zone is None and split.unit == "iso":
        raise RecipeError(
            f"{place}: '{text}' names no zone, and neither does split.zone", hint="--set split.zone=UTC, or an offset"
        )
    return microseconds(found.replace(tzinfo=zone or dt.UTC))


def microseconds(time: dt.datetime) -> int:
    """Microseconds since 1970 in UTC of a time with a zone."""
    return (time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def fields_of(filters: Iterable[Filter], split: Split | None, where: dict[str, Condition]) -> tuple[str, ...]:
    """The fields of rows that rules ask about, each once, in a fixed order."""
    fields = [*where, *(each.field for each in filters if each.field is not None)]
    fields += [] if split is None else [field for field in (split.group, split.time) if field is not None]
    return tuple(dict.fromkeys(fields))
