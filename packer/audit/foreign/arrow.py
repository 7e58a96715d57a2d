"""Folders of ``Dataset.save_to_disk``: Arrow streams of rows with a column ``input_ids``."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from packer.audit.foreign.dataset import TOKEN_COLUMNS, ForeignRows, flat_rows
from packer.batches import Int64
from packer.errors import InputError
from packer.layout import offsets_of
from packer.source import data_set_files


def datasets_parts(path: Path) -> tuple["DatasetPart", ...]:
    """The splits of a folder of save_to_disk.

    Raises:
        InputError: a file of it is missing or not what it should be, or there are no token ids.

    """
    files: dict[str, list[Path]] = {}
    for split, file in data_set_files(path):
        files.setdefault(split or "", []).append(file)
    if not files:
        raise InputError(f"{path} names no files")
    return tuple(DatasetPart(path / split, split, there) for split, there in files.items())


class DatasetPart:
    """One split."""

    def __init__(self, folder: Path, name: str, files: Sequence[Path]) -> None:
        self.folder = folder
        self.name = name
        self._files = files
        if "input_ids" not in self._table.column_names:
            raise InputError(
                f"{folder} has no column input_ids (found: {', '.join(self._table.column_names) or 'none'})",
                hint="an audit looks at rows that are tokenized already",
            )
        kind = self._table.schema.field("input_ids").type
        if not any(
            is_kind(kind) for is_kind in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        ):
            raise InputError(f"{folder}: expected input_ids to be lists of numbers, found {kind}")

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._table.column_names)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def tokens(self) -> int:
        return int(pc.sum(pc.list_value_length(self._table.column("input_ids"))).as_py() or 0)

    def read(self, numbers: Int64) -> ForeignRows:
        try:
            table = self._rows(numbers)
            columns = {name: _lists(table.column(name)) for name in TOKEN_COLUMNS if name in self.columns}
            ids = _lists(table.column("input_ids"))
            sequences = _lists(table.column("seq_lengths")) if "seq_lengths" in self.columns else None
        except (pa.ArrowException, ValueError, TypeError, OSError) as error:
            raise InputError(f"{self.folder}: its rows cannot be read as lists of numbers: {error}") from error
        return flat_rows(numbers, ids, columns, sequences)

    def _rows(self, numbers: Int64) -> pa.Table:
        """Rows one behind the other are a view; others are gathered."""
        if len(numbers) and int(numbers[-1] - numbers[0]) == len(numbers) - 1:
            return self._table.slice(int(numbers[0]), len(numbers))
        return self._table.take(pa.array(numbers))

    @cached_property
    def _table(self) -> pa.Table:
        try:
            return pa.concat_tables([_read_stream(file) for file in self._files], promote_options="permissive")
        except pa.ArrowException as error:
            raise InputError(f"{self.folder}: its files differ in their columns: {error}") from error


def _read_stream(path: Path) -> pa.Table:
    try:
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_stream(file).read_all()
            table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return table


def _lists(column: pa.ChunkedArray) -> tuple[npt.NDArray[Any], Int64]:
    """Values and offsets of a list column.

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
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise ValueError(f"expected whole numbers, found {kind}")
    values = flat.cast(pa.int64()).to_numpy() if len(flat) else np.zeros(0, np.int64)
    return values, offsets_of(lengths)
