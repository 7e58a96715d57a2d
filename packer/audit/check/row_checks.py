"""Checks that compare rows: copies and near duplicates between and within splits.

What is compared are the traits that a build computes for its rules, computed again from the files: a check must not
rely on what the build decided by, and caches that were built without rules about rows have none.

Held-out splits are compared with training splits, not with each other. Every comparison yields pairs of rows that
match; what share of the rows may match decides the level.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.audit import CodedFinding, Level
from packer.audit.input_parts import InputPart
from packer.batches import Int64, UInt64
from packer.curate import TraitRules
from packer.curate.near import DroppedRows, copies_of, exact_duplicates, near_duplicates, nearest
from packer.curate.select import SPLIT_NAMES, column, digests
from packer.curate.signatures import Signatures, signatures_in
from packer.curate.traits import TraitMaker
from packer.display import Progress, plural
from packer.layout import array_of, numbers_of
from packer.pipeline.workers.executor import Workers
from packer.store.cache import Cache

NGRAM = 3
"""Words per shingle for finding near duplicates; a shorter prompt is too short to identify a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFacts:
    """The rows that are compared, in the order of files and rows. N rows."""

    source: Int64  # [N] number of the file
    row: Int64  # [N] row of the file, from 0
    split: Int64  # [N] number of the split in `splits`
    files: tuple[str, ...]
    splits: tuple[str, ...]
    trained: tuple[str, ...]
    """Splits that are trained on; the others are held out."""

    content: npt.NDArray[np.bytes_]  # [N] S16 digest of the trained content of a row and of what precedes it
    prompt: UInt64  # [N] hash of the first prompt without case and white space
    prompts: Signatures
    conversations: Signatures | None
    """None if near duplicates are not searched for."""

    def place(self, row: int) -> tuple[int, int]:
        """Return the number of a row's file, and its number there."""
        return int(self.source[row]), int(self.row[row])

    def of_split(self, name: str) -> Int64:
        """Return the indices of the rows of a split.  # int64[M]"""
        return np.flatnonzero(self.split == self.splits.index(name))


def read_facts(
    cache: Cache,
    parts: Sequence[InputPart],
    workers: Workers,
    progress: Progress,
    *,
    near: bool,
    trained: tuple[str, ...],
    max_row_bytes: int,
) -> RowFacts:
    """Read the rows of one or more parts, and compute the facts of those that are in a split.

    Raises:
        InputError: a file changed while it was read.
        WorkerDiedError: a process was killed.
    """
    progress.stage("rows", sum(part.partition.num_rows for part in parts), "rows")
    found: dict[int, pa.Table] = {}
    reader = partial(_reader, TraitRules.for_check(NGRAM, near=near), max_row_bytes)
    for number, table in workers.run(reader, parts, sizes=[part.num_bytes for part in parts]):
        found[number] = table
        progress.advance(table.num_rows)
    tables = [found[number] for number in range(len(parts))]
    table = pa.concat_tables(tables)
    source = np.repeat(np.array([part.source for part in parts]), [table.num_rows for table in tables])
    row = numbers_of(table.column("row"))
    split = _splits_of(cache, source, row)
    kept = np.flatnonzero(split >= 0)
    return RowFacts(
        source=source[kept],
        row=row[kept],
        split=split[kept],
        files=tuple(entry.path for entry in cache.manifest.inputs),
        splits=cache.splits("documents"),
        trained=trained,
        content=digests(table, "content")[kept],
        prompt=column(table, "prompt")[kept],
        prompts=signatures_in(table, "prompt", NGRAM).rows(kept),
        conversations=signatures_in(table, "conversation", NGRAM).rows(kept) if near else None,
    )


def _splits_of(cache: Cache, source: Int64, row: Int64) -> Int64:
    """Return the split of each row that has documents, as an index into the cache's splits; else -1.  # int64[R]"""
    first = np.cumsum([0, *(entry.num_rows for entry in cache.manifest.inputs)])
    wanted, found = first[source] + row, np.full(len(row), -1)
    for number, name in enumerate(cache.splits("documents")):
        sources, rows = cache.documents(name).origins()
        found[np.isin(wanted, first[sources] + rows)] = number
    return found


def _reader(rules: TraitRules, max_row_bytes: int) -> Callable[[InputPart], pa.Table]:
    """Return the function that reads a part, in this or in another process."""
    maker = TraitMaker(rules)

    def read(part: InputPart) -> pa.Table:
        tables = []
        for rows, numbers in part.batches(max_row_bytes):
            table = pa.Table.from_batches([maker.make(rows)])
            tables.append(table.append_column("row", array_of(numbers)))
        return pa.concat_tables(tables)

    return read


JACCARD = 0.8
"""Similarity from which on rows count as near duplicates."""

SHOWN = 5

FEW_ROWS = 100
"""Of an input with fewer rows, a share says little."""

Pair: TypeAlias = tuple[int, int, float]
"""Two rows that match, by their indices among the facts, and their similarity."""

_Compare: TypeAlias = Callable[[Int64, Int64], DroppedRows]
"""Finds those of some rows that match one among others."""

CheckResult: TypeAlias = tuple[CodedFinding, tuple[Pair, ...]]
"""A check, and the pairs that illustrate it."""


class Kind(NamedTuple):
    """A check that compares rows."""

    found: str
    """What is said of rows that match; `{others}` are the splits that are trained on."""

    none: str
    """What is said if there are none."""

    hint: str
    warns: float = 0.0
    """Share of matching rows from which on the check warns, and fails."""

    fails: float = math.inf


def checked(
    code: str, message: str, bad: Level | None, *, hint: str | None = None, count: int | None = None
) -> CodedFinding:
    """Return the result of a check: of level `bad`, with the hint, or ok if `bad` is None."""
    return CodedFinding(code=code, level=bad or "ok", message=message, hint=hint if bad else None, count=count)


_LEAKAGE = (
    f"--set split.leakage.near={JACCARD} leaves such rows out of train; --set split.shares.validation=0.02 holds out "
    "rows by their prompt, so that no prompt is in two splits"
)
_OTHER_NAME = "with sources.split: train for what is trained on, as rules take all other splits for held out, "

KINDS = {
    "copies_between_splits": Kind(
        "also in {others}", "no row of a held-out split is also in a split that is trained on", _LEAKAGE, fails=0.0
    ),
    "prompts_between_splits": Kind(
        "with a prompt of {others}",
        "no prompt of a held-out split is also in a split that is trained on",
        _LEAKAGE,
        fails=0.01,
    ),
    "near_between_splits": Kind(
        "with nearly a prompt of {others}",
        "no prompt of a held-out split is nearly one that is trained on",
        _LEAKAGE,
        fails=0.01,
    ),
    "copies_within_splits": Kind(
        "a copy of another",
        "no row is in its split twice",
        "--set deduplicate.exact=bytes keeps the first of them",
        warns=0.01,
    ),
    "near_within_splits": Kind(  # many are a sign of a corpus that was written from templates
        "nearly another that is trained on",
        "no row that is trained on is nearly another",
        f"--set deduplicate.near.jaccard={JACCARD} keeps the first of them",
        warns=0.1,
    ),
}


def compare_rows(facts: RowFacts) -> list[CheckResult]:
    """Compare the rows of all splits; also nearly, if the facts have what that needs."""
    found: list[CheckResult] = []
    talks = facts.conversations
    if talks is not None and not len(talks.shingles):
        message, talks = "rows that bring their ids have no words to compare", None
        found.append((CodedFinding(code="near_copies", level="skipped", message=message), ()))
    if len(facts.splits) > 1:
        found += [_between(facts, code, compare) for code, compare in _comparisons(facts, near=talks is not None)]
    copies = [exact_duplicates(facts.content, facts.of_split(name)) for name in facts.splits]
    found.append(_within(facts, "copies_within_splits", facts.splits, copies))
    if talks is not None:
        near = [near_duplicates(talks, facts.of_split(name), JACCARD) for name in facts.trained]
        found.append(_within(facts, "near_within_splits", facts.trained, near))
    return found


def _comparisons(facts: RowFacts, *, near: bool) -> Iterator[tuple[str, _Compare]]:
    """Yield what finds held-out rows that match a training row: a function of both."""
    yield "copies_between_splits", lambda rows, among: copies_of(facts.content, among, rows)
    long = np.diff(facts.prompts.offsets) > 0
    yield (
        "prompts_between_splits",
        lambda rows, among: copies_of(facts.prompt, among[long[among]], rows[long[rows]]),
    )
    if near:
        yield "near_between_splits", lambda rows, among: nearest(facts.prompts, among, rows, JACCARD)


class _Part(NamedTuple):
    """Some rows, and pairs of those that match."""

    name: str
    num_rows: int
    pairs: Sequence[Pair]


def _between(facts: RowFacts, code: str, compare: _Compare) -> CheckResult:
    """Compare each held-out split with the training splits."""
    among = np.concatenate([facts.of_split(name) for name in facts.trained])
    if not len(among) or len(among) == len(facts.row):
        missing = "held out" if len(among) else "trained"
        return CodedFinding(code=code, level="skipped", message=f"no row that is {missing} could be read"), ()
    held = [(name, facts.of_split(name)) for name in facts.splits if name not in facts.trained]
    return _judged(facts, code, [_Part(name, len(rows), _pairs(compare(rows, among))) for name, rows in held])


def _within(facts: RowFacts, code: str, splits: Sequence[str], found: Sequence[DroppedRows]) -> CheckResult:
    """Judge what was found in splits; also in the file with the largest share of it, which may be few of all rows."""
    rows = np.concatenate([facts.of_split(name) for name in splits])
    pairs = [pair for each in found for pair in _pairs(each)]
    parts = [_Part("", len(rows), pairs)]
    lost = np.array([pair[0] for pair in pairs], np.int64)
    sizes, counts = (np.bincount(facts.source[each], minlength=len(facts.files)) for each in (rows, lost))
    worst = int(np.where(sizes >= FEW_ROWS, counts / np.maximum(sizes, 1), 0.0).argmax())
    if FEW_ROWS <= sizes[worst] < len(rows):
        own = [pair for pair in pairs if facts.source[pair[0]] == worst]
        parts.append(_Part(facts.files[worst], int(sizes[worst]), own))
    capped = "; so many share a template that not all were compared" * any(each.num_capped for each in found)
    return _judged(facts, code, parts, capped)


def _judged(facts: RowFacts, code: str, parts: Sequence[_Part], more: str = "") -> CheckResult:
    """Make a check of the rows that match; its level is that of the part with the largest share of them."""
    kind, levels, told = KINDS[code], list[Level](), list[str]()
    for name, num_rows, pairs in parts:
        share = len(pairs) / max(num_rows, 1)
        if pairs:
            levels.append("error" if share >= kind.fails else "warning" if share >= kind.warns else "ok")
            what = kind.found.format(others=" or ".join(facts.trained))
            told.append(f"{len(pairs):,} of {plural(num_rows, 'row')}{f' of {name}' if name else ''}: {what}")
    level: Level = max(levels, key=("ok", "warning", "error").index, default="ok")
    is_other = not code.endswith("within_splits") and SPLIT_NAMES[0] not in facts.trained
    check = checked(
        code,
        "; ".join(told) + more if told else kind.none,
        None if level == "ok" else level,
        hint=_OTHER_NAME * is_other + kind.hint,
        count=len({pair[0] for part in parts for pair in part.pairs}),
    )
    if level == "ok":
        return check, ()

    def interest(pair: Pair) -> tuple[bool, float, int]:
        first, second, similarity = pair
        return bool(facts.prompt[first] == facts.prompt[second]), -similarity, first

    return check, tuple(sorted({pair for part in parts for pair in part.pairs}, key=interest)[:SHOWN])


def _pairs(copies: DroppedRows) -> list[Pair]:
    return list(zip(copies.row.tolist(), copies.kept.tolist(), copies.similarity.tolist(), strict=True))
