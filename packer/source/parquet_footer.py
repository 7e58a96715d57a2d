"""Where the row groups of a Parquet file lie: the few fields of its footer that say so.

pyarrow tells this too, column by column; but where a footer is damaged, its `RowGroupMetaData.column` ends the process
(an exception of C++ that nobody catches, found by flipping every bit of a file). So these fields are read here, and
pyarrow is left to decode, where it answers with an error.

The footer is Thrift's compact protocol: a field is a byte, with the distance to the field before it in the upper half
and the type in the lower, and then a value; a structure ends with a zero byte. Numbers are varints, seven bits a byte;
signed ones alternate: 0, -1, 1, -2 are 0, 1, 2, 3.

    FileMetaData    4 row_groups: list<RowGroup>
    RowGroup        1 columns: list<ColumnChunk>   2 total_byte_size   3 num_rows
    ColumnChunk     1 file_path   3 meta_data: ColumnMetaData
    ColumnMetaData  5 num_values   6 total_uncompressed_size
                    7 total_compressed_size   9 data_page_offset   11 dictionary_page_offset

Source: parquet.thrift of apache/parquet-format, and the description of the compact protocol in apache/thrift.
"""

import functools
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from packer.source.arrow_message import is_bomb
from packer.source.groups import Group

MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_DEPTH = 32
"""Structures inside one another; those of Parquet have six."""


def row_groups(path: Path) -> tuple[Group, ...]:
    """The row groups, in order; those of the file that was read last are remembered.

    A group's bytes are those from its first column chunk to the end of its last.

    Raises:
        ValueError: the footer makes no sense; holds one sentence.
        OSError: the file cannot be read.

    """
    status = path.stat()
    return _row_groups(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _row_groups(path: Path, _size: int, _modified_ns: int) -> tuple[Group, ...]:
    footer, end = _footer(path)
    try:
        return tuple(_groups(_Reader(footer), end, path))
    except IndexError:
        raise ValueError("its footer ends too early") from None


def _groups(reader: "_Reader", end: int, path: Path) -> Iterator[Group]:
    for field, kind in reader.fields():
        if (field, kind) == (4, _LIST):
            for _ in reader.items():
                yield _group(reader, end, path)
        else:
            reader.skip(kind)


def _footer(path: Path) -> tuple[bytes, int]:
    """The footer, and where it begins."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - 8, 0))
        tail = file.read()
        if tail[4:] == _ENCRYPTED:
            raise ValueError("it is encrypted")
        length = struct.unpack("<I", tail[:4])[0] if tail[4:] == MAGIC else size
        if length + 12 > size:
            raise ValueError("it does not end in a footer")
        file.seek(size - 8 - length)
        return file.read(length), size - 8 - length


def _group(reader: "_Reader", end: int, path: Path) -> Group:
    chunks: list[_Chunk] = []
    num_rows = num_bytes = 0
    for field, kind in reader.fields():
        if (field, kind) == (1, _LIST):
            chunks = [_chunk(reader) for _ in reader.items()]
        elif (field, kind) == (2, _I64):
            num_bytes = reader.signed()
        elif (field, kind) == (3, _I64):
            num_rows = reader.signed()
        else:
            reader.skip(kind)
    if not num_rows and num_bytes >= 0:  # nobody reads it, and writers put it anywhere
        return Group(start=0, stop=0, num_rows=0, num_bytes=num_bytes)
    start, stop = min((chunk.start for chunk in chunks), default=end), max((chunk.stop for chunk in chunks), default=0)
    if not len(MAGIC) <= start <= stop <= end or num_rows < 0 or num_bytes < 0:
        raise ValueError("a row group lies outside of the file")
    repeated_bytes = 0
    for chunk in chunks:
        if chunk.num_values - num_rows > max(_MANY_VALUES, _VALUES_A_BYTE * chunk.num_bytes):
            raise ValueError(f"lists of {chunk.num_bytes:,} bytes unfold to {chunk.num_values:,} values")
        repeated_bytes += _dictionary_bytes(path, chunk.start) * -(-chunk.num_values // num_rows)
    return Group(start=start, stop=stop, num_rows=num_rows, num_bytes=num_bytes, repeated_bytes=repeated_bytes)


_MANY_VALUES = 2**22
_VALUES_A_BYTE = 2**16
"""More values of lists than these, more to each uncompressed byte, are no data: of the lists of a row with 100,000
equal values a few bytes are left, and such a row is the longest there is."""


class _Chunk(NamedTuple):
    """Where a column chunk lies, its values, and its bytes uncompressed."""

    start: int
    stop: int
    num_values: int
    num_bytes: int


def _dictionary_bytes(path: Path, start: int) -> int:
    """Uncompressed bytes of the dictionary page that a column chunk begins with; 0 where it has none.

        PageHeader  1 type: 2 dictionary   2 uncompressed_page_size   3 compressed_page_size

    Raises:
        ValueError: it unfolds to far more than it has.

    """
    with path.open("rb") as file:
        file.seek(start)
        reader = _Reader(file.read(_MOST_HEADER_BYTES))
    numbers: dict[int, int] = {}
    with suppress(IndexError, ValueError):  # what is wrong with it is for pyarrow to say
        for field, kind in reader.fields():
            if kind != _I32:
                break
            numbers[field] = reader.signed()
    if numbers.get(1) != _DICTIONARY_PAGE:
        return 0
    unfolded_bytes = numbers.get(2, 0)
    if is_bomb(numbers.get(3, 0), unfolded_bytes):
        raise ValueError(f"a dictionary of {numbers.get(3, 0):,} bytes unfolds to {unfolded_bytes:,}")
    return max(unfolded_bytes, 0)


_MOST_HEADER_BYTES = 64
"""Of a page's header up to its sizes."""

_DICTIONARY_PAGE = 2


def _chunk(reader: "_Reader") -> _Chunk:
    """A column chunk; its dictionary stands before its data."""
    places: dict[int, int] = {}
    for field, kind in reader.fields():
        if (field, kind) == (3, _STRUCT):
            for inner, number in reader.fields():
                if number == _I64:
                    places[inner] = reader.signed()
                else:
                    reader.skip(number)
        elif (field, kind) == (1, _BINARY):
            raise ValueError("its rows lie in other files")
        else:
            reader.skip(kind)
    if not {7, 9} <= places.keys():
        raise ValueError("it does not say where a column lies")
    start = min(places[9], places.get(11) or places[9])
    return _Chunk(start, start + places[7], places.get(5, 0), places.get(6, 0))


class _Reader:
    """Reads a structure from its start to its end. IndexError: it ends too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._depth = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field; its value must be read or skipped before the next."""
        field = 0
        self._depth += 1
        if self._depth > _DEPTH:
            raise ValueError("its footer is nested too deeply")
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            field = field + delta if delta else self.signed()
            yield field, kind
        self._depth -= 1

    def items(self) -> Iterator[int]:
        """The type of each item of a list; its value must be read or skipped before the next."""
        head = self._byte()
        size, kind = head >> 4, head & 15
        for _ in range(self._varint() if size == 15 else size):
            yield kind

    def signed(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def skip(self, kind: int) -> None:
        if kind in {_I16, _I32, _I64}:
            self._varint()
        elif kind == _BINARY:
            self._advance(self._varint())
        elif kind in {_BYTE, _DOUBLE}:
            self._advance(1 if kind == _BYTE else 8)
        elif kind in {_LIST, _SET}:
            for item in self.items():
                self._skip_item(item)
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        elif kind == _MAP:
            self._skip_map()
        elif kind not in {_TRUE, _FALSE}:
            raise ValueError("its footer is damaged")

    def _skip_map(self) -> None:
        size = self._varint()
        kinds = self._byte() if size else 0
        for _ in range(size):
            self._skip_item(kinds >> 4)
            self._skip_item(kinds & 15)

    def _skip_item(self, kind: int) -> None:
        """A truth is in the type of a field, but a byte of its own among items."""
        self._advance(1) if kind in {_TRUE, _FALSE} else self.skip(kind)

    def _advance(self, number: int) -> None:
        self._at += number
        if self._at > len(self._data):
            raise ValueError("its footer ends too early")

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _varint(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        number = byte & 127
        shift = 7
        while byte >= 128:
            if shift > 63:
                raise ValueError("its footer holds a number that is too large")
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 127) << shift
            shift += 7
        return number
