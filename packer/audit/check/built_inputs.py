"""The inputs of a cache, found where its manifest says and compared with it, to be read again row by row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast, get_args

from packer.batches import RowBatch, Sample
from packer.errors import PackerError
from packer.pipeline.input_resolution import input_place
from packer.progress import Progress
from packer.recipe import Recipe
from packer.source import SCHEMAS, Partition, partition_file, read_rows
from packer.source.partition import Format
from packer.store.manifest import Input


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPart:
    """A partition of an input."""

    partition: Partition
    entry: Input
    source: int
    """Number of the input in the manifest."""

    def rows(self, max_row_bytes: int) -> Iterator[RowBatch]:
        """Its rows, read as the build read them.

        Raises:
            InputError: the input changed meanwhile.

        """
        entry = self.entry
        return read_rows(
            self.partition,
            schema=entry.schema,
            columns=entry.columns,
            roles=entry.roles,
            max_row_bytes=max_row_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltInputs:
    """The partitions of all inputs that are what was built from."""

    parts: tuple[InputPart, ...]
    missing: tuple[tuple[str, str], ...]
    """Inputs that are not, and why."""

    max_row_bytes: int

    def samples(self, source: int, rows: Sequence[int]) -> Iterator[tuple[int, Sample]]:
        """Some rows of an input with their numbers; those that could not be read are not there.

        Raises:
            InputError: the input changed meanwhile.

        """
        for part in self.parts:
            first = part.partition.first_row
            own = {row - first for row in rows if first <= row < first + part.partition.num_rows}
            if part.source != source or not own:
                continue
            for batch in part.rows(self.max_row_bytes):
                yield from ((first + sample.row, sample) for sample in batch.samples if sample.row in own)


def find_inputs_again(inputs: Sequence[Input], recipe: Recipe, progress: Progress) -> BuiltInputs:
    """Cut every input into partitions, in one pass over its bytes, and compare its sha256 with the manifest's."""
    parts: list[InputPart] = []
    missing: list[tuple[str, str]] = []
    progress.stage("inputs", sum(entry.num_bytes for entry in inputs), "bytes")
    for source, entry in enumerate(inputs):
        if entry.format not in get_args(Format) or entry.schema not in SCHEMAS:
            missing.append((entry.path, f"schema '{entry.schema}' in format '{entry.format}' is not known"))
            continue
        try:
            cut = partition_file(
                input_place(entry.path),
                format=cast("Format", entry.format),
                partition_bytes=recipe.partition_bytes,
                limit=entry.num_rows,
            )
        except PackerError as error:
            missing.append((entry.path, error.message.removeprefix(f"{entry.path}: ")))
        else:
            if cut.sha256 != entry.sha256:
                missing.append((entry.path, "it is not the file that was built from"))
            else:
                parts += [InputPart(partition=each, entry=entry, source=source) for each in cut.partitions]
        progress.advance(entry.num_bytes)
    return BuiltInputs(parts=tuple(parts), missing=tuple(missing), max_row_bytes=recipe.rows.max_bytes)
