"""Datasets with a column ``input_ids`` in Arrow and Parquet files: those of ``save_to_disk``, and single files."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from packer.audit.foreign.rows import MASKS, TOKEN_COLUMNS, TokenRow
from packer.batches import Int64
from packer.display import in_shell
from packer.errors import InputError
from packer.host.limits import out_of
from packer.host.regular_file import path_within
from packer.layout import offsets_of
from packer.near_names import did_you_mean, near_paths
from packer.source.files import data_set_splits, is_data_set
from packer.source.partition import Format
from packer.source.table_files import read_group, row_groups, table_schema
from packer.store.manifest import MANIFEST_NAME

_READ = ("input_ids", "seq_lengths", *TOKEN_COLUMNS)
_PATTERNS = ("*.parquet", "*/*.parquet", "*.arrow")
_BATCH_ROWS = 256
_MAX_BATCH_VALUES = 2**28
"""A million for each row. Bits of a mask become whole numbers, and repeated ones take hardly any bytes in a file."""


class ForeignPart:
    """The rows of one split, or of one file, numbered from 0."""

    def __init__(self, place: Path, name: str, files: Sequence[Path]) -> None:
        """Open the files with the rows, in order; unsupported columns are neither read nor checked."""
        self.name, self._place = name, place
        self._groups: list[tuple[int, Callable[[], pa.Table]]] = []
        """Row groups of Parquet or record batches of Arrow: the number of rows of each, and what reads it."""

        names: dict[tuple[str, ...], None] = {}
        for file in files:
            schema, groups = _opened(file)
            self._groups += groups
            self.columns = tuple(dict.fromkeys(schema.names))
            names[tuple(name for name in _READ if name in self.columns)] = None
        if len(names) > 1:
            raise InputError(f"{place}: its files differ in their columns")
        (self._names,) = names
        if "input_ids" not in self._names:
            raise InputError(
                f"{place} has no column input_ids (found: {', '.join(self.columns) or 'none'})",
                hint="an audit needs rows that are already tokenized",
            )

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(num_rows for num_rows, _ in self._groups)

    def read(self, numbers: Sequence[int]) -> Iterator[TokenRow]:
        """Yield the rows with these numbers, which must be ascending."""
        wanted, first = np.array(numbers, np.int64), 0
        for num_rows, read in self._groups:
            own = wanted[slice(*np.searchsorted(wanted, (first, first + num_rows)).tolist())] - first
            if len(own):
                try:
                    yield from self._rows(read(), own, first)
                except (pa.ArrowException, KeyError, ValueError, TypeError, OSError) as error:
                    message = f"{self._place}: its rows cannot be read as lists of numbers: {error}"
                    raise out_of(error) or InputError(message) from error
            first += num_rows

    def _rows(self, table: pa.Table, numbers: Int64, first: int) -> Iterator[TokenRow]:
        for start in range(0, len(numbers), _BATCH_ROWS):
            own = numbers[start : start + _BATCH_ROWS]
            is_slice = own[-1] - own[0] + 1 == len(own)  # a slice is a view, several times faster than take
            batch = table.slice(own[0], len(own)) if is_slice else table.take(pa.array(own))
            found = {name: _lists(batch.column(name), weights=name in MASKS) for name in self._names}
            for place, number in enumerate(own.tolist()):
                columns = {name: lists[place] for name, lists in found.items()}
                ids, lengths = columns.pop("input_ids"), columns.pop("seq_lengths", None)
                yield TokenRow(number=first + number, input_ids=ids, columns=columns, seq_lengths=lengths)


def open_foreign(path: Path) -> tuple[str, tuple[ForeignPart, ...]]:
    """Return the format of the data at a path, and its parts."""
    if "\0" in str(path):
        raise InputError(f"{str(path)!r}: a path cannot contain a NUL character")
    if is_data_set(path):
        splits = [(split or "", files) for split, files in data_set_splits(path) if files]
        if not splits:
            raise InputError(f"{path} has no rows: it names no files")
        return "datasets", tuple(ForeignPart(path / split, split, files) for split, files in splits)
    if (path / MANIFEST_NAME).is_file():
        raise InputError(f"{path} is a cache, not the output of another tool", hint=f"packer verify {in_shell(path)}")
    if path.is_file() and path.suffix in {".parquet", ".arrow"}:
        return path.suffix[1:], (ForeignPart(path, "", [path]),)
    for pattern in _PATTERNS:
        if names := [file.relative_to(path).as_posix() for file in sorted(path.glob(pattern))]:
            files = [(path_within(path, name), name if len(names) > 1 else "") for name in names]
            return files[0][0].suffix[1:], tuple(ForeignPart(file, name, [file]) for file, name in files)
    if not path.exists():
        raise InputError(
            f"{path}: no such file or folder",
            hint=did_you_mean(near_paths(path), f"looked in {path.parent.absolute()}"),
        )
    inside = ", ".join(str(folder) for folder in sorted(path.glob("*")) if is_data_set(folder))
    raise InputError(
        f"{path} is not something that an audit reads",
        hint=f"it contains data sets; name one of them: {inside}"
        if inside
        else "it reads what save_to_disk writes, Parquet and Arrow with input_ids; docs/how-to/audit.md shows how "
        "to save JSON lines, MDS and token arrays that way",
    )


def _opened(path: Path) -> tuple[pa.Schema, list[tuple[int, Callable[[], pa.Table]]]]:
    kind: Format = "parquet" if path.suffix == ".parquet" else "arrow"
    schema = table_schema(path, kind)
    columns = [name for name in _READ if name in schema.names]
    return schema, [
        (group.num_rows, partial(read_group, path, kind, group, columns)) for group in row_groups(path, kind)
    ]


def _lists(column: pa.ChunkedArray, *, weights: bool) -> list[Int64]:
    """Return the rows of a list column, as 0 and 1 if `weights`; ValueError for nulls and what are no integers."""
    offsets = offsets_of(pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64))
    if offsets[-1] > _MAX_BATCH_VALUES:
        raise ValueError(f"{len(column)} rows have {offsets[-1]:,} values")
    flat = pc.list_flatten(column)
    kind = flat.type
    if nulls := column.null_count + flat.null_count:
        raise ValueError(f"{nulls} rows or values are null")
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or (weights and pa.types.is_floating(kind))):
        raise ValueError(f"expected whole numbers, found {kind}")
    values = (flat.to_numpy() != 0).astype(np.int64) if weights else flat.cast(pa.int64()).to_numpy()
    return [values[start:end] for start, end in pairwise(offsets.tolist())]
