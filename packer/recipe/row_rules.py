"""Rules that choose rows (which are trained on, and which split each belongs to), and those about their images.

All rules are off by default. Those that choose depend only on properties of rows and documents that a build stores, so
changing one never tokenizes anything again; see :mod:`packer.curate`.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from packer.names import RuleName

Count = Annotated[int, Meta(ge=0, le=2**62)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Scalar = str | int | float | bool
Values = Annotated[tuple[Scalar, ...], Meta(min_length=1)]

WHERE = "where"
"""Rule name used for the conditions in a source's `where`."""

MAX_NGRAM = 64


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

    messages: Range | None = None
    """Number of messages in the row."""

    tokens: Range | None = None
    """Length of the row's longest document, in tokens."""


MEASURES: dict[str, Callable[[str], float]] = {"chars": len}
"""Key of a filter → the number it limits, measured on each text. A text whose number is NaN does not pass."""


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
    """Format of `time`: ISO text, in UTC if it names no zone; or a number of these units since 1970 in UTC."""

    cutoffs: Cutoffs = Cutoffs()
    leakage: Leakage | None = None
    """If set, training rows that are near duplicates of a held-out row are dropped."""


class MediaRules(Rule, frozen=True, kw_only=True):
    """What to do about images of rows."""

    images: Literal["reject", "read"] = "reject"
    """``read``: the tokenizer is the folder of a model with a processor."""

    root: str | None = None
    """The folder where paths of images may begin, too, and that none may leave; None: that of the rows' file."""

    check: Literal["decode", "header"] = "decode"
    """How an image is examined. ``decode``: whole, so that a damaged one cannot stop a training run."""

    keep: Literal["bytes", "reference"] = "bytes"
    """What a cache has of an image that a row names. ``reference``: its path from `root`, and its digest."""


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

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield rules that contradict each other or have no effect, each with a hint; later ones rely on the first."""
        names = [each.name for each in self.filters]
        for i, each in enumerate(self.filters):
            yield from ((f"filters[{i}] '{each.name}': {said}", hint) for said, hint in _wrong_filter(each))
            if each.name == WHERE or each.name in names[:i]:
                yield f"filters[{i}]: the name '{each.name}' is taken", "give it another name"
        for source, conditions in enumerate(self.where):
            for field, condition in conditions.items():
                place = f"sources[{source}].where.{field}"
                if not field or not condition.is_set:
                    yield f"{place}: no condition", "min, max, in, not_in, matches or not_matches"
                yield from ((f"{place}: {said}", hint) for said, hint in _wrong_range(condition))
            if len(conditions) + len(self.filters) > MAX_CONDITIONS:
                yield f"more than {MAX_CONDITIONS} filters and conditions of one source", _KEYS
        if self.deduplicate is not None and self.deduplicate == Deduplicate():
            yield "deduplicate: is empty", "--set deduplicate.exact=bytes"
        if self.decontaminate is not None and not self.decontaminate.against:
            yield "decontaminate.against: names no file", "against: [{path: benchmark.jsonl}]"
        if self.split is not None:
            yield from ((f"split{said}", hint) for said, hint in _wrong_split(self.split))


def named_rule(name: str) -> str:
    """Describe a rule of `RowRules.names` for users."""
    return name if name.startswith("sources[") else f"filter {name}"


def benchmark_name(benchmark: Benchmark) -> str:
    """Return the name to show for a benchmark."""
    return benchmark.name or PurePosixPath(benchmark.path).stem


def fields_of(filters: Iterable[Filter], split: Split | None, where: dict[str, Condition]) -> tuple[str, ...]:
    """The fields of rows that rules ask about, each once, in a fixed order."""
    fields = [*where, *(each.field for each in filters if each.field is not None)]
    fields += [] if split is None else [field for field in (split.group, split.time) if field is not None]
    return tuple(dict.fromkeys(fields))


MAX_CONDITIONS = 60
"""Most rules with a condition that may apply to one source; each uses one bit of a column."""

_KEYS = "docs/how-to/choose-rows.md shows every rule"

_SUBJECTS = ("field", "of", "messages", "tokens")
"""Keys that say what a filter is about; a filter has exactly one of them."""


def _wrong_filter(each: Filter) -> Iterator[tuple[str, str]]:
    about = [name for name in _SUBJECTS if getattr(each, name) is not None]
    if len(about) != 1:
        yield f"expected one of field, of, messages and tokens, found {' and '.join(about) or 'none'}", _KEYS
    ranges = {name: given for name in each.__struct_fields__ if isinstance(given := getattr(each, name), Range)}
    of_texts = [name for name in ranges if name not in _SUBJECTS]
    if of_texts and each.of is None:
        yield f"{of_texts[0]} is of texts", "of: answers, prompts or conversation names them"
    if each.of is not None and any(value is not None for value in (each.min, each.max, each.one_of, each.none_of)):
        yield "min, max, in and not_in are for fields", "chars: {min: 2} counts characters"
    if each.is_set and about[0] in {"messages", "tokens"}:
        yield f"{about[0]} has min and max of its own", f"{about[0]}: {{min: 1, max: 100}}"
    if not each.is_set and all(given == Range() for given in ranges.values()):
        yield "no condition", _KEYS
    for given in ranges.values():
        yield from _wrong_range(given)
    yield from _wrong_range(each)


def _wrong_range(given: Condition | Range) -> Iterator[tuple[str, str]]:
    if given.min is not None and given.max is not None and given.min > given.max:
        yield f"min {given.min:g} is more than max {given.max:g}", "no row would pass"


def _wrong_split(split: Split) -> Iterator[tuple[str, str]]:
    shares, cutoffs = split.shares, split.cutoffs
    if shares.validation + shares.test >= 1:
        yield (
            f".shares: validation {shares.validation:g} and test {shares.test:g} leave nothing to train on",
            "for example shares: {validation: 0.02, test: 0.01}",
        )
    if split.time is None:
        if cutoffs != Cutoffs():
            yield ".cutoffs: no field with the times is set", "split.time names it"
        if shares == Shares() and split.leakage is None:
            yield ": nothing is held out", "--set split.shares.validation=0.02"
        return
    if shares != Shares():
        yield ": shares and time are two ways to split", "leave one of them out"
    if cutoffs == Cutoffs():
        yield ": no cutoff", "--set split.cutoffs.validation=2026-01-01"
    times = []
    for name in ("validation", "test"):
        try:
            times += [microseconds(text)] if (text := getattr(cutoffs, name)) is not None else []
        except ValueError as error:
            yield f".cutoffs.{name}: {error}", "an ISO date or time such as 2026-01-01T00:00:00Z"
    if sorted(set(times)) != times:
        yield ".cutoffs: test does not begin after validation", "train < validation < test"


def microseconds(text: str) -> int:
    """Return an ISO time as microseconds since 1970 in UTC; a time that names no zone is in UTC.

    Raises:
        ValueError: the text is no ISO time.
    """
    time = dt.datetime.fromisoformat(text)
    return (time.replace(tzinfo=time.tzinfo or dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(
        microseconds=1
    )
