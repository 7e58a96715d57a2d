"""What a compressed record batch of Arrow unfolds to, from its message, before anything is decompressed.

A message is its length, a flatbuffer of metadata, and a body of buffers. A compressed buffer begins with its
uncompressed length in eight bytes, -1 where it is not compressed after all. A table of a flatbuffer begins with the
distance back to the list of its fields' places; what lies elsewhere is told by the distance to it.

    Message          1 header_type: 2 dictionary, 3 record batch   2 header   3 bodyLength
    DictionaryBatch  1 data: RecordBatch
    RecordBatch      2 buffers: [(offset, length)]   3 compression

Source: Message.fbs of apache/arrow, and the internals of google/flatbuffers.
"""

import struct
from typing import Any

MAX_UNFOLDED_BYTES = 256 * 2**20
MAX_RATIO = 100
"""Text is compressed to a tenth, seldom to a fiftieth. What is refused exceeds both."""

_DICTIONARY, _BATCH = 2, 3


def is_bomb(num_bytes: int, unfolded_bytes: int) -> bool:
    """Whether so many bytes unfold to more than data does."""
    return unfolded_bytes > max(MAX_UNFOLDED_BYTES, MAX_RATIO * num_bytes)


def refuse_bombs(file: Any) -> None:
    """Look at the messages up to the next record batch, and go back to where they begin.

    Raises:
        ValueError: one of them unfolds to far more than it has, or makes no sense; holds one sentence.

    """
    start = file.tell()
    while (metadata := _metadata(file)) is not None:
        try:
            kind, num_bytes, unfolded_bytes = _unfolded(metadata, file)
        except (IndexError, struct.error):
            raise ValueError("a message of it is damaged") from None
        if is_bomb(num_bytes, unfolded_bytes):
            raise ValueError(f"a record batch of {num_bytes:,} bytes unfolds to {unfolded_bytes:,}")
        if kind == _BATCH:
            break
    file.seek(start)


def _metadata(file: Any) -> bytes | None:
    """The metadata of the next message; None where there is none."""
    length = file.read(4)
    if length == b"\xff\xff\xff\xff":
        length = file.read(4)
    size = struct.unpack("<i", length)[0] if len(length) == 4 else 0
    return file.read(size) if size > 0 else None


def _unfolded(data: bytes, file: Any) -> tuple[int, int, int]:
    """Kind of a message, bytes of its body, and what they unfold to. Leaves the file behind the body."""
    body = file.tell()
    message = _follow(data, 0)
    kind = data[place] if (place := _field(data, message, 1)) else 0
    num_bytes = struct.unpack_from("<q", data, place)[0] if (place := _field(data, message, 3)) else 0
    unfolded_bytes = 0
    header = _field(data, message, 2)
    if header and kind in {_DICTIONARY, _BATCH}:
        batch: int | None = _follow(data, header)
        if kind == _DICTIONARY and batch is not None:
            inner = _field(data, batch, 1)
            batch = _follow(data, inner) if inner else None
        buffers = _field(data, batch, 2) if batch is not None and _field(data, batch, 3) else None
        if buffers:
            vector = _follow(data, buffers)
            number = struct.unpack_from("<I", data, vector)[0]
            for i in range(min(number, len(data) // 16)):
                offset, length = struct.unpack_from("<qq", data, vector + 4 + 16 * i)
                if length >= 8:
                    file.seek(body + offset)
                    unfolded_bytes += max(length, struct.unpack("<q", file.read(8))[0])
    file.seek(body + num_bytes)
    return kind, num_bytes, unfolded_bytes


def _follow(data: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<I", data, place)[0])


def _field(data: bytes, table: int, number: int) -> int | None:
    """Where a field of a table lies; None where it is left out."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    place = 4 + 2 * number
    size = struct.unpack_from("<H", data, fields)[0]
    distance = struct.unpack_from("<H", data, fields + place)[0] if place < size else 0
    return table + distance if distance else None
