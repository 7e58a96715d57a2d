"""Arrow IPC: the file format, and the stream format, as `datasets` writes its caches.

An IPC file is a stream between two magics, with an index behind it. So both are read as streams, in the order in which
their record batches stand.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from packer.source.arrow_message import refuse_bombs
from packer.source.groups import Group
from packer.source.values import bytes_of

MAGIC = b"ARROW1"
CONTINUATION = b"\xff\xff\xff\xff"
"""What a stream begins with, and every message of it."""

_STREAM_START = 8
"""Where the stream begins in an IPC file: behind the magic and two bytes of padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowFile:
    """The outline of a file: what stands where."""

    schema: pa.Schema
    groups: tuple[Group, ...]
    """The record batches; one group from byte 0 on where dictionaries are needed to read them."""


class NotWhole(ValueError):  # noqa: N818 - becomes an InputError where the file's name is known
    """The file ends too early; holds one sentence."""


def open_arrow(path: Path) -> ArrowFile:
    """Walk over the messages of a file.

    Raises:
        NotWhole, OSError, pyarrow.ArrowException: it is no Arrow file, or not a whole one.

    """
    with pa.OSFile(str(path)) as file:
        start = _begin(file)
        reader = pa.ipc.open_stream(file)
        groups = []
        place = file.tell()
        for batch in _bounded(file, reader):
            stop = file.tell()
            groups.append(Group(start=place, stop=stop, num_rows=batch.num_rows, num_bytes=max(bytes_of(batch), 1)))
            place = stop
        if file.tell() == place:
            raise NotWhole("it has no end mark")
        if start and (file.seek(file.size() - len(MAGIC)), file.read())[1] != MAGIC:
            raise NotWhole("it does not end as it begins")
        if groups and any(map(_holds_dictionary, reader.schema.types)):
            num_rows, num_bytes = (sum(getattr(group, name) for group in groups) for name in ("num_rows", "num_bytes"))
            groups = [Group(start=0, stop=place, num_rows=num_rows, num_bytes=num_bytes)]
        return ArrowFile(schema=reader.schema, groups=tuple(groups))


def arrow_schema(path: Path) -> pa.Schema:
    """The schema, from the start of the file."""
    with pa.OSFile(str(path)) as file:
        _begin(file)
        return pa.ipc.open_stream(file).schema


def _begin(file: pa.NativeFile) -> int:
    """Go to where the stream begins."""
    start = _STREAM_START if file.read(len(MAGIC)) == MAGIC else 0
    file.seek(start)
    return start


def _bounded(file: pa.NativeFile, reader: Any) -> Iterator[pa.RecordBatch]:
    """The record batches from here on, each looked at before it is decompressed."""
    while True:
        refuse_bombs(file)
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        yield batch


def _holds_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_holds_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def arrow_batches(path: Path, start: int = 0, stop: int | None = None) -> Iterator[pa.RecordBatch]:
    """The record batches whose bytes are `start` … `stop`, or all of a file where `start` is 0.

    The message of a batch is read whole before it is looked at: what is decoded lies in memory.
    """
    with pa.OSFile(str(path)) as file:
        _begin(file)
        reader = pa.ipc.open_stream(file)
        if start == 0:
            yield from _bounded(file, reader)
            return
        file.seek(start)
        while stop is None or file.tell() < stop:
            refuse_bombs(file)
            yield pa.ipc.read_record_batch(pa.ipc.read_message(file), reader.schema)
