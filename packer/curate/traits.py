"""Traits: facts about single rows, from which every decision about rows is made.

They depend on a row and on the rules, never on another row, a tokenizer or a template. They are computed per
partition and stored, so that changing a rule about rows, or the tokenizer, recomputes only what is affected.

    content     xxh3-128 of what is trained of the row, and of what precedes it
    folded      the same, normalized
    prompt      xxh3-64 of the normalized first prompt
    failed      bit i: the row fails condition i of its source
    known       bit i: the row has field i of those the rules use
    group       xxh3-64 of the value of the group's field; only if a group is configured
    group_text  the same for the value as a text: if this is equal and `group` is not, "7" and 7 are two groups
    time        microseconds since 1970; only if a time field is configured; NO_TIME if the field has no time
    shingles …  what rows are compared by, with `bands …`; only if near copies are detected
    question    number of the benchmark question the row contains, or -1; only with benchmarks
    cover       fraction of the question's n-grams that the row has
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from packer.batches import Bool, Int64, RowBatch, Sample
from packer.curate import TraitRules
from packer.curate.contamination import BenchmarkQuestions
from packer.curate.signatures import Signatures, Words, signature_columns, signature_types, signatures, words_of
from packer.curate.texts import (
    answers,
    content_key,
    conversation,
    integral_as_int,
    prompt_key,
    prompts,
    sides,
    utterances,
    value_key,
)
from packer.errors import RecipeError
from packer.layout import array_of, numbers_of
from packer.recipe.row_rules import MEASURES, Condition, Filter, Range, Scalar, microseconds

NO_TIME = -(2**63)
_OF_EVERY_ROW = {
    "content": pa.binary(16),
    "folded": pa.binary(16),
    "prompt": pa.uint64(),
    "failed": pa.uint64(),
    "known": pa.uint64(),
}
_UNITS = {"s": Fraction(10**6), "ms": Fraction(10**3), "us": Fraction(1), "ns": Fraction(1, 10**3)}
"""Microseconds per unit."""


def trait_schema(rules: TraitRules) -> pa.Schema:
    """Return the columns of traits under some rules, which are those of every source of a recipe."""
    columns = dict(_OF_EVERY_ROW)
    if rules.group is not None:
        columns |= {"group": pa.uint64(), "group_text": pa.uint64()}
    if rules.time is not None:
        columns["time"] = pa.int64()
    for of, ngram in rules.compared:
        columns |= signature_types(of, ngram)
    if rules.questions is not None:
        columns |= {"question": pa.int32(), "cover": pa.float32()}
    return pa.schema(columns)


class TraitMaker:
    """Computes the traits of a source's rows."""

    def __init__(self, rules: TraitRules, questions: BenchmarkQuestions | None = None) -> None:
        """`questions`: those of benchmarks."""
        self._rules = rules
        self._questions = questions
        self._testers = [ConditionTester(*each) for each in rules.conditions]

    def make(self, rows: RowBatch) -> pa.RecordBatch:
        """Compute the traits of a batch, one entry per row; they are 0 for a row that could not be read.

        The rows are read with the fields of the rules.
        """
        rules, samples, number = self._rules, rows.samples, rows.num_rows
        place = np.fromiter((sample.row - rows.first for sample in samples), np.int64, len(samples))
        values = dict(zip(rules.fields, rows.fields, strict=False))  # those of columns follow
        known = [np.array([value is not None for value in values[name]], np.bool_) for name in rules.fields]
        if rules.group is not None:  # a text of nothing is no group: it would join all rows that lack one
            texts = (str(value).strip() for value in values[rules.group])
            known[rules.fields.index(rules.group)] &= np.fromiter(map(bool, texts), np.bool_, number)
        columns = {
            "content": _digests(samples, place, number, folded=False),
            "folded": _digests(samples, place, number, folded=True),
            "prompt": _placed([prompt_key(sample) for sample in samples], place, number, np.uint64),
            "failed": self._failed(samples, place, values, number),
            "known": _bits(known, number),
        }
        if rules.group is not None:
            groups = values[rules.group]
            columns["group"] = pa.array([0 if v is None else value_key(v) for v in groups], pa.uint64())
            columns["group_text"] = pa.array([0 if v is None else value_key(_as_text(v)) for v in groups], pa.uint64())
        if rules.time is not None:
            columns["time"] = pa.array([self._time(value) for value in values[rules.time]], pa.int64())
        if rules.unicode is not None:
            columns |= self._of_words(_row_words(samples), place, number)
        return pa.RecordBatch.from_pydict(columns)

    def _of_words(self, words: "_RowWords", place: Int64, number: int) -> dict[str, pa.Array]:
        columns: dict[str, pa.Array] = {}
        for of, ngram in self._rules.compared:
            columns |= signature_columns(words.signatures(of, ngram).at(place, number), of, ngram)
        if self._questions is not None:
            hits = self._questions.find(words.words, words.rows).best()
            columns["question"] = _placed(hits.question, place[hits.row], number, np.int32, missing=-1)
            columns["cover"] = _placed(hits.cover, place[hits.row], number, np.float32)
        return columns

    def _failed(
        self, samples: Sequence[Sample], place: Int64, values: Mapping[str, Sequence[Any]], number: int
    ) -> pa.Array:
        failed = []
        for tester in self._testers:
            if tester.field is not None:
                failed.append(~tester.of_values(values[tester.field]))
            else:
                passed = np.ones(number, np.bool_)
                passed[place] = tester.of_samples(samples)
                failed.append(~passed)
        return _bits(failed, number)

    def _time(self, value: Any) -> int:
        """Return microseconds since 1970; NO_TIME if the value is not a time."""
        unit = self._rules.unit
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return NO_TIME
        try:
            if unit == "iso":
                return microseconds(value.strip()) if isinstance(value, str) else NO_TIME
            number = Fraction(value if isinstance(value, int) else float(value))  # CSV has only texts
        except (ValueError, OverflowError):
            return NO_TIME
        time = math.floor(number * _UNITS[unit])
        return time if abs(time) < 2**62 else NO_TIME


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(integral_as_int(value)).decode()


def _digests(samples: Sequence[Sample], place: Int64, number: int, *, folded: bool) -> pa.Array:
    found = np.zeros((number, 16), np.uint8)
    if len(samples):
        keys = b"".join(content_key(sample, folded=folded) for sample in samples)
        found[place] = np.frombuffer(keys, np.uint8).reshape(-1, 16)
    return pa.Array.from_buffers(pa.binary(16), number, [None, pa.py_buffer(found.tobytes())])


def _placed(values: Any, place: Int64, number: int, dtype: type[np.generic], missing: int = 0) -> pa.Array:
    """Return values at their places among the rows."""
    found = np.full(number, missing, dtype)
    found[place] = np.array(values, dtype)
    return array_of(found)


def _bits(flags: Sequence[Any], number: int) -> pa.Array:
    """Pack flags into one number per row: bit i is flag i.  # each bool[R]"""
    found = np.zeros(number, np.uint64)
    for i, flag in enumerate(flags):
        found |= flag.astype(np.uint64) << np.uint64(i)
    return array_of(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowWords:
    """The words of all user and assistant messages in N rows, M messages, and the ranges of the first prompts.

    System messages, tools, calls and reasoning are left out: they are alike in rows that have nothing else in common.
    """

    words: Words  # of M texts
    rows: Int64  # [N + 1] the messages of row i are rows[i] … rows[i + 1] - 1
    prompt: Int64  # [N, 2] first message of the first prompt, and one past it; all messages if there is no prompt

    def signatures(self, of: str, ngram: int) -> Signatures:
        """Return the signatures by which rows are compared. A prompt of fewer words than a shingle counts as none."""
        ranges = np.stack([self.rows[:-1], self.rows[1:]], axis=1) if of == "conversation" else self.prompt
        start, stop = self.words.offsets[ranges.T]
        if of == "prompt":  # "hello there" is too short a prompt to identify a row
            stop = np.where(stop - start < ngram, start, stop)
        return signatures(self.words, start, stop, ngram)


def _row_words(samples: Sequence[Sample]) -> _RowWords:
    """Split the texts of rows into words."""
    texts: list[str] = []
    rows, prompt = [0], []
    for sample in samples:
        first, asked = len(texts), -1
        for role, text in utterances(sample):
            if asked < 0 and role == "user":
                asked = len(texts)
            texts.append(text)
        rows.append(len(texts))
        prompt.append((asked, asked + 1) if asked >= 0 else (first, len(texts)))
    return _RowWords(
        words=words_of(texts), rows=np.array(rows, np.int64), prompt=np.array(prompt, np.int64).reshape(-1, 2)
    )


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
        patterns = ((condition.matches, True), (condition.not_matches, False))
        self._patterns = [(pattern, wanted) for pattern, wanted in patterns if pattern is not None]
        for pattern, _ in self._patterns:
            _refuse_pattern(pattern, name)

    def of_values(self, values: Sequence[Any]) -> Bool:
        """Return which values of the field pass; a missing one does not.  # bool[R]"""
        passed = np.array([value is not None and self._allows(value) for value in values], np.bool_)
        return passed & self._matching(values)

    def _allows(self, value: Any) -> bool:
        return (
            _within(value, self._condition)
            and (self._among is None or _typed(value) in self._among)
            and (self._not_among is None or _typed(value) not in self._not_among)
        )

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
            return np.array([_within(len(side.messages), rule.messages or Range()) for side in samples], np.bool_)
        texts = [_TEXTS[rule.of](side) for side in samples]
        flat = list(chain(*texts))
        limited = [(measure, getattr(rule, key)) for key, measure in MEASURES.items() if getattr(rule, key) is not None]
        measured = [all(_within(measure(text), limits) for measure, limits in limited) for text in flat]
        return _all_of(texts, self._matching(flat) & np.array(measured, np.bool_))

    def _matching(self, values: Sequence[Any]) -> Bool:
        """Return which values satisfy the patterns, if there are any: only a text does."""
        passed = np.ones(len(values), np.bool_)
        for pattern, wanted in self._patterns:
            import pyarrow.compute as pc  # noqa: PLC0415 - takes 0.05 s, which builds without rules save

            texts = pa.array([value if isinstance(value, str) else None for value in values], pa.large_string())
            found = pc.match_substring_regex(texts, pattern)
            passed &= numbers_of(pc.cast(pc.fill_null(found, not wanted), pa.uint8())) == wanted
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


def _within(value: Any, limits: Condition | Range) -> bool:
    """Whether a number lies within the limits, if there are any, or a text that is one, as CSV has only texts."""
    if limits.min is None and limits.max is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return False
    least, most = (limits.min if limits.min is not None else -math.inf), limits.max
    return least <= number <= (number if most is None else most)


def _typed(value: Scalar | Any) -> tuple[str, Any]:
    """Return a key by which only values of one type are equal: true is not 1, but 1 and 1.0 are one JSON number."""
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int | float):
        return "number", value
    return ("text", value) if isinstance(value, str) else ("other", None)
