"""Rows with a column ``input_ids`` in Arrow and Parquet files: those of ``Dataset.save_to_disk``, and single ones."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from packer.audit.foreign.foreign_rows import MASKS, TOKEN_COLUMNS, ForeignRows, flat_rows
from packer.batches import Int64
from packer.errors import InputError
from packer.layout import offsets_of
from packer.limits import out_of
from packer.source.files import data_set_splits
from packer.source.table_files import ARROW_MAGIC, open_parquet

_READ = ("input_ids", "seq_lengths", *TOKEN_COLUMNS)
_PATTERNS = ("*.parquet", "*/*.parquet", "*.arrow")


class _Group(NamedTuple):
    """Rows that are read at a time: a row group of Parquet, or a mapped Arrow file."""

    num_rows: int
    read: Callable[[], pa.Table]


class _File(NamedTuple):
    schema: pa.Schema
    groups: list[_Group]


def split_parts(path: Path) -> tuple["TablePart", ...]:
    """The splits of a folder of save_to_disk.

    Raises:
        InputError: a file of it is missing or not what it should be, or there are no token ids.

    """
    splits = [(split or "", files) for split, files in data_set_splits(path) if files]
    if not splits:
        raise InputError(f"{path} holds no rows: it names no files")
    return tuple(TablePart(path / split, split, files) for split, files in splits)


def table_files(path: Path) -> list[Path]:
    """The Parquet or Arrow file at a path, or those of a folder; sorted."""
    if path.is_file():
        return [path] if path.suffix in {".parquet", ".arrow"} else []
    return next((found for found in (sorted(path.glob(pattern)) for pattern in _PATTERNS) if found), [])


class TablePart:
    """The rows of one split, or of one file."""

    def __init__(self, place: Path, name: str, files: Sequence[Path]) -> None:
        """Open the files; of columns that are not understood nothing is read or checked.

        Raises:
            InputError: one cannot be read, they differ in their columns, or there are no token ids.

        """
        self.name = name
        self._place = place
        opened = [_opened(file) for file in files]
        schema = opened[0].schema
        self.columns = tuple(dict.fromkeys(schema.names))
        self._read_columns = [column for column in _READ if column in schema.names]
        if any([name for name in _READ if name in file.schema.names] != self._read_columns for file in opened):
            raise InputError(f"{place}: its files differ in their columns")
        if "input_ids" not in schema.names:
            raise InputError(
                f"{place} has no column input_ids (found: {', '.join(self.columns) or 'none'})",
                hint="an audit looks at rows that are tokenized already",
            )
        kind = schema.field("input_ids").type
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
            raise InputError(f"{place}: expected input_ids to be lists of numbers, found {kind}")
        self._groups = [group for file in opened for group in file.groups]
        self._firsts = offsets_of([group.num_rows for group in self._groups])
        self._is_mapped = all(file.suffix == ".arrow" for file in files)
        self._read_group = lru_cache(1)(lambda number: self._groups[number].read())

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def tokens(self) -> int | None:
        if not self._is_mapped:
            return None
        lengths = (pc.sum(pc.list_value_length(group.read().column("input_ids"))) for group in self._groups)
        return sum(int(length.as_py() or 0) for length in lengths)

    def read(self, numbers: Int64) -> ForeignRows:
        try:
            tables = list(self._tables(numbers))
            table = pa.concat_tables(tables, promote_options="permissive")
            found = {name: _lists(table.column(name), weights=name in MASKS) for name in self._read_columns}
        except (pa.ArrowException, ValueError, TypeError, OSError) as error:
            raise out_of(error) or InputError(
                f"{self._place}: its rows cannot be read as lists of numbers: {error}"
            ) from error
        return flat_rows(numbers, found.pop("input_ids"), found, found.pop("seq_lengths", None))

    def _tables(self, numbers: Int64) -> Iterator[pa.Table]:
        """Rows one behind the other are a view; others are gathered."""
        group_of = np.searchsorted(self._firsts, numbers, side="right") - 1
        for group in np.unique(group_of).tolist():
            rows = numbers[group_of == group] - self._firsts[group]
            table = self._read_group(group)
            is_run = int(rows[-1] - rows[0]) == len(rows) - 1
            yield table.slice(int(rows[0]), len(rows)) if is_run else table.take(pa.array(rows))


def _opened(path: Path) -> _File:
    try:
        found = _parquet(path) if path.suffix == ".parquet" else _arrow(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise out_of(error) or InputError(f"{path} cannot be read: {error}") from error
    for name in _READ:
        count = found.schema.names.count(name)
        if count > 1:
            raise InputError(f"{path} has {count} columns named {name}, and nothing says which is meant")
    return found


def _parquet(path: Path) -> _File:
    file = open_parquet(path)
    columns = [name for name in _READ if name in file.schema_arrow.names]

    def reading(group: int) -> Callable[[], pa.Table]:
        return lambda: file.read_row_group(group, columns=columns)

    sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    return _File(file.schema_arrow, [_Group(size, reading(group)) for group, size in enumerate(sizes)])


def _arrow(path: Path) -> _File:
    """A mapped file, or stream."""
    with pa.memory_map(str(path)) as file:
        is_stream = file.read(len(ARROW_MAGIC)) != ARROW_MAGIC
        file.seek(0)
        table = (pa.ipc.open_stream if is_stream else pa.ipc.open_file)(file).read_all()
    schema = table.schema
    table = table.select([place for place, name in enumerate(schema.names) if name in _READ])
    table.validate(full=True)
    return _File(schema, [_Group(table.num_rows, lambda: table)])


def _lists(column: pa.ChunkedArray, *, weights: bool) -> tuple[npt.NDArray[Any], Int64]:
    """Values and offsets of a list column; of weights whether they are more than nothing.

    Raises:
        ValueError: a null, or values that are not whole numbers.

    """
    if column.null_count:
        raise ValueError(f"{column.null_count} rows are null")
    lengths = pc.list_value_length(column).to_numpy().astype(np.int64)
    flat = pc.list_flatten(column)
    if flat.null_count:
        raise ValueError(f"{flat.null_count} values are null")
    kind = flat.type
    if weights and pa.types.is_floating(kind):
        return flat.to_numpy() != 0, offsets_of(lengths)
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise ValueError(f"expected whole numbers, found {kind}")
    values = flat.cast(pa.int64()).to_numpy() if len(flat) else np.zeros(0, np.int64)
    return values, offsets_of(lengths)
