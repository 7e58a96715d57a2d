"""Parquet and Arrow files: their columns, their row groups, and the record batches of some of the groups.

Parquet has row groups, Arrow IPC has record batches; here both are called groups.

Only the metadata of whole row groups is read from a Parquet footer. If a footer is damaged, pyarrow's
`RowGroupMetaData.column` crashes the process, while its decoder raises an error.

Arrow IPC has a file format and a stream format; `datasets` writes its caches in the latter. A file is a stream between
two magic numbers, followed by an index, so both are read as streams.

Of a damaged file, these functions raise a ValueError, an OSError or an ArrowException, which :func:`read_errors` makes
an error that names the file.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import pyarrow as pa

from packer.errors import InputError
from packer.host.arrow_messages import BatchSize, batch_sizes
from packer.host.files import out_of, regular_path
from packer.host.watchdog import MAX_GROWTH_BYTES, OverMemoryError, bounded
from packer.source.file_bytes import FilePath, FileStatus, Format, quoted

ARROW_MAGIC = b"ARROW1"
ARROW_CONTINUATION = b"\xff\xff\xff\xff"
"""The first bytes of a stream, and of every message in it."""

_STREAM_START = 8
"""Offset of the stream in an IPC file, after the magic number and two bytes of padding."""

BATCH_ROWS = 256
"""Maximum number of rows decoded at a time from Parquet. If strings are dictionary-encoded (by default up to a
megabyte), every row may take as much memory as the longest string."""

_BATCH_BYTES = 16 * 2**20
_BUFFER_BYTES = 2**20

MAX_DECODED_BYTES = 256 * 2**20
MAX_RATIO = 100
"""Text is compressed to a tenth, rarely to a fiftieth. A row group or batch that exceeds both limits is refused."""

MAX_HOLLOW_ROWS = 2**20
"""A file of more rows than this has at least a byte for each. Columns of nulls, and others that take no bytes, can
claim billions of rows, each of which would be rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rows of a file that are decoded together."""

    number: int
    start: int
    stop: int
    """`start` and `stop` are offsets in the file in bytes; for Parquet, in the uncompressed data."""

    num_rows: int
    num_bytes: int
    """Uncompressed size."""


class GroupRange(NamedTuple):
    """Consecutive groups of a file, or a range of rows of one group."""

    first_group: int
    num_groups: int
    skip: int
    """Number of rows of the first group that precede the range."""

    num_rows: int
    start: int = 0
    stop: int = 0
    """`start` and `stop` as those of its groups."""


def row_groups(path: FilePath, kind: Format) -> tuple[Group, ...]:
    """Return the groups of a file, in order, without decoding any."""
    table_schema(path, kind)
    with read_errors(path, kind):
        if kind == "arrow":
            groups = _arrow_groups(path)
        else:
            with open_parquet(path) as file:
                groups = _parquet_groups(path, file.metadata)
        num_rows, file_bytes = sum(group.num_rows for group in groups), FileStatus.of(path).num_bytes
        if num_rows > max(MAX_HOLLOW_ROWS, file_bytes):
            raise ValueError(f"it claims {num_rows:,} rows in {file_bytes:,} bytes")
    return groups


def table_schema(path: FilePath, kind: Format) -> pa.Schema:
    """Return names and types of the columns; of an Arrow file, only the start is read."""
    with read_errors(path, kind):
        if kind == "arrow":
            with _opened(path) as stream:
                schema = _open_stream(stream).schema
        else:
            with open_parquet(path) as file:
                schema = file.schema_arrow
        names = Counter(schema.names)  # raises for names that are not UTF-8
    repeated = sorted(name for name, count in names.items() if count > 1)
    if repeated:
        raise InputError(
            f"{path}: has more than one column {quoted(repeated[0])}",
            hint="rename or drop one, and write the file again",
        )
    return schema


def record_batches(
    path: FilePath, kind: Format, columns: Sequence[str], some: GroupRange | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield some columns of the rows of a file, or of those of some groups, whole."""
    if kind == "arrow":
        start, stop = (0, None) if some is None else (some.start, some.stop)
        yield from _arrow_batches(path, columns, start, stop)
        return
    with open_parquet(path) as file:
        groups = _parquet_groups(path, file.metadata)
        for group in groups if some is None else groups[some.first_group :][: some.num_groups]:
            batch_rows = max(1, min(BATCH_ROWS, _BATCH_BYTES // (group.num_bytes // max(group.num_rows, 1) + 1)))
            batches = file.iter_batches(batch_rows, row_groups=[group.number], columns=[*columns], use_threads=False)
            while True:
                with _bounded_memory(group.num_bytes):
                    batch = next(batches, None)
                if batch is None:
                    break
                yield batch


def read_group(path: FilePath, kind: Format, group: Group, columns: Sequence[str]) -> pa.Table:
    """Return some columns of a group whole."""
    if kind == "arrow":
        return pa.Table.from_batches(_arrow_batches(path, columns, group.start, group.stop))
    with open_parquet(path) as file, _bounded_memory(group.num_bytes):
        return file.read_row_group(group.number, columns=list(columns), use_threads=False)


def _bounded_memory(group_bytes: int) -> AbstractContextManager[None]:
    """Limit the memory for decoding rows of a group to four times its size: it is held compressed, decoded, as values.

    What takes more repeats a value: one of a dictionary, a prefix, or a null may stand for millions.
    """
    return bounded(num_bytes=MAX_GROWTH_BYTES + 4 * group_bytes)


@contextmanager
def read_errors(path: FilePath, kind: Format) -> Iterator[None]:
    """Turn any error that a damaged file causes in the reader into one that names the file."""
    try:
        yield
    except (pa.lib.ArrowException, OSError, EOFError, ValueError, MemoryError, ArithmeticError) as error:
        if (limit := out_of(error, f"{path}: cannot be read")) is not None:
            raise limit from error
        name = "Parquet" if kind == "parquet" else "an Arrow file"
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"{path}: cannot be read as {name}: {quoted(lines[0], 200)[1:-1]}",
            hint="if you trust it, write it again in smaller row groups and without dictionaries"
            if isinstance(error, OverMemoryError)
            else "is the file complete? If not, write or fetch it again",
        ) from error


def open_parquet(path: FilePath) -> Any:
    """Open a file with pyarrow. It is not memory-mapped: truncating a mapped file would kill the process."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - takes a tenth of the time of a small build

    return pq.ParquetFile(
        _opened(path),
        buffer_size=_BUFFER_BYTES,
        pre_buffer=False,
        page_checksum_verification=True,
    )


def _parquet_groups(path: FilePath, metadata: Any) -> tuple[Group, ...]:
    file_bytes = FileStatus.of(path).num_bytes
    groups = []
    start = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        num_rows, num_bytes = group.num_rows, group.total_byte_size
        if num_rows < 0 or num_bytes < 0:
            raise ValueError("its footer is damaged")
        if num_bytes > max(MAX_DECODED_BYTES, MAX_RATIO * file_bytes):
            raise ValueError(f"a row group of a file of {file_bytes:,} bytes decodes to {num_bytes:,}")
        stop = start + num_bytes
        groups.append(Group(number=number, start=start, stop=stop, num_rows=num_rows, num_bytes=num_bytes))
        start = stop
    return tuple(groups)


def _arrow_groups(path: FilePath) -> tuple[Group, ...]:
    """Return the record batches; a single group starting at byte 0 if dictionaries are needed to read them."""
    with _opened(path) as file:
        is_file = file.read(len(ARROW_MAGIC)) == ARROW_MAGIC
        types, start = _open_stream(file).schema.types, file.tell()
        groups = [
            Group(number=i, start=size.start, stop=size.stop, num_rows=size.num_rows, num_bytes=max(size.num_bytes, 1))
            for i, size in enumerate(_sizes(file))
        ]
        position = groups[-1].stop if groups else start
        if file.tell() == position:
            raise ValueError("it has no end mark")
        if is_file and (file.seek(file.size() - len(ARROW_MAGIC)), file.read())[1] != ARROW_MAGIC:
            raise ValueError("it does not end as it begins")
    if groups and any(map(_holds_dictionary, types)):
        num_rows, num_bytes = (sum(getattr(group, name) for group in groups) for name in ("num_rows", "num_bytes"))
        groups = [Group(number=0, start=0, stop=position, num_rows=num_rows, num_bytes=num_bytes)]
    return tuple(groups)


def _arrow_batches(path: FilePath, columns: Sequence[str], start: int, stop: int | None) -> Iterator[pa.RecordBatch]:
    """Yield the record batches in the bytes `start` … `stop`, or all of the file if `start` is 0.

    A batch must be validated before its content is used: a wrong offset would read arbitrary memory.
    """
    with _opened(path) as file, _opened(path) as ahead:
        reader = _open_stream(file)
        if start:
            file.seek(start)
        ahead.seek(file.tell())
        sizes = takewhile(lambda size: stop is None or size.start < stop, _sizes(ahead))
        for _, whole in zip(sizes, reader, strict=False):  # a batch is read after its size was looked at
            batch = whole.select(list(columns))
            batch.validate(full=True)
            yield batch


def _opened(path: FilePath) -> pa.NativeFile:
    return pa.OSFile(regular_path(os.fspath(path)))


def _open_stream(file: pa.NativeFile) -> Any:
    file.seek(0)
    file.seek(_STREAM_START if file.read(len(ARROW_MAGIC)) == ARROW_MAGIC else 0)
    return pa.ipc.open_stream(file)


def _sizes(file: pa.NativeFile) -> Iterator[BatchSize]:
    """Yield the sizes of the record batches that follow in a file.

    Refuse one that decodes to far more than the file, with all dictionaries before it, each of which may add to one.
    """
    held, most = 0, max(MAX_DECODED_BYTES, MAX_RATIO * file.size())
    for size in batch_sizes(file):
        if held + size.num_bytes > most:
            raise ValueError(f"a record batch of a file of {file.size():,} bytes decodes to {held + size.num_bytes:,}")
        if size.is_dictionary:
            held += size.num_bytes
        else:
            yield size


def _holds_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_holds_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def batch_bytes(batch: pa.RecordBatch) -> int:
    """Return the size of a batch's rows; for views, which pyarrow before 24 cannot measure, of all shared buffers."""
    try:
        return int(batch.nbytes)
    except pa.ArrowException:
        return int(batch.get_total_buffer_size())
