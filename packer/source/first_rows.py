"""The first rows of an input, read without reading the input whole.

A build reads every input to its end before it does anything, for digests and partitions. Here a file is opened and read
as far as rows are asked for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path

from packer.batches import Rejection, RowBatch
from packer.source.chunks import broken_array, no_rows, read_chunks, without_mark
from packer.source.decode import Refused
from packer.source.elements import BrokenArray
from packer.source.lines import solid_lines
from packer.source.partition import Format
from packer.source.read import split_rows, understand
from packer.source.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRow:
    """A row as it stands in its file, and what it was understood as."""

    number: int
    """From 0 in the file; blank lines do not count."""

    line: int | None
    """From 1 in the file, where its rows are lines."""

    content: bytes | None
    """None where it is larger than `rows.max_bytes`."""

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
        """The rows from `start` on, one at a time, up to the limit. Those before it are passed over, not decoded.

        Raises:
            InputError: the file cannot be read, holds no rows, or is not the array its format says.

        """
        number = -1
        contents = raw_rows(self.path, format=self.format, max_row_bytes=self.max_row_bytes)
        for number, (content, line) in enumerate(zip(contents, self._lines(), strict=False)):
            if number == self.limit:
                return
            if number >= start:
                yield RawRow(number=number, line=line, content=content, batch=self._batch(number, content))
        if number < 0:
            raise no_rows(self.path)

    def _lines(self) -> Iterator[int | None]:
        if self.format != "jsonl":
            return repeat(None)
        return (line + 1 for line in solid_lines(without_mark(read_chunks(self.path))))

    def _batch(self, number: int, content: bytes | None) -> RowBatch:
        try:
            sample = understand(
                content, number=number, schema=self.schema, columns=self.columns, max_row_bytes=self.max_row_bytes
            )
        except Refused as refused:
            rejection = Rejection(row=number, code=refused.code, reason=refused.reason)
            return RowBatch(samples=(), rejections=(rejection,), num_rows=1)
        return RowBatch(samples=(sample,), rejections=(), num_rows=1)


def raw_rows(path: Path, *, format: Format, max_row_bytes: int) -> Iterator[bytes | None]:  # noqa: A002 - the recipe's word
    """The bytes of every row of a file, from its start; None for a row that is too large.

    Raises:
        InputError: the file cannot be read, is empty, or is not the array its format says.

    """
    chunks = read_chunks(path)
    first = next(chunks, None)
    if first is None:
        raise no_rows(path)
    try:
        yield from split_rows(without_mark(chain([first], chunks)), format=format, max_row_bytes=max_row_bytes)
    except BrokenArray as error:
        raise broken_array(path, error) from None
