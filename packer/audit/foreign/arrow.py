"""Rows with a column ``input_ids``: folders of ``Dataset.save_to_disk``, and files of Parquet or Arrow."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from packer.audit.foreign.dataset import MASKS, TOKEN_COLUMNS, ForeignRows, flat_rows
from packer.audit.foreign.tables import ArrowRows, ParquetRows, TableRows
from packer.batches import Int64
from packer.errors import InputError
from packer.layout import offsets_of
from packer.limits import out_of
from packer.source.dataset_folder import files_of_splits

_READ = ("input_ids", "seq_lengths", *TOKEN_COLUMNS)
_PATTERNS = ("*.parquet", "*/*.parquet", "*.arrow")


def datasets_parts(path: Path) -> tuple["DatasetPart", ...]:
    """The splits of a folder of save_to_disk.

    Raises:
        InputError: a file of it is missing or not what it should be, or there are no token ids.

    """
    parts = [
        DatasetPart(path / (split or ""), split or "", ArrowRows(path / (split or ""), files, _READ))
        for split, files in files_of_splits(path)
        if files
    ]
    if not parts:
        raise InputError(f"{path} holds no rows: it names no files")
    return tuple(parts)


def table_files(path: Path) -> list[Path]:
    """The Parquet or Arrow file at a path, or those of a folder; sorted."""
    if path.is_file():
        return [path] if path.suffix in {".parquet", ".arrow"} else []
    return next((found for found in (sorted(path.glob(pattern)) for pattern in _PATTERNS) if found), [])


def table_part(file: Path, name: str) -> "DatasetPart":
    """The rows of one file."""
    rows: TableRows = ParquetRows(file, _READ) if file.suffix == ".parquet" else ArrowRows(file, [file], _READ)
    return DatasetPart(file, name, rows)


class DatasetPart:
    """One split, or one file."""

    def __init__(self, place: Path, name: str, rows: TableRows) -> None:
        self.name = name
        self._place, self._rows = place, rows
        if "input_ids" not in rows.names:
            raise InputError(
                f"{place} has no column input_ids (found: {', '.join(rows.names) or 'none'})",
                hint="an audit looks at rows that are tokenized already",
            )
        kind = rows.schema.field("input_ids").type
        if not any(
            is_kind(kind) for is_kind in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        ):
            raise InputError(f"{place}: expected input_ids to be lists of numbers, found {kind}")

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._rows.names)

    def __len__(self) -> int:
        return len(self._rows)

    def tokens(self) -> int | None:
        return self._rows.total("input_ids")

    def read(self, numbers: Int64) -> ForeignRows:
        try:
            table = self._rows.take(numbers, [name for name in _READ if name in self.columns])
            found = {name: _lists(table.column(name), weights=name in MASKS) for name in table.column_names}
        except (pa.ArrowException, ValueError, TypeError, OSError) as error:
            raise out_of(error) or InputError(
                f"{self._place}: its rows cannot be read as lists of numbers: {error}"
            ) from error
        return flat_rows(numbers, found.pop("input_ids"), found, found.pop("seq_lengths", None))


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
