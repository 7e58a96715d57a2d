"""Rows of Arrow and Parquet files: mapped, or read row group by row group, and of those only the columns asked for."""

from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from packer.batches import Int64
from packer.errors import InputError
from packer.layout import offsets_of
from packer.limits import out_of
from packer.source.arrow_ipc import MAGIC
from packer.source.parquet import open_parquet


class TableRows(Protocol):
    """Rows numbered from 0."""

    @property
    def names(self) -> Sequence[str]:
        """Of all columns."""

    @property
    def schema(self) -> pa.Schema:
        """Of the columns that may be read, at least."""

    def __len__(self) -> int:
        """Rows."""

    def total(self, column: str) -> int | None:
        """Values in all lists of a column; None where only reading them would tell."""

    def take(self, numbers: Int64, columns: Sequence[str]) -> pa.Table:
        """Some rows, ascending.

        Raises:
            ArrowException, OSError: they cannot be read.

        """


class ArrowRows:
    """Rows of Arrow files, streams or not, one file behind the other."""

    def __init__(self, place: Path, files: Sequence[Path], columns: Collection[str]) -> None:
        """Map the files; of other columns than those named nothing is read or checked.

        Raises:
            InputError: they cannot be read, or differ in their columns.

        """
        found = [_mapped(file, columns) for file in files]
        self.names = tuple(dict.fromkeys(name for names, _ in found for name in names))
        try:
            self._table = pa.concat_tables([table for _, table in found], promote_options="permissive")
        except pa.ArrowException as error:
            raise InputError(f"{place}: its files differ in their columns: {error}") from error

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def total(self, column: str) -> int:
        return int(pc.sum(pc.list_value_length(self._table.column(column))).as_py() or 0)

    def take(self, numbers: Int64, columns: Sequence[str]) -> pa.Table:
        """Rows one behind the other are a view; others are gathered."""
        table = self._table.select(list(columns))
        if len(numbers) and int(numbers[-1] - numbers[0]) == len(numbers) - 1:
            return table.slice(int(numbers[0]), len(numbers))
        return table.take(pa.array(numbers))


class ParquetRows:
    """Rows of one Parquet file."""

    def __init__(self, path: Path, columns: Collection[str]) -> None:
        """Read the footer; it is looked at whether each of some columns is there but once.

        Raises:
            InputError: it cannot be read.

        """
        try:
            self._file = open_parquet(path)
            groups = self._file.metadata
            self._firsts = offsets_of([groups.row_group(i).num_rows for i in range(groups.num_row_groups)])
            self.schema: pa.Schema = self._file.schema_arrow
        except (pa.ArrowException, OSError, ValueError) as error:
            raise out_of(error) or InputError(f"{path} cannot be read: {error}") from error
        self.names = tuple(dict.fromkeys(self.schema.names))
        _check_once(path, self.schema, columns)
        self._read_group = lru_cache(1)(self._group)

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def total(self, column: str) -> None:
        """It stands in no footer."""

    def take(self, numbers: Int64, columns: Sequence[str]) -> pa.Table:
        groups = np.searchsorted(self._firsts, numbers, side="right") - 1
        found = [
            self._read_group(group, tuple(columns)).take(pa.array(numbers[groups == group] - self._firsts[group]))
            for group in np.unique(groups).tolist()
        ]
        return pa.concat_tables(found) if found else self.schema.empty_table().select(list(columns))

    def _group(self, group: int, columns: tuple[str, ...]) -> pa.Table:
        return self._file.read_row_group(group, columns=list(columns))


def _mapped(path: Path, columns: Collection[str]) -> tuple[list[str], pa.Table]:
    """Names of all columns of a file, and those that are read."""
    try:
        with pa.memory_map(str(path)) as file:
            is_stream = file.read(len(MAGIC)) != MAGIC
            file.seek(0)
            table = (pa.ipc.open_stream if is_stream else pa.ipc.open_file)(file).read_all()
            names = table.schema.names
            table = table.select([place for place, name in enumerate(names) if name in columns])
            table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise out_of(error) or InputError(f"{path} cannot be read: {error}") from error
    _check_once(path, table.schema, columns)
    return names, table


def _check_once(path: Path, schema: pa.Schema, columns: Collection[str]) -> None:
    for name in columns:
        count = schema.names.count(name)
        if count > 1:
            raise InputError(f"{path} has {count} columns named {name}, and nothing says which is meant")
