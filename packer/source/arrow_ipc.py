"""Arrow IPC: the file format, and the stream format, as `datasets` writes its caches.

An IPC file is a stream between two magics, with an index behind it. So both are read as streams, in the order in which
their record batches stand.

A compressed batch says in its message what it decodes to, and pyarrow does not tell; so the sizes are read here, before
anything is decoded. A message is a flatbuffer of metadata and a body of buffers. A compressed buffer begins with its
uncompressed length in eight bytes, -1 where it is not compressed after all. A table of a flatbuffer begins with the
distance back to the list of its fields' places; what lies elsewhere is referred to by the distance to it.

    Message          1 header_type: 2 dictionary, 3 record batch   2 header   3 bodyLength
    DictionaryBatch  1 data: RecordBatch
    RecordBatch      2 buffers: [(offset, length)]   3 compression

Source: Message.fbs of apache/arrow, and the internals of google/flatbuffers.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from packer.source.row_groups import Group, is_bomb
from packer.source.table_values import bytes_of

MAGIC = b"ARROW1"
CONTINUATION = b"\xff\xff\xff\xff"
"""What a stream begins with, and every message of it."""

_DICTIONARY, _BATCH = 2, 3

_STREAM_START = 8
"""Where the stream begins in an IPC file: behind the magic and two bytes of padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowFile:
    """The outline of a file."""

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
        for batch in _batches(file, reader):
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


def arrow_batches(path: Path, start: int = 0, stop: int | None = None) -> Iterator[pa.RecordBatch]:
    """The record batches whose bytes are `start` … `stop`, or all of a file where `start` is 0.

    Nothing in a batch may be believed before it is validated: a wrong offset reads what lies anywhere in memory.

    Raises:
        pyarrow.ArrowInvalid: something points outside of a batch, or a text is not UTF-8.

    """
    with pa.OSFile(str(path)) as file:
        _begin(file)
        reader = pa.ipc.open_stream(file)
        if start:
            file.seek(start)
        for batch in _batches(file, reader, stop):
            batch.validate(full=True)
            yield batch


def _begin(file: pa.NativeFile) -> int:
    """Go to where the stream begins."""
    start = _STREAM_START if file.read(len(MAGIC)) == MAGIC else 0
    file.seek(start)
    return start


def _batches(file: pa.NativeFile, reader: Any, stop: int | None = None) -> Iterator[pa.RecordBatch]:
    """The record batches from here on, each looked at before it is decompressed."""
    holds_dictionary = any(map(_holds_dictionary, reader.schema.types))
    while (stop is None or file.tell() < stop) and _refuse_bombs(file):
        if holds_dictionary:
            yield reader.read_next_batch()  # it keeps the dictionaries that stand before the batch
        else:
            yield pa.ipc.read_record_batch(pa.ipc.read_message(file), reader.schema)


def _refuse_bombs(file: pa.NativeFile) -> bool:
    """Look at the messages up to the next record batch, and go back to where they begin; whether there is one.

    Raises:
        ValueError: one of them decodes to far more than it has, or makes no sense; holds one sentence.

    """
    start = file.tell()
    while (metadata := _metadata(file)) is not None:
        body = file.tell()
        try:
            kind, num_bytes = _outline(metadata)
            decoded_bytes = sum(_decoded_bytes(metadata, kind, file, body))
        except (IndexError, struct.error):
            raise ValueError("a message of it is damaged") from None
        if not 0 <= num_bytes <= file.size() - body:
            raise NotWhole("a message of it ends behind the file")
        if is_bomb(num_bytes, decoded_bytes):
            raise ValueError(f"a record batch of {num_bytes:,} bytes decodes to {decoded_bytes:,}")
        file.seek(start if kind == _BATCH else body + num_bytes)
        if kind == _BATCH:
            return True
    return False


def _metadata(file: pa.NativeFile) -> bytes | None:
    """The metadata of the next message; None where there is none."""
    length = file.read(4)
    if length == CONTINUATION:
        length = file.read(4)
    size = struct.unpack("<i", length)[0] if len(length) == 4 else 0
    return bytes(file.read(size)) if size > 0 else None


def _outline(data: bytes) -> tuple[int, int]:
    """Kind of a message, and bytes of its body."""
    message = _follow(data, 0)
    kind, length = _field(data, message, 1), _field(data, message, 3)
    return data[kind] if kind else 0, struct.unpack_from("<q", data, length)[0] if length else 0


def _decoded_bytes(data: bytes, kind: int, file: pa.NativeFile, body: int) -> Iterator[int]:
    """What each compressed buffer of a message decodes to."""
    header = _field(data, _follow(data, 0), 2)
    if header is None or kind not in {_DICTIONARY, _BATCH}:
        return
    batch = _follow(data, header)
    if kind == _DICTIONARY:
        inner = _field(data, batch, 1)
        if inner is None:
            return
        batch = _follow(data, inner)
    buffers = _field(data, batch, 2)
    if buffers is None or _field(data, batch, 3) is None:
        return
    vector = _follow(data, buffers)
    number = struct.unpack_from("<I", data, vector)[0]
    for i in range(min(number, len(data) // 16)):
        offset, length = struct.unpack_from("<qq", data, vector + 4 + 16 * i)
        if length >= 8:
            file.seek(body + offset)
            yield max(length, struct.unpack("<q", file.read(8))[0])


def _follow(data: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<I", data, place)[0])


def _field(data: bytes, table: int, number: int) -> int | None:
    """Where a field of a table lies; None where it is left out."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    place = 4 + 2 * number
    size = struct.unpack_from("<H", data, fields)[0]
    distance = struct.unpack_from("<H", data, fields + place)[0] if place < size else 0
    return table + distance if distance else None


def _holds_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_holds_dictionary(kind.field(i).type) for i in range(kind.num_fields))
