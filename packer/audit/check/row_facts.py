"""Facts about rows, computed from their files: what checks compare.

They are the same traits that a build computes for its rules, computed again from the files. The traits stored in a
cache are deliberately not used: a check must not rely on what the build decided by, and it must work alike for caches
that were built without rules about rows and for rows that were never built.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.arrow_arrays import array_of, numbers_of
from packer.audit.input_parts import InputPart
from packer.batches import Int64, Sample, UInt64
from packer.curate.contamination import Hits, Questions
from packer.curate.select import column, digests
from packer.curate.signatures import Signatures, signatures_in
from packer.curate.trait_rules import TraitRules
from packer.curate.traits import TraitMaker
from packer.pipeline.workers.executor import Workers
from packer.progress import Progress
from packer.store.cache import Cache

NGRAM = 3
"""Words per shingle for finding near duplicates; a shorter prompt is too short to identify a row."""

Place: TypeAlias = tuple[int, int]
"""Index of a file, and of a row in it."""


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

    questions: Hits
    """Which rows contain which questions, numbered across all benchmarks."""

    def place(self, row: int) -> Place:
        """Return the file and row number of a row."""
        return int(self.source[row]), int(self.row[row])

    def of_split(self, name: str) -> Int64:
        """Return the indices of the rows of a split.  # int64[M]"""
        return np.flatnonzero(self.split == self.splits.index(name))


class Rows(NamedTuple):
    """Every row of some parts, including those that could not be read. R rows."""

    source: Int64  # [R]
    row: Int64  # [R]
    table: pa.Table  # one fact per column


def read_parts(
    parts: Sequence[InputPart],
    max_row_bytes: int,
    questions: Questions | None,
    workers: Workers,
    progress: Progress,
    *,
    near: bool,
) -> Rows:
    """Read the rows of one or more parts, and compute the facts of each: benchmark questions, `near` duplicates.

    Raises:
        InputError: a file changed while it was read.
        WorkerDiedError: a process was killed.
    """
    found: dict[int, pa.Table] = {}
    sizes = [part.num_bytes for part in parts]
    for number, table in workers.run(partial(_reader, near=near), (max_row_bytes, questions), parts, sizes=sizes):
        found[number] = table
        progress.advance(table.num_rows)
    tables = [found[number] for number in range(len(parts))]
    source = np.repeat(np.array([part.source for part in parts]), [table.num_rows for table in tables])
    table = pa.concat_tables(tables)
    return Rows(source, numbers_of(table.column("row")), table)


def splits_of(cache: Cache, rows: Rows) -> Int64:
    """Return the split of each row that has documents, as an index into the cache's splits; else -1.  # int64[R]"""
    first = np.cumsum([0, *(entry.num_rows for entry in cache.manifest.inputs)])
    wanted, found = first[rows.source] + rows.row, np.full(len(rows.row), -1)
    for number, name in enumerate(cache.splits("documents")):
        sources, numbers = cache.documents(name).origins()
        found[np.isin(wanted, first[sources] + numbers)] = number
    return found


def facts_of(
    rows: Rows, split: Int64, *, files: Sequence[str], splits: Sequence[str], trained: Sequence[str]
) -> RowFacts:
    """Return the facts of the rows that are in a split; `split` has the split index of each row, or -1."""
    kept, table = np.flatnonzero(split >= 0), rows.table
    names = set(table.column_names)
    return RowFacts(
        source=rows.source[kept],
        row=rows.row[kept],
        split=split[kept],
        files=tuple(files),
        splits=tuple(splits),
        trained=tuple(trained),
        content=digests(table, "content")[kept],
        prompt=column(table, "prompt")[kept],
        prompts=signatures_in(table, "prompt", NGRAM).rows(kept),
        conversations=signatures_in(table, "conversation", NGRAM).rows(kept)
        if f"bands conversation {NGRAM}" in names
        else None,
        questions=_questions_in(table, kept),
    )


def _questions_in(table: pa.Table, rows: Int64) -> Hits:
    """Return which of these rows contain which questions; none if no benchmark was searched for."""
    if "questions" not in table.column_names:
        return Hits(row=np.zeros(0, np.int64), question=np.zeros(0, np.int64), cover=np.zeros(0))
    question, cover = (table.column(name).take(rows).combine_chunks() for name in ("questions", "covers"))
    return Hits(
        row=np.repeat(np.arange(len(rows)), np.diff(numbers_of(question.offsets))),
        question=numbers_of(question.flatten()),
        cover=numbers_of(cover.flatten()),
    )


def read_rows_at(parts: Sequence[InputPart], places: Collection[Place], max_row_bytes: int) -> dict[Place, Sample]:
    """Return some rows."""
    return {
        (part.source, row): sample
        for part in parts
        for row, sample in part.samples({row for source, row in places if source == part.source}, max_row_bytes)
    }


def trained_on(sizes: dict[str, int]) -> tuple[str, ...]:
    """Return the splits whose names begin with `train`; if there are none, the largest split."""
    named = tuple(name for name in sizes if name.startswith("train"))
    return named or tuple(sorted(sizes, key=lambda name: -sizes[name])[:1])


def _reader(max_row_bytes: int, questions: Questions | None, *, near: bool) -> Callable[[InputPart], pa.Table]:
    """Return the function that reads a part, in this or in another process."""
    maker = TraitMaker(TraitRules.for_check(NGRAM, near=near), questions, every_question=True)

    def read(part: InputPart) -> pa.Table:
        tables, first = [], 0
        for rows, numbers in part.batches(max_row_bytes):
            table = pa.Table.from_batches([maker.make(rows, first)])
            tables.append(table.append_column("row", array_of(numbers)))
            first += rows.num_rows
        return pa.concat_tables(tables)

    return read
