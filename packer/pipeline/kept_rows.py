"""Write rows from memory to files beside the cache, which the build reads and the cache names as its inputs.

A build reads its inputs more than once, a cache names them, and `verify --reencode` reads them again. Rows in memory
have no name and disappear with the process. So they are first written to `CACHE.rows/SPLIT-DIGEST.jsonl` or `.arrow`
and then built like any file. DIGEST is the first half of the sha256 of the bytes:

- The same rows get the same name, so that building them again finds the cache up to date.
- Different rows get a different name, so that the inputs of the old cache stay until the new cache has replaced it.

They are stored beside the cache and not in it, because a cache is what training needs: it can be copied without its
inputs, and everything in it is covered by its fingerprint.

Mappings are written as JSON lines, Arrow data as an Arrow stream. Arrow data is not written as JSON because a null in
an Arrow struct means a missing key, while a null in JSON is a value.
"""

import json
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from packer.display import plural
from packer.errors import InputError
from packer.host.files import storage_errors
from packer.store.folder import AtomicFile, sweep_temporary

_ROWS_OF_A_BATCH = 1000
_KEPT = re.compile(r"[^/]+-[0-9a-f]{32}\.(?:jsonl|arrow)")


@runtime_checkable
class ArrowData(Protocol):
    """An object of any library that exports Arrow data: pyarrow tables and readers, data frames."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def rows_folder(cache: Path) -> Path:
    """Return the folder for rows that were passed in memory: beside the cache, named after it."""
    cache = cache if cache.name not in ("", "..") else cache.resolve()
    return cache.with_name(f"{cache.name}.rows")


def keep_rows(rows: Any, folder: Path, *, split: str, limit: int | None, note: Callable[[str], None]) -> Path:
    """Write rows to a file named after their split and digest; they are iterated once, a thousand at a time in memory.

    `rows` are mappings, or Arrow data: :class:`ArrowData` or a `datasets.Dataset`. A row that is no mapping, or
    contains a value that JSON cannot represent, is a TypeError.
    """
    batches = _arrow_batches(rows)
    with AtomicFile(folder, below=folder.parent) as file:
        num_rows = _write_lines(rows, file, limit) if batches is None else _write_batches(batches, file, limit)
        if not num_rows:
            raise InputError(
                f"no rows for split '{split}': {reprlib.repr(rows)} holds none",
                hint="if it was an iterator that has been read: create it again, or pass a list",
            )
        path = folder / f"{split}-{file.digest.sha256[:32]}.{'jsonl' if batches is None else 'arrow'}"
        if not path.exists():
            note(f"{plural(num_rows, 'row')} kept in {path}, which the cache names as its input")
        return file.commit(path.name)


def remove_rows(folder: Path, *, but: Iterable[str] = ()) -> None:
    """Remove the files that :func:`keep_rows` wrote into a folder, and the folder if it is empty then."""
    kept = {Path(path).name for path in but}
    if folder.is_symlink() or not folder.is_dir():
        return
    sweep_temporary(folder)
    with storage_errors("remove files of", folder):
        for path in folder.iterdir():
            if _KEPT.fullmatch(path.name) and path.name not in kept:
                path.unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()


def is_arrow(rows: Any) -> bool:
    """Whether rows are Arrow data: by the Arrow stream interface, or as a `datasets.Dataset` that is not streamed."""
    return isinstance(rows, ArrowData) or _is_dataset(rows)


def _is_dataset(rows: Any) -> bool:
    return all(hasattr(rows, name) for name in ("with_format", "iter", "num_rows", "features"))


# Tables


def _arrow_batches(rows: Any) -> pa.RecordBatchReader | None:
    """Return the rows as Arrow record batches; None if they are not tabular."""
    if isinstance(rows, ArrowData):
        return pa.RecordBatchReader.from_stream(rows)
    if not _is_dataset(rows):
        return None
    # Iterate, as the files behind the data set may have other columns and more rows than the data set itself.
    tables = rows.with_format("arrow").iter(batch_size=_ROWS_OF_A_BATCH)
    schema = rows.features.arrow_schema
    return pa.RecordBatchReader.from_batches(schema, (batch for table in tables for batch in table.to_batches()))


def _write_batches(batches: pa.RecordBatchReader, file: AtomicFile, limit: int | None) -> int:
    num_rows = 0
    with pa.ipc.new_stream(file, batches.schema.remove_metadata()) as writer:
        for batch in batches:
            taken = batch if limit is None else batch.slice(0, limit - num_rows)
            writer.write_table(pa.table(taken.replace_schema_metadata()), max_chunksize=_ROWS_OF_A_BATCH)
            num_rows += taken.num_rows
            if num_rows == limit:
                break
    return num_rows


# JSON lines


def _write_lines(rows: Iterable[Any], file: AtomicFile, limit: int | None) -> int:
    number = 0
    for number, row in enumerate(islice(rows, limit), start=1):
        file.write(_line(row, number - 1))
    return number


def _line(row: Any, number: int) -> bytes:
    """Encode a row as a line of JSON; NaN becomes null, as in tables. TypeError if it cannot."""
    if not isinstance(row, Mapping):
        raise _no_row(f"row {number} is {reprlib.repr(row)}; expected a dict such as {_EXAMPLE}")
    try:
        text = json.dumps(row, ensure_ascii=False, default=_as_builtin)
        if "NaN" in text or "Infinity" in text:
            text = json.dumps(json.loads(text, parse_constant=_null), ensure_ascii=False)
    except RecursionError:
        raise _no_row(f"row {number} is nested too deeply, or contains itself") from None
    except (TypeError, ValueError) as error:
        raise _no_row(f"row {number}: {error}") from None
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(json.loads(text)).encode() + b"\n"  # a lone surrogate: the build rejects the row


_EXAMPLE = '{"messages": [{"role": "user", "content": "…"}, …]}'


def _no_row(message: str) -> TypeError:
    error = TypeError(message)
    error.add_note(
        "hint: rows are dicts of texts, numbers, lists and dicts. For other objects, pass model_dump(), "
        "dataclasses.asdict(…) or str(…); leave out fields that training does not need"
    )
    return error


def _as_builtin(value: Any) -> Any:
    """Convert mappings of other types, and numbers and arrays of libraries, to built-in types."""
    if isinstance(value, Mapping):
        return dict(value)
    if callable(tolist := getattr(value, "tolist", None)):
        return tolist()
    raise TypeError(f"{type(value).__name__} {reprlib.repr(value)} is not a JSON value")


def _null(constant: str) -> None:
    """Read NaN as null; an infinity is no missing value."""
    if constant != "NaN":
        raise ValueError(f"{constant} is not a JSON value")
