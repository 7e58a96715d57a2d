"""What the messages of an Arrow stream say of their record batches: rows, and bytes once decoded.

A compressed buffer of some kilobytes can decode to gigabytes, and a batch of columns that take no bytes can claim any
number of rows. Both are known before anything is decoded: each message begins with a table of FlatBuffers that lists
its buffers, and a compressed buffer begins with its decoded length. pyarrow does not show these, so they are read here,
by the layout of Message.fbs in Arrow's columnar format, version 5.
"""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

_CONTINUATION, _END = b"\xff\xff\xff\xff", b"\0\0\0\0"
_DICTIONARY, _RECORD_BATCH = 2, 3
"""Types of headers. Those of a schema and of tensors have no rows."""

_PREFIX_BYTES = 8
"""A compressed buffer begins with its decoded length; -1 says that what follows is not compressed."""


class BatchSize(NamedTuple):
    """A record batch or a dictionary."""

    start: int
    stop: int
    """Offsets of the message in the file in bytes."""

    is_dictionary: bool
    num_rows: int
    num_bytes: int
    """Decoded."""

    is_compressed: bool


def batch_sizes(file: Any) -> Iterator[BatchSize]:
    """Yield the sizes of the batches that follow in a file, whose position moves to the end of each.

    Raises:
        ValueError: a message is damaged.
    """
    try:
        while (found := _next(file)) is not None:
            if found.num_rows >= 0:
                yield found
            file.seek(found.stop)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"a message is damaged: {error}") from None


def _next(file: Any) -> BatchSize | None:
    start, head = file.tell(), file.read(4) or _END
    if head == _CONTINUATION:
        head = file.read(4)
    if head == _END:
        return None
    (num_bytes,) = struct.unpack("<i", head)
    if not 0 < num_bytes <= file.size() - file.tell():
        raise ValueError("a message is longer than the file")
    header = _Table(file.read(num_bytes))
    body = file.tell()
    kind, table, body_bytes = header.number(1, "B"), header.table(2), header.number(3, "q")
    if not 0 <= body_bytes <= file.size() - body:
        raise ValueError("a message is longer than the file")
    batch = table.table(1) if kind == _DICTIONARY else table
    if kind not in (_DICTIONARY, _RECORD_BATCH):
        return BatchSize(start, body + body_bytes, False, -1, 0, False)
    is_compressed = batch.has(3)
    decoded = 0
    for offset, length in batch.pairs(2):
        if not (offset >= 0 and length >= 0 and offset + length <= body_bytes):
            raise ValueError("a buffer is not within its message")
        if is_compressed and length >= _PREFIX_BYTES:
            file.seek(body + offset)
            (size,) = struct.unpack("<q", file.read(_PREFIX_BYTES))
            decoded += length - _PREFIX_BYTES if size == -1 else max(size, 0)
        else:
            decoded += length
    num_rows = batch.number(0, "q")
    if num_rows < 0:
        raise ValueError("a batch has a negative number of rows")
    return BatchSize(start, body + body_bytes, kind == _DICTIONARY, num_rows, decoded, is_compressed)


class _Table:
    """A table of FlatBuffers: its fields by their number, at the places that its vtable says."""

    def __init__(self, content: bytes, place: int | None = None) -> None:
        self._content = content
        self._place = self._at("I", 0) if place is None else place
        self._vtable = self._place - self._at("i", self._place)
        self._vtable_bytes = self._at("H", self._vtable)

    def _at(self, code: str, place: int) -> int:
        if place < 0:
            raise struct.error("a negative offset")
        value: int = struct.unpack_from(f"<{code}", self._content, place)[0]
        return value

    def _field(self, number: int) -> int | None:
        slot = 4 + 2 * number
        offset = self._at("H", self._vtable + slot) if slot < self._vtable_bytes else 0
        return self._place + offset if offset else None

    def has(self, number: int) -> bool:
        return self._field(number) is not None

    def number(self, number: int, code: str) -> int:
        place = self._field(number)
        return 0 if place is None else self._at(code, place)

    def table(self, number: int) -> "_Table":
        place = self._field(number)
        if place is None:
            raise ValueError("a message lacks its header")
        return _Table(self._content, place + self._at("I", place))

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield the structs of two 64-bit numbers in a vector."""
        place = self._field(number)
        if place is None:
            return
        first = place + self._at("I", place)
        for index in range(self._at("I", first)):
            yield self._at("q", first + 4 + 16 * index), self._at("q", first + 12 + 16 * index)
