"""Facts about rows, computed from their files: what checks compare.

They are the same traits that a build computes for its rules, computed again from the files. The traits stored in a
cache are deliberately not used: a check must not rely on what the build decided by, and it must work alike for caches
that were built without rules about rows and for rows that were never built.
"""

import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.arrow_arrays import array_of, numbers_of
from packer.audit.input_parts import InputPart
from packer.batches import Int64, UInt64
from packer.curate.select import column, digests
from packer.curate.signatures import Signatures, signatures_in
from packer.curate.trait_rules import TraitRules
from packer.curate.traits import TraitMaker
from packer.pipeline.workers.executor import Workers
from packer.progress import Progress
from packer.store.cache import Cache

NGRAM = 3
"""Words per shingle for finding near duplicates; a shorter prompt is too short to identify a row."""


class Compared(NamedTuple):
    """What rows are compared by, besides their texts."""

    near: bool
    group: str | None
    time: str | None
    """Fields of the rows."""


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

    asked: Compared

    content: npt.NDArray[np.bytes_]  # [N] S16 digest of the trained content of a row and of what precedes it
    prompt: UInt64  # [N] hash of the first prompt without case and white space
    prompts: Signatures
    conversations: Signatures | None
    """None if near duplicates are not searched for."""

    group: UInt64 | None  # [N] hash of the value of a field as a text, 0 without one
    time: npt.NDArray[np.float64] | None  # [N] a number that is larger for a later time, NaN without one
    """Of both, None if no row has a value, or no field is to be compared."""

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
    asked: Compared,
    *,
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
    arguments = (TraitRules.for_check(NGRAM, near=asked.near, group=asked.group), asked.time, max_row_bytes)
    for number, table in workers.run(_reader, arguments, parts, sizes=[part.num_bytes for part in parts]):
        found[number] = table
        progress.advance(table.num_rows)
    tables = [found[number] for number in range(len(parts))]
    table = pa.concat_tables(tables)
    source = np.repeat(np.array([part.source for part in parts]), [table.num_rows for table in tables])
    row = numbers_of(table.column("row"))
    split = _splits_of(cache, source, row)
    kept = np.flatnonzero(split >= 0)
    known = (column(table, "known")[kept] & 1).astype(np.uint64)
    group = known if asked.group is None else known * column(table, "group_text")[kept]
    time = numbers_of(table.column("moment"))[kept]
    return RowFacts(
        source=source[kept],
        row=row[kept],
        split=split[kept],
        files=tuple(entry.path for entry in cache.manifest.inputs),
        splits=cache.splits("documents"),
        trained=trained,
        asked=asked,
        content=digests(table, "content")[kept],
        prompt=column(table, "prompt")[kept],
        prompts=signatures_in(table, "prompt", NGRAM).rows(kept),
        conversations=signatures_in(table, "conversation", NGRAM).rows(kept) if asked.near else None,
        group=group if group.any() else None,
        time=None if np.isnan(time).all() else time,
    )


def _splits_of(cache: Cache, source: Int64, row: Int64) -> Int64:
    """Return the split of each row that has documents, as an index into the cache's splits; else -1.  # int64[R]"""
    first = np.cumsum([0, *(entry.num_rows for entry in cache.manifest.inputs)])
    wanted, found = first[source] + row, np.full(len(row), -1)
    for number, name in enumerate(cache.splits("documents")):
        sources, rows = cache.documents(name).origins()
        found[np.isin(wanted, first[sources] + rows)] = number
    return found


def _reader(rules: TraitRules, time: str | None, max_row_bytes: int) -> Callable[[InputPart], pa.Table]:
    """Return the function that reads a part, in this or in another process."""
    maker, fields = TraitMaker(rules), (*rules.fields, *([] if time is None else [time]))

    def read(part: InputPart) -> pa.Table:
        tables, first = [], 0
        for rows, numbers in part.batches(max_row_bytes, fields):
            times = [None] * rows.num_rows if time is None else rows.fields[-1]
            table = pa.Table.from_batches([maker.make(rows, first)]).append_column("row", array_of(numbers))
            tables.append(table.append_column("moment", pa.array(map(_moment, times), pa.float64())))
            first += rows.num_rows
        return pa.concat_tables(tables)

    return read


def _moment(value: Any) -> float:
    """Return a number that is larger for a later time, which is all that a comparison needs; NaN if there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        pass
    try:
        time = dt.datetime.fromisoformat(value.strip()) if isinstance(value, str) else None
    except ValueError:
        return math.nan
    if time is None:
        return math.nan
    return (time.replace(tzinfo=time.tzinfo or dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)).total_seconds()
