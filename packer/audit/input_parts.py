"""The inputs of a cache, located through its manifest and partitioned as in its build, for reading them again."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import cast, get_args

import numpy as np

from packer.batches import Int64, RowBatch, Sample
from packer.errors import InputError, PackerError
from packer.pipeline.plan.source_roots import SourceRoots
from packer.pipeline.workers.executor import ALONE, Workers
from packer.progress import Progress
from packer.source.file_bytes import file_sha256
from packer.source.file_cuts import partition_file
from packer.source.partition import Format, Partition
from packer.source.rows import read_rows
from packer.source.schema import SCHEMAS
from packer.store.manifest import Input


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPart:
    """A partition of an input, and how to read its rows."""

    partition: Partition
    entry: Input
    source: int

    @property
    def num_bytes(self) -> int:
        return self.partition.num_bytes

    def rows(self, max_row_bytes: int, fields: Sequence[str] = ()) -> Iterator[RowBatch]:
        """Read the partition's rows as the build did; `fields` are extra fields of the rows that rules need."""
        return read_rows(
            self.partition,
            schema=self.entry.schema,
            columns=self.entry.columns,
            roles=self.entry.roles,
            max_row_bytes=max_row_bytes,
            fields=fields,
        )

    def batches(self, max_row_bytes: int, fields: Sequence[str] = ()) -> Iterator[tuple[RowBatch, Int64]]:
        """Yield the rows in batches, each with the rows' numbers in the input."""
        for rows in self.rows(max_row_bytes, fields):
            yield rows, self.partition.first_row + rows.first + np.arange(rows.num_rows)

    def samples(self, rows: Collection[int], max_row_bytes: int) -> Iterator[tuple[int, Sample]]:
        """Yield the requested rows of the input that are in this partition and can be read, each with its number."""
        first = self.partition.first_row
        own = {row - first for row in rows if first <= row < first + self.partition.num_rows}
        for batch in self.rows(max_row_bytes) if own else ():
            yield from ((first + sample.row, sample) for sample in batch.samples if sample.row in own)


def read_inputs(
    inputs: Sequence[Input], partition_bytes: int | None, roots: SourceRoots, workers: Workers, progress: Progress
) -> list[tuple[InputPart, ...] | str]:
    """Compare the bytes of each input with those of its build, and cut it into the partitions of its build.

    Returns the partitions of an unchanged input, none if it is not to be cut; or else what was found in its place.
    """
    from packer.pipeline.plan.inputs import MIN_PARALLEL_BYTES, read_whole  # noqa: PLC0415 - imports all that renders

    sizes = [entry.num_bytes for entry in inputs]
    progress.stage("inputs", sum(sizes), "bytes")
    workers = ALONE if sum(sizes) < MIN_PARALLEL_BYTES else workers
    return read_whole(partial(_read_input, partition_bytes, roots), list(enumerate(inputs)), sizes, workers, progress)


def _read_input(
    partition_bytes: int | None, roots: SourceRoots, task: tuple[int, Input]
) -> tuple[InputPart, ...] | str:
    source, entry = task
    parts: tuple[InputPart, ...] = ()
    try:
        if partition_bytes is None:
            digest = file_sha256(roots.file(entry.path))
        else:
            digest, parts = _cut(entry, source, partition_bytes, roots)
    except PackerError as error:
        with suppress(PackerError):  # one that can be read, but not cut, may be another file
            if (digest := file_sha256(roots.file(entry.path))) != entry.sha256:
                return f"sha256 {digest}"
        return error.message.removeprefix(f"{entry.path}: ")
    return parts if digest == entry.sha256 else f"sha256 {digest}"


def _cut(entry: Input, source: int, partition_bytes: int, roots: SourceRoots) -> tuple[str, tuple[InputPart, ...]]:
    """Return the sha256 of an input, and its partitions, in one pass over its bytes."""
    if entry.format not in get_args(Format) or entry.schema not in SCHEMAS:
        raise InputError(f"{entry.path}: schema '{entry.schema}' in format '{entry.format}' is not known")
    cut = partition_file(
        roots.file(entry.path),
        format=cast("Format", entry.format),
        partition_bytes=partition_bytes,
        limit=entry.num_rows,  # a limit keeps the first rows of the file
    )
    return cut.sha256, tuple(InputPart(partition=each, entry=entry, source=source) for each in cut.partitions)
