"""Rows of ids that another tool prepared, to be compared; one that several sequences were packed into is several."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from packer.audit.foreign.row_parts import TokenRow, sequence_starts
from packer.audit.foreign.tables import ForeignPart
from packer.batches import Int64, PretokenizedTokens, RowBatch, Sample

_BATCH_ROWS = 1024
_MAX_ID = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPart:
    """A Parquet or Arrow file with a column ``input_ids``."""

    file: Path
    source: int
    """Number of the file."""

    def batches(self, max_row_bytes: int) -> Iterator[tuple[RowBatch, Int64]]:  # noqa: ARG002 - as of an InputPart
        """Its sequences, and of each the number of its row in the file; a batch without any where there are none."""
        found, first = self._sequences(range(len(self._part()))), 0
        while (some := [*islice(found, _BATCH_ROWS)]) or not first:
            samples = tuple(Sample(kind="tokens", row=row, given=given) for row, (_, given) in enumerate(some, first))
            numbers = np.array([number for number, _ in some], np.int64)
            yield RowBatch(samples=samples, rejections=(), num_rows=len(samples)), numbers
            first += len(samples) or 1

    def samples(self, rows: Collection[int], max_row_bytes: int) -> Iterator[tuple[int, Sample]]:  # noqa: ARG002 - as above
        """The sequences of some rows, each with the number of its row."""
        for number, given in self._sequences(sorted(rows)):
            yield number, Sample(kind="tokens", row=number, given=given)

    def _part(self) -> ForeignPart:
        return ForeignPart(self.file, "", [self.file])

    def _sequences(self, numbers: Sequence[int]) -> Iterator[tuple[int, PretokenizedTokens]]:
        """Sequences of some rows, ascending, without padding; none of a row whose columns differ in length."""
        for row in self._part().read(numbers):
            if not row.columns_differ:
                yield from ((row.number, given) for given in _parted(row))


def _parted(row: TokenRow) -> Iterator[PretokenizedTokens]:
    ids, weight = np.clip(row.input_ids, 0, _MAX_ID).astype(np.int32), row.trained.astype(np.float32)
    mask = row.columns.get("attention_mask")
    kept = np.ones(len(ids), np.bool_) if mask is None else mask != 0
    number = np.cumsum(sequence_starts(row))
    for each in np.unique(number[kept]):
        own = kept & (number == each)
        yield PretokenizedTokens(
            input_ids=ids[own], weight=weight[own], num_padding=0, by_labels=row.labels is not None
        )
