"""The first rows of an input, read without reading the input whole.

A build reads every input to its end before it does anything, for digests and partitions. Here a file is opened and read
as far as rows are asked for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from packer.batches import RowBatch
from packer.source.decode import Refused
from packer.source.file_bytes import no_rows
from packer.source.partition import Format
from packer.source.read import read_batch
from packer.source.row import FileRow
from packer.source.rows import file_rows
from packer.source.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRow:
    """A row as it stands in its file, and what it was understood as."""

    number: int
    """From 0 in the file; blank lines do not count."""

    line: int | None
    """From 1 in the file, where its rows are lines."""

    content: bytes | None
    """None where it is larger than `rows.max_bytes`. Of a row that is no JSON in its file, its values as JSON; None
    where they could not be had."""

    batch: RowBatch
    """The row alone: one sample or one rejection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """An input, and how its rows are read."""

    name: str
    """As a recipe would name this file alone."""

    path: Path
    split: str
    format: Format
    schema: Schema
    columns: Mapping[str, str | None]
    limit: int | None
    """Rows of the file that the recipe takes; None takes all."""

    max_row_bytes: int

    def rows(self, start: int = 0) -> Iterator[RawRow]:
        """The rows from `start` on, one at a time, up to the limit. Those before it are passed over.

        Raises:
            InputError: the file cannot be read, holds no rows, or is not what its format says.

        """
        number = -1
        found = file_rows(
            self.path,
            format=self.format,
            schema=self.schema,
            columns=self.columns,
            max_row_bytes=self.max_row_bytes,
        )
        for number, row in enumerate(found):
            if number == self.limit:
                return
            if number >= start:
                batch = read_batch([row], number, first_line=0, schema=self.schema, columns=self.columns)
                yield RawRow(number=number, line=row.line, content=_as_json(row), batch=batch)
        if number < 0:
            raise no_rows(self.path)


def _as_json(row: FileRow) -> bytes | None:
    if isinstance(row.content, Refused):
        return None
    return row.content if isinstance(row.content, bytes) else msgspec.json.encode(row.content)
