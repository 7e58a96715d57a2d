"""Fixed-width columns of rows, read one record batch at a time when a row of it is first needed."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.batches import Int64
from packer.layout import offsets_of
from packer.store.column_ranges import read_columns
from packer.store.numbered_rows import NumberedRows


class RowColumns:
    """Fixed-width columns of some rows, by name and stored type, read when needed. Thread-safe; no digest is checked.

    Raises:
        CheckError: from any method, if a shard is truncated or has no such column.
        StorageError: from any method, if it cannot be read.
    """

    def __init__(self, rows: NumberedRows[Any], columns: Mapping[str, type[np.generic]]) -> None:
        self._rows, self._columns = rows, columns
        self._batches = [(number, place) for number, shard in enumerate(rows.shards) for place in shard.places]
        self._bounds = offsets_of([place.num_rows for _, place in self._batches])
        self._values = [np.zeros(int(self._bounds[-1]), kind) for kind in columns.values()]
        self._unknown = np.ones(len(self._batches), np.bool_)

    def of(self, rows: Int64) -> list[npt.NDArray[Any]]:
        """Return the columns of some rows.  # [R] each

        Raises:
            IndexError: a row that is not there.
        """
        numbers = self._rows.stored_numbers(rows)
        if self._unknown.any():
            batches = np.unique(np.searchsorted(self._bounds, numbers, side="right") - 1)
            self._read(batches[self._unknown[batches]])
        return [values[numbers] for values in self._values]

    def of_all(self) -> list[npt.NDArray[Any]]:
        """Return the columns of all rows.  # [N] each"""
        self._read(np.flatnonzero(self._unknown))
        return [self._rows.own(values) for values in self._values]

    def _read(self, batches: Int64) -> None:
        shards = self._rows.shards
        groups = [(number, [*own]) for number, own in groupby(batches.tolist(), lambda batch: self._batches[batch][0])]
        wanted = [(shards[number], [self._batches[batch][1] for batch in own]) for number, own in groups]
        for (_, own), found in zip(groups, read_columns(self._rows.folder, wanted, self._columns), strict=True):
            numbers = np.concatenate([np.arange(*self._bounds[[batch, batch + 1]]) for batch in own])
            for values, column in zip(self._values, found, strict=True):
                values[numbers] = column
            self._unknown[own] = False
