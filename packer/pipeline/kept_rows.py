"""Rows in memory, written beside the cache: the files a build reads, and its cache names as inputs.

A build reads its inputs more than once, a cache names them, and `verify --reencode` reads them again. Rows in memory
have no name and end with the process. So they are written first, to `CACHE.rows/SPLIT-DIGEST.jsonl` or `.arrow`, and
built as any file is. The name holds the first half of the sha256 of the bytes:

- The same rows get the same name, so that building them again finds nothing to do.
- Other rows get another name, so that what a cache names stays until another cache has taken its place.

They lie beside the cache and not in it, because a cache is what training needs: it can be copied without its inputs,
and everything in it is covered by its fingerprint.

Mappings are written as JSON lines, what brings Arrow data as an Arrow stream: there a null in a struct is a key that is
missing, which JSON could not say.
"""

import json
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from packer.errors import InputError
from packer.limits import storage_errors
from packer.progress import Progress
from packer.store.folder import AtomicFile, sweep_temporary

_ROWS_OF_A_BATCH = 1000
_ROWS_OF_AN_ADVANCE = 1000
_KEPT = re.compile(r"[^/]+-[0-9a-f]{32}\.(?:jsonl|arrow)")


@runtime_checkable
class ArrowData(Protocol):
    """What exports Arrow data, whatever library it is of: tables and readers of pyarrow, data frames."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def rows_folder(cache: Path) -> Path:
    """Where the rows of a cache are kept that had no file: beside it, under its name."""
    cache = cache if cache.name not in ("", "..") else cache.resolve()
    return cache.with_name(f"{cache.name}.rows")


def keep_rows(rows: Any, folder: Path, *, split: str, limit: int | None, progress: Progress) -> Path:
    """Write rows to a file whose name is their digest; read once, and held in memory a thousand at a time.

    Args:
        rows: mappings, or what brings Arrow data: :class:`ArrowData`, or a `datasets.Dataset`.
        folder: where the file is put.
        split: begins its name.
        limit: rows to take; None takes all.
        progress: listens.

    Raises:
        TypeError: a row is no mapping, or holds what JSON cannot.
        InputError: there are no rows.
        StorageError: the disk refuses.

    """
    progress.stage("rows", _length(rows, limit), "rows")
    batches = _arrow_batches(rows)
    with AtomicFile(folder) as file:
        if batches is None:
            num_rows = _write_lines(rows, file, limit, progress.advance)
        else:
            num_rows = _write_batches(batches, file, limit, progress.advance)
        if not num_rows:
            raise InputError(
                f"no rows for split '{split}': {reprlib.repr(rows)} holds none",
                hint="an iterator can be read once: make it again, or give a list",
            )
        path = folder / f"{split}-{file.digest.sha256[:32]}.{'jsonl' if batches is None else 'arrow'}"
        if not path.exists():
            progress.note(f"{num_rows:,} rows are kept in {path}, which the cache names as its input")
        return file.commit(path.name)


def remove_rows(folder: Path, *, but: Iterable[str] = ()) -> None:
    """Remove the files that :func:`keep_rows` wrote into a folder, and the folder where nothing is left in it.

    Raises:
        StorageError: the disk refuses.

    """
    kept = {Path(path).name for path in but}
    if not folder.is_dir():
        return
    sweep_temporary(folder)
    with storage_errors("remove files of", folder):
        for path in folder.iterdir():
            if _KEPT.fullmatch(path.name) and path.name not in kept:
                path.unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()


def brings_arrow(rows: Any) -> bool:
    """Whether rows come as Arrow data: by the Arrow stream interface, or as a `datasets.Dataset` that is no stream."""
    return isinstance(rows, ArrowData) or _is_dataset(rows)


def _is_dataset(rows: Any) -> bool:
    return all(hasattr(rows, name) for name in ("with_format", "iter", "num_rows", "features"))


def _length(rows: Any, limit: int | None) -> int:
    """Number of rows, 0 where it is not known before they are read."""
    try:
        number = len(rows)
    except TypeError:
        number = 0
    return min(number, limit) if limit is not None else number


# Tables


def _arrow_batches(rows: Any) -> pa.RecordBatchReader | None:
    """The rows as Arrow data in batches; None where they are no tables."""
    if isinstance(rows, ArrowData):
        return pa.RecordBatchReader.from_stream(rows)
    if not _is_dataset(rows):
        return None
    # Its files may hold other columns and more rows than it has; what it gives is what it is.
    tables = rows.with_format("arrow").iter(batch_size=_ROWS_OF_A_BATCH)
    schema = rows.features.arrow_schema
    return pa.RecordBatchReader.from_batches(schema, (batch for table in tables for batch in table.to_batches()))


def _write_batches(
    batches: pa.RecordBatchReader, file: AtomicFile, limit: int | None, advance: Callable[[int], None]
) -> int:
    num_rows = 0
    schema = batches.schema.remove_metadata()
    with pa.ipc.new_stream(file, schema) as writer:
        for batch in batches:
            taken = batch if limit is None else batch.slice(0, limit - num_rows)
            for start in range(0, taken.num_rows, _ROWS_OF_A_BATCH):
                piece = taken.slice(start, _ROWS_OF_A_BATCH)
                writer.write_batch(pa.RecordBatch.from_arrays(piece.columns, schema=schema))
                num_rows += piece.num_rows
                advance(piece.num_rows)
            if num_rows == limit:
                break
    return num_rows


# JSON lines


def _write_lines(rows: Iterable[Any], file: AtomicFile, limit: int | None, advance: Callable[[int], None]) -> int:
    number, told = 0, 0
    for number, row in enumerate(islice(rows, limit), start=1):
        file.write(_line(row, number - 1))
        if number - told == _ROWS_OF_AN_ADVANCE:
            advance(number - told)
            told = number
    advance(number - told)
    return number


def _line(row: Any, number: int) -> bytes:
    """One row as a line of JSON, a NaN as null, as in tables.

    Raises:
        TypeError: it is no mapping, or holds what JSON cannot.

    """
    if not isinstance(row, Mapping):
        raise _no_row(f"row {number} is {reprlib.repr(row)}; expected a dict such as {_EXAMPLE}")
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False, default=_own)
    except (TypeError, ValueError, RecursionError):
        try:
            row = _plain(row, number)
        except RecursionError:
            raise _no_row(f"row {number} is nested too deeply, or holds itself") from None
        text = json.dumps(row, ensure_ascii=False)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(row).encode() + b"\n"  # half a surrogate pair: the build rejects the row


_EXAMPLE = '{"messages": [{"role": "user", "content": "…"}, …]}'


def _no_row(message: str) -> TypeError:
    error = TypeError(message)
    error.add_note(
        "hint: rows are dicts of texts, numbers, lists and dicts. Of other objects give model_dump(), "
        "dataclasses.asdict(…) or str(…); leave out fields that training does not need"
    )
    return error


def _own(value: Any) -> Any:
    """What Python has in place of a mapping of another kind, or of a number or an array of a library."""
    if isinstance(value, Mapping):
        return dict(value)
    if callable(tolist := getattr(value, "tolist", None)):
        return tolist()
    raise TypeError


def _plain(value: Any, number: int, place: str = "") -> Any:
    """A value of a row as JSON has it, with a NaN as None.

    Raises:
        TypeError: JSON cannot hold it; names its place.

    """
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str | int | float | None)]:
            raise _no_row(f"row {number}, {place}: key {reprlib.repr(odd[0])} is nothing JSON has")
        return {key: _plain(item, number, f"{place}.{key}" if place else str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, number, f"{place}[{i}]") for i, item in enumerate(value)]
    if hasattr(value, "tolist"):
        return _plain(_own(value), number, place)
    if isinstance(value, float) and math.isnan(value):
        return None
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise _no_row(f"row {number}, {place}: {type(value).__name__} {reprlib.repr(value)} is nothing JSON has")
