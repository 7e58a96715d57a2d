"""Checks of a cache's rows: what to find out before training from it, such as copies and near duplicates.

What is compared are the traits that a build computes for its rules, computed again from the files: a check must not
rely on what the build decided by, and caches that were built without rules about rows have none.

Held-out splits are compared with training splits, not with each other. Every comparison yields pairs of rows that
match; what share of the rows may match decides the level.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.audit import CodedFinding, Example, Findings, Level
from packer.audit.input_parts import InputPart, SourceRoots, read_inputs
from packer.batches import Int64, Sample, UInt64
from packer.curate import TraitRules
from packer.curate.near import DroppedRows, copies_of, exact_duplicates, near_duplicates, nearest
from packer.curate.select import SPLIT_NAMES, column, digests
from packer.curate.signatures import Signatures, signatures_in
from packer.curate.texts import utterances
from packer.curate.traits import TraitMaker
from packer.display import Progress, Silent, listed, plural
from packer.layout import array_of, numbers_of
from packer.literals import common_length
from packer.pipeline.workers import Workers
from packer.pipeline.workers.executor import workers_on
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache
from packer.store.manifest import Input

NGRAM = 3
"""Words per shingle for finding near duplicates; a shorter prompt is too short to identify a row."""

JACCARD = 0.8
"""Similarity from which on rows count as near duplicates."""

SHOWN = 5

FEW_ROWS = 100
"""Of an input with fewer rows, a share says little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport(Findings):
    """The result of :func:`check`; docs/how-to/check.md explains each code."""

    folder: Path
    fingerprint: str
    findings: tuple[CodedFinding, ...]
    """One for each check, in their order, also of those that found nothing."""


def check(
    folder: Path | str,
    *,
    sources: str | Path | Iterable[str | Path] = (),
    near: bool = False,
    jobs: int | None = None,
    on: str | None = None,
    progress: Progress | None = None,
) -> CheckReport:
    """Check which rows a cache has, and in which splits.

    Rows are compared by reading the inputs again, where `sources` says that they may be read. Checks that need an input
    that is not there, is missing or has changed are skipped, and the report says so. Nothing is written.

    Args:
        folder: the cache.
        sources: what the names of its inputs are below; see :mod:`packer.audit.input_parts`. By default no
            input is read.
        near: also look for near duplicates, by word shingles.
        jobs: processes that read rows; by default as many as are worthwhile.
        on: a Ray cluster to read inputs on, as for :func:`packer.build`; the facts of their rows are returned to this
            process.
        progress: receives progress; counts bytes of inputs, then rows.

    Raises:
        InputError: not a cache; or an input changed while it was read.
        CheckError: the manifest or a document shard is damaged.
        RecipeError: the manifest's recipe is invalid.
        StorageError: a file cannot be read.
        WorkerDiedError: a process was killed.
    """
    progress = progress or Silent()
    with Cache.open(folder) as cache, workers_on(on, jobs, progress.note) as workers:
        inputs, roots = cache.manifest.inputs, SourceRoots.of(sources)
        recipe = make_recipe(cache.manifest.recipe, where="the manifest's recipe")
        found = read_inputs(inputs, recipe.partition_bytes, roots, workers, progress) if roots else []
        parts = [part for own in found if not isinstance(own, str) for part in own]
        checks = [_check_inputs(inputs, found)]
        if parts:
            facts = _read_facts(cache, parts, workers, progress, near=near, max_row_bytes=recipe.rows.max_bytes)
            checks += _with_texts([*_compared(facts)], facts, parts, recipe.rows.max_bytes)
        return CheckReport(folder=cache.folder, fingerprint=cache.fingerprint, findings=tuple(checks))


def _check_inputs(inputs: Sequence[Input], found: Sequence[tuple[InputPart, ...] | str]) -> CodedFinding:
    """Say which inputs are not compared; `found` is empty if none may be read."""
    if not found:
        told = "no row was compared with another: --sources . reads the inputs again that are below this folder"
        return CodedFinding(code="inputs", level="skipped", message=told)
    missing: dict[str, list[str]] = {}
    for entry, own in zip(inputs, found, strict=True):
        if isinstance(own, str):
            missing.setdefault(own, []).append(entry.path)
    if not missing:
        return CodedFinding(code="inputs", level="ok", message="every input is unchanged since the build")
    num_missing = sum(map(len, missing.values()))
    told = listed([f"{listed(paths, SHOWN)}: {why}" for why, paths in missing.items()], SHOWN, "; ")
    is_any = num_missing < len(inputs)
    left_out = "" if is_any else "; not checked without them: copies, prompts, near copies"
    return CodedFinding(
        code="inputs",
        level="warning" if is_any else "skipped",
        message=f"{num_missing} of {len(inputs)} inputs cannot be compared: {told}{left_out}",
        hint="names are looked up from the current folder and below --sources; rows of these inputs were compared with "
        "no other",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
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

    def of_splits(self, names: Iterable[str]) -> Int64:
        """Return the indices of the rows of some splits, split by split.  # int64[M]"""
        parts = (np.flatnonzero(self.split == self.splits.index(name)) for name in names)
        return np.concatenate([np.zeros(0, np.int64), *parts])


def _read_facts(
    cache: Cache, parts: Sequence[InputPart], workers: Workers, progress: Progress, *, near: bool, max_row_bytes: int
) -> _Facts:
    """Read the rows of one or more parts, and compute the facts of those that are in a split."""
    progress.stage("rows", sum(part.partition.num_rows for part in parts), "rows")
    found: dict[int, pa.Table] = {}
    reader = partial(_reader, TraitRules.for_check(NGRAM, near=near), max_row_bytes)
    for number, table in workers.run(reader, parts, sizes=[part.partition.num_bytes for part in parts]):
        found[number] = table
        progress.advance(table.num_rows)
    tables = [found[number] for number in range(len(parts))]
    table = pa.concat_tables(tables)
    source = np.repeat(np.array([part.source for part in parts]), [table.num_rows for table in tables])
    row = numbers_of(table.column("row"))
    # The split of each row that has documents.
    names, split = cache.splits("documents"), np.full(len(row), -1)
    first = np.cumsum([0, *(entry.num_rows for entry in cache.manifest.inputs)])
    for number, name in enumerate(names):
        sources, rows = cache.documents(name).origins()
        split[np.isin(first[source] + row, first[sources] + rows)] = number
    kept = np.flatnonzero(split >= 0)
    # Splits whose names begin with `train` are trained on; if there are none, the largest.
    named = [name for name in names if name.startswith("train")]
    trained = named or sorted(names, key=lambda name: -len(cache.documents(name)))[:1]
    return _Facts(
        source=source[kept],
        row=row[kept],
        split=split[kept],
        files=tuple(entry.path for entry in cache.manifest.inputs),
        splits=names,
        trained=tuple(trained),
        content=digests(table, "content")[kept],
        prompt=column(table, "prompt")[kept],
        prompts=signatures_in(table, "prompt", NGRAM).rows(kept),
        conversations=signatures_in(table, "conversation", NGRAM).rows(kept) if near else None,
    )


def _reader(rules: TraitRules, max_row_bytes: int) -> Callable[[InputPart], pa.Table]:
    """Return the function that reads a part, in this or in another process."""
    maker = TraitMaker(rules)

    def read(part: InputPart) -> pa.Table:
        tables = []
        for rows in part.rows(max_row_bytes):
            numbers = part.partition.first_row + rows.first + np.arange(rows.num_rows)
            tables.append(pa.Table.from_batches([maker.make(rows)]).append_column("row", array_of(numbers)))
        return pa.concat_tables(tables)

    return read


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

Pair: TypeAlias = tuple[int, int, float]
"""Two rows that match, by their indices among the facts, and their similarity."""

_Compared: TypeAlias = tuple[CodedFinding, Sequence[Pair]]
"""A check, and the pairs that illustrate it."""


class _Part(NamedTuple):
    """Some rows, and pairs of those that match."""

    name: str
    num_rows: int
    pairs: Sequence[Pair]


def _compared(facts: _Facts) -> Iterator[_Compared]:
    """Compare the rows of all splits; also nearly, if the facts have what that needs."""
    talks = facts.conversations
    if talks is not None and not len(talks.shingles):
        message, talks = "rows that bring their ids have no words to compare", None
        yield CodedFinding(code="near_copies", level="skipped", message=message), ()
    learned, long = facts.of_splits(facts.trained), np.diff(facts.prompts.offsets) > 0
    between: dict[str, Callable[[Int64], DroppedRows]] = {
        "copies_between_splits": lambda rows: copies_of(facts.content, learned, rows),
        "prompts_between_splits": lambda rows: copies_of(facts.prompt, learned[long[learned]], rows[long[rows]]),
        "near_between_splits": lambda rows: nearest(facts.prompts, learned, rows, JACCARD),
    }
    if talks is None:
        del between["near_between_splits"]
    held = {name: facts.of_splits([name]) for name in facts.splits if name not in facts.trained}
    missing = "trained" if not len(learned) else "held out" if len(learned) == len(facts.row) else None
    for code, compare in between.items() if len(facts.splits) > 1 else ():
        if missing is not None:
            yield CodedFinding(code=code, level="skipped", message=f"no row that is {missing} could be read"), ()
        else:
            yield _judged(facts, code, [_Part(name, len(rows), _pairs(compare(rows))) for name, rows in held.items()])
    copies = [exact_duplicates(facts.content, facts.of_splits([name])) for name in facts.splits]
    yield _within(facts, "copies_within_splits", facts.splits, copies)
    if talks is not None:
        near = [near_duplicates(talks, facts.of_splits([name]), JACCARD) for name in facts.trained]
        yield _within(facts, "near_within_splits", facts.trained, near)


def _within(facts: _Facts, code: str, splits: Sequence[str], found: Sequence[DroppedRows]) -> _Compared:
    """Judge what was found in splits; also in the file with the largest share of it, which may be few of all rows."""
    rows, pairs = facts.of_splits(splits), [pair for each in found for pair in _pairs(each)]
    parts = [_Part("", len(rows), pairs)]
    lost = np.array([first for first, *_ in pairs], np.int64)
    sizes, counts = (np.bincount(facts.source[each], minlength=len(facts.files)) for each in (rows, lost))
    worst = int(np.where(sizes >= FEW_ROWS, counts / np.maximum(sizes, 1), 0.0).argmax())
    if FEW_ROWS <= sizes[worst] < len(rows):
        own = [pair for pair in pairs if facts.source[pair[0]] == worst]
        parts.append(_Part(facts.files[worst], int(sizes[worst]), own))
    capped = "; so many share a template that not all were compared" * any(each.num_capped for each in found)
    return _judged(facts, code, parts, capped)


def _judged(facts: _Facts, code: str, parts: Sequence[_Part], more: str = "") -> _Compared:
    """Make a check of the rows that match; its level is that of the part with the largest share of them."""
    kind, levels, told = KINDS[code], list[Level](["ok"]), list[str]()
    for name, num_rows, pairs in parts:
        share = len(pairs) / max(num_rows, 1)
        if pairs:
            levels.append("error" if share >= kind.fails else "warning" if share >= kind.warns else "note")
            what = kind.found.format(others=" or ".join(facts.trained))
            told.append(f"{len(pairs):,} of {plural(num_rows, 'row')}{f' of {name}' if name else ''}: {what}")
    level = max(levels, key=("ok", "note", "warning", "error").index)
    is_other = not code.endswith("within_splits") and SPLIT_NAMES[0] not in facts.trained
    matching = {pair for part in parts for pair in part.pairs}

    def interest(pair: Pair) -> tuple[bool, float, int]:
        first, second, similarity = pair
        return bool(facts.prompt[first] == facts.prompt[second]), -similarity, first

    return CodedFinding(
        code=code,
        level=level,
        message="; ".join(told) + more if told else kind.none,
        hint=None if level in {"ok", "note"} else _OTHER_NAME * is_other + kind.hint,
        count=len({first for first, *_ in matching}),
    ), () if level in {"ok", "note"} else sorted(matching, key=interest)[:SHOWN]


def _pairs(copies: DroppedRows) -> list[Pair]:
    return list(zip(copies.row.tolist(), copies.kept.tolist(), copies.similarity.tolist(), strict=True))


def _with_texts(
    results: Sequence[_Compared], facts: _Facts, parts: Sequence[InputPart], max_row_bytes: int
) -> Iterator[CodedFinding]:
    """Yield the checks with pairs of rows as examples, one below the other, whose texts are read again.

    Differences are marked if they are a small part.
    """
    wanted = {facts.place(row) for _, pairs in results for pair in pairs for row in pair[:2]}
    texts = {
        (part.source, row): _text(sample)
        for part in parts
        for row, sample in part.samples({row for source, row in wanted if source == part.source}, max_row_bytes)
    }
    for found, pairs in results:
        yield replace(found, examples=tuple(each for pair in pairs for each in _examples(pair, facts, texts)))


def _examples(pair: Pair, facts: _Facts, texts: dict[tuple[int, int], str]) -> Iterator[Example]:
    *rows, similarity = pair
    own = [texts.get(facts.place(row), "") for row in rows]
    start = common_length(*own)
    end = common_length(*(text[start:][::-1] for text in own))
    is_small = 2 * (start + end) >= max(map(len, own)) and own[0] != own[1]
    for row, text, more in zip(rows, own, ("", "" if similarity == 1 else f", {similarity:.2f} alike"), strict=True):
        source, number = facts.place(row)
        label = f"{facts.splits[int(facts.split[row])]} {facts.files[source]}:{number}{more}"
        yield Example(label=label, text=text, mark=(start, len(text) - end) if is_small else None)


def _text(sample: Sample) -> str:
    """Return the texts of a row's messages; for a pretokenized row, its ids as numbers."""
    if sample.pretokenized is None:
        return "\n".join(text for _, text in utterances(sample))
    return " ".join(map(str, sample.pretokenized.input_ids.tolist()))
