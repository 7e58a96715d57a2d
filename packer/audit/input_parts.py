"""The inputs of a cache, found where its manifest says and cut again as its build cut them, to be read row by row."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast, get_args

import numpy as np

from packer.batches import Int64, RowBatch, Sample
from packer.errors import InputError
from packer.pipeline.executor import ALONE, Workers
from packer.pipeline.input_resolution import input_place
from packer.pipeline.inputs import CHEAPER, WORTH_SHARING
from packer.progress import Progress
from packer.source import SCHEMAS, STANDARD_INPUT, Partition, partition_file, read_rows
from packer.source.partition import Format
from packer.store.manifest import Input

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPart:
    """A partition of an input, and how its rows are read."""

    partition: Partition
    entry: Input
    source: int
    """Number of the input in the manifest."""

    @property
    def num_bytes(self) -> int:
        return self.partition.num_bytes

    def rows(self, max_row_bytes: int, fields: Sequence[str] = ()) -> Iterator[RowBatch]:
        """Its rows, read as the build read them, with the fields that are asked about."""
        return read_rows(
            self.partition,
            schema=self.entry.schema,
            columns=self.entry.columns,
            roles=self.entry.roles,
            max_row_bytes=max_row_bytes,
            fields=fields,
        )

    def batches(self, max_row_bytes: int) -> Iterator[tuple[RowBatch, Int64]]:
        """Its rows, and of each its number in the input."""
        first = self.partition.first_row
        for rows in self.rows(max_row_bytes):
            yield rows, np.arange(first, first + rows.num_rows)
            first += rows.num_rows

    def samples(self, rows: Collection[int], max_row_bytes: int) -> Iterator[tuple[int, Sample]]:
        """Those rows of the input that lie in it and could be read, each with its number."""
        first = self.partition.first_row
        own = {row - first for row in rows if first <= row < first + self.partition.num_rows}
        for batch in self.rows(max_row_bytes) if own else ():
            yield from ((first + sample.row, sample) for sample in batch.samples if sample.row in own)


def of_inputs(
    make: Callable[..., Callable[[tuple[int, Input]], Result]],
    arguments: Sequence[Any],
    inputs: Sequence[Input],
    workers: Workers,
    progress: Progress,
) -> list[Result]:
    """What a function that `make` gives makes of each input and its number; of many bytes, several at a time."""
    if sum(entry.num_bytes for entry in inputs) < WORTH_SHARING or any(each.path == STANDARD_INPUT for each in inputs):
        workers = ALONE  # nor has another process what was piped in
    progress.stage("inputs", sum(entry.num_bytes for entry in inputs), "bytes")
    sizes = [entry.num_bytes // CHEAPER for entry in inputs]
    made: dict[int, Result] = {}
    for number, result in workers.run(make, arguments, list(enumerate(inputs)), sizes=sizes):
        made[number] = result
        progress.advance(inputs[number].num_bytes)
    return [made[number] for number in range(len(inputs))]


def cut_input(entry: Input, source: int, partition_bytes: int) -> tuple[InputPart, ...]:
    """Cut an input into the partitions of its build, in one pass over its bytes.

    Raises:
        InputError: it cannot be read, or is not the file that was built from.
        UsageError: it was standard input, and nothing is piped in.

    """
    if entry.format not in get_args(Format) or entry.schema not in SCHEMAS:
        raise InputError(f"{entry.path}: schema '{entry.schema}' in format '{entry.format}' is not known")
    cut = partition_file(
        input_place(entry.path),
        format=cast("Format", entry.format),
        partition_bytes=partition_bytes,
        limit=entry.num_rows,  # whatever left rows out, those that were taken are the first
    )
    if cut.sha256 != entry.sha256:
        raise InputError(f"{entry.path}: it is not the file that was built from")
    return tuple(InputPart(partition=each, entry=entry, source=source) for each in cut.partitions)
