"""The selection: assigns each row a split, or a reason for leaving it out, from the traits of all rows.

Steps, in this order: conditions of sources and filters; benchmarks; exact duplicates; near duplicates; the split;
leakage from held-out rows; limits on the number of rows. A row that one step drops is ignored by the next ones, and
only a row that has documents can be the one that is kept.

A split is decided by a row's time, or by a hash of its key: a number u from 0 to 2^64, xxh3-64 of the key with the
seed. Test takes the range from 0 upwards and validation the range from 2^64 downwards, so that either share can grow
without moving rows out of their split. A row's split depends on no other row, so adding rows moves none.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from packer.batches import Bool, InputRows, Int32, Int64, SelectedRows, UInt64
from packer.curate import TraitRules
from packer.curate.near import DroppedRows, exact_duplicates, lost_to_held_out, near_duplicates
from packer.curate.signatures import signatures_in
from packer.curate.traits import NO_TIME
from packer.layout import numbers_of
from packer.recipe.row_rules import Deduplicate, Leakage, RowRules, Split, Take, microseconds
from packer.rejections import ROW_REASONS

TRAIN, VALIDATION, TEST = range(3)
SPLIT_NAMES = ("train", "validation", "test")


def split_by_hash(keys: UInt64, rule: Split) -> Int32:
    """Return the split of each key: 0 train, 1 validation, 2 test.  # int32[M]"""
    content = memoryview(keys.astype("<u8").tobytes())
    numbers = (xxh3_64_intdigest(content[i : i + 8], rule.seed) for i in range(0, len(content), 8))
    u = np.fromiter(numbers, np.uint64, len(keys))
    split = np.full(len(keys), TRAIN, np.int32)
    split[u < np.uint64(int(rule.shares.test * 2**64))] = TEST
    top = int(rule.shares.validation * 2**64)
    if top:  # 2^64 itself is no uint64
        split[u >= np.uint64(2**64 - top)] = VALIDATION
    return split


def split_by_time(times: Int64, rule: Split) -> Int32:
    """Return the split of each time in µs: 0 before the first cutoff, then 1 (validation) or 2 (test).  # int32[M]"""
    split = np.full(len(times), TRAIN, np.int32)
    for later, cutoff in ((VALIDATION, rule.cutoffs.validation), (TEST, rule.cutoffs.test)):
        if cutoff is not None:
            split[times >= microseconds(cutoff)] = later
    return split


def straddling(groups: UInt64, split: Int32) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the rows whose group has a row in an earlier split (a smaller number), and for each the first such row.

    The later row is dropped: something known about a group before the cutoff must not be asked again after it, and rows
    added later must not change existing ones.

    Worked example: groups a, b, a in train, train, validation: row 2 is dropped because of row 0.
    """
    order = np.argsort(split, kind="stable")
    _, first, group = np.unique(groups[order], return_index=True, return_inverse=True)
    first = order[first[group.reshape(-1)]]
    late = split[order] > split[first]
    return order[late], first[late]


def select_rows(rows: InputRows, traits: pa.Table, rules: RowRules) -> SelectedRows:
    """Decide about every row; `traits` has one of each, in the same order."""
    verdicts = Verdicts(rows)
    for rule, failed in _failures(rows, traits, rules):
        verdicts.drop("filtered", np.flatnonzero(failed), detail=rule)
    if rules.decontaminate is not None:
        verdicts.drop_lost("contaminated", _contaminated(verdicts, traits))
    if rules.deduplicate is not None:
        _deduplicate(verdicts, traits, rules.deduplicate)
    if rules.split is not None:
        if rules.split.group is not None:
            has_group = _has_field(rules.split.group, rows, traits, rules)
            verdicts.drop("no_group", np.flatnonzero(verdicts.in_train & ~has_group))
        _divide(verdicts, traits, rules.split)
        if rules.split.leakage is not None:
            verdicts.drop_lost("leaks", _leaking(verdicts, traits, rules.split.leakage))
    for source, take in enumerate(rules.take):
        if take is not None:
            _limit(verdicts, np.flatnonzero(verdicts.alive & (rows.source == source)), traits, take)
    return verdicts.selected()


class Verdicts:
    """Decisions made so far about N rows."""

    def __init__(self, rows: InputRows) -> None:
        number = len(rows.source)
        self.splits = [*rows.splits, *(name for name in SPLIT_NAMES if name not in rows.splits)]
        self.split: Int32 = rows.split.copy()
        self.alive: Bool = rows.num_tokens > 0
        self._reason = np.zeros(number, np.int32)
        self._kept = np.full(number, -1, np.int64)
        self._similarity = np.zeros(number, np.float32)
        self._detail = np.full(number, -1, np.int32)
        self._num_capped = 0

    @property
    def in_train(self) -> Bool:
        """Which rows are in the split `train` so far.  # bool[N]"""
        train: Bool = self.split == self.splits.index(SPLIT_NAMES[TRAIN])
        return train

    def order(self) -> Int64:
        """Return the remaining rows by precedence: held-out rows before train, then input order.  # int64[M]"""
        left = np.flatnonzero(self.alive)
        return left[np.argsort(self.in_train[left], kind="stable")]

    def drop(self, code: str, rows: npt.NDArray[np.integer], *, detail: int = -1) -> None:
        """Drop rows; those that were dropped before keep their reason."""
        rows = rows[self.alive[rows]]
        self.alive[rows] = False
        self._reason[rows] = ROW_REASONS.index(code) + 1
        self._detail[rows] = detail

    def drop_lost(self, code: str, lost: DroppedRows) -> None:
        """Drop rows that lost to others; none of them was dropped before."""
        self._kept[lost.row] = lost.kept
        self._similarity[lost.row] = lost.similarity
        self._num_capped += lost.num_capped
        self.drop(code, lost.row)

    def selected(self) -> SelectedRows:
        """Return the result, with the splits that have rows."""
        used, number = np.unique(self.split[self.alive], return_inverse=True)
        split = np.full(len(self.alive), -1, np.int32)
        split[self.alive] = number
        return SelectedRows(
            splits=tuple(self.splits[each] for each in used.tolist()),
            split=split,
            reason=self._reason,
            kept=self._kept,
            similarity=self._similarity,
            detail=self._detail,
            num_capped=self._num_capped,
        )


def _failures(rows: InputRows, traits: pa.Table, rules: RowRules) -> Iterator[tuple[int, Bool]]:
    """Yield the index of each rule in `RowRules.names` with the rows that fail it.

    Conditions of sources come first, though the names begin with those of the filters. In `failed`, too, the bits of a
    source's conditions precede those of the filters that need no document.
    """
    source, failed = rows.source, column(traits, "failed")
    number = len(rules.filters)
    for i, where in enumerate(rules.where):
        for bit in range(len(where)):
            yield number, (source == i) & _bit(failed, np.uint64(bit))
            number += 1
    bit_of_filter = np.array([len(where) for where in rules.where], np.uint64)[source]
    for number, each in enumerate(rules.filters):
        if each.tokens is None:
            yield number, _bit(failed, bit_of_filter)
            bit_of_filter = bit_of_filter + np.uint64(1)
        else:
            tokens = rows.num_tokens
            least, most = each.tokens.min or 0, each.tokens.max
            yield number, (tokens < least) | (tokens > (tokens if most is None else most))


def _contaminated(verdicts: Verdicts, traits: pa.Table) -> DroppedRows:
    """Return the remaining rows that contain a benchmark question; `kept` is the question's number, not a row."""
    question = column(traits, "question").astype(np.int64)
    found = np.flatnonzero(verdicts.alive & (question >= 0))
    return DroppedRows(row=found, kept=question[found], similarity=column(traits, "cover").astype(np.float32)[found])


def _deduplicate(verdicts: Verdicts, traits: pa.Table, rule: Deduplicate) -> None:
    if rule.exact is not None:
        keys = digests(traits, "content" if rule.exact == "bytes" else "folded")
        verdicts.drop_lost("duplicate", exact_duplicates(keys, verdicts.order()))
    if rule.near is not None:
        signatures = signatures_in(traits, rule.near.of, rule.near.ngram)
        verdicts.drop_lost("near_duplicate", near_duplicates(signatures, verdicts.order(), rule.near.jaccard))


def _leaking(verdicts: Verdicts, traits: pa.Table, rule: Leakage) -> DroppedRows:
    held, trained = (np.flatnonzero(verdicts.alive & side) for side in (~verdicts.in_train, verdicts.in_train))
    signatures = signatures_in(traits, rule.of, rule.ngram)
    return lost_to_held_out(signatures, digests(traits, "content"), held, trained, rule.near)


def _divide(verdicts: Verdicts, traits: pa.Table, rule: Split) -> None:
    """Divide the rows of `train` into splits; rows that their source assigns to another split stay there."""
    if rule.time is None:
        left = np.flatnonzero(verdicts.in_train)
        keys = column(traits, "prompt" if rule.group is None else "group")
        _assign(verdicts, left, split_by_hash(keys[left], rule))
        return
    times = column(traits, "time").astype(np.int64)
    verdicts.drop("no_time", np.flatnonzero(verdicts.in_train & (times == NO_TIME)))
    left = np.flatnonzero(verdicts.alive & verdicts.in_train)
    split = split_by_time(times[left], rule)
    if rule.group is not None:
        late, first = straddling(column(traits, "group")[left], split)
        verdicts.drop_lost("straddles", DroppedRows(row=left[late], kept=left[first], similarity=np.zeros(len(late))))
    _assign(verdicts, left, split)


def _limit(verdicts: Verdicts, rows: Int64, traits: pa.Table, take: Take) -> None:
    """Keep the first rows of a source, in the order of the input or of their content."""
    if take.order == "hash":
        rows = rows[np.argsort(digests(traits, "content")[rows], kind="stable")]
    verdicts.drop("not_taken", rows[take.rows :])


def _assign(verdicts: Verdicts, rows: Int64, split: Int32) -> None:
    number_of = np.array([verdicts.splits.index(name) for name in SPLIT_NAMES], np.int32)
    verdicts.split[rows] = number_of[split]


def _has_field(field: str, rows: InputRows, traits: pa.Table, rules: RowRules) -> Bool:
    """Return which rows have a field.  # bool[N]"""
    of_sources = (TraitRules.of(rules, source) for source in range(len(rules.where)))
    bits = np.array([each.fields.index(field) for each in of_sources], np.uint64)
    return _bit(column(traits, "known"), bits[rows.source])


def column(traits: pa.Table, name: str) -> UInt64:
    """Return a numeric column for all rows.  # uint64[N]; int64[N] for `time`"""
    return numbers_of(traits.column(name))


def digests(traits: pa.Table, name: str) -> npt.NDArray[np.bytes_]:
    """Return a column of 16-byte digests for all rows.  # S16[N]"""
    chunks = traits.column(name).chunks
    parts = [np.frombuffer(each.buffers()[1], "S16")[each.offset : each.offset + len(each)] for each in chunks]
    return np.concatenate([np.zeros(0, "S16"), *parts])


def _bit(bits: UInt64, number: np.uint64 | UInt64) -> Bool:
    flags: Bool = (bits >> number) & np.uint64(1) != 0
    return flags
