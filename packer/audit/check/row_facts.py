"""Facts about rows, computed from their files: what checks compare.

They are the same traits that a build computes for its rules, computed again from the files. The traits stored in a
cache are deliberately not used: a check must not rely on what the build decided by, and it must work alike for caches
that were built without rules about rows and for rows that were never built.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    arguments = (TraitRules.for_check(NGRAM, near=near), max_row_bytes)
    for number, table in workers.run(_reader, arguments, parts, sizes=[part.num_bytes for part in parts]):
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
