"""View a record batch of a shard as flat arrays over its own memory without copying, or read its columns from the file.

Arrow keeps no checksums, so a flipped bit in a file's metadata can result in any length and any offset. Every view is
checked against the bounds of its buffer; the values themselves are checked by the digests.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.store.arrow_columns import BlockRows, DocumentRows, Ragged
from packer.store.files import FileRanges

BufferReader: TypeAlias = Callable[[pa.Buffer, type[np.generic], int], Any]
"""Returns the first values of a buffer: an array, or an object that reads from the file when it is sliced."""

MAPPED: BufferReader = np.frombuffer
"""Arrays over the pages of the map: fastest if files are on a local disk."""


def reading(ranges: FileRanges, base: int) -> BufferReader:
    """Return a BufferReader that reads values from the file on demand; the map serves only to find their offsets.

    On a network file system, a page of a map that cannot be fetched kills the process, and fetching single pages is
    slow. `base` is the address at which the file was mapped when its buffers were located.
    """
    return lambda buffer, dtype, count: FileColumn(ranges, buffer.address - base, np.dtype(dtype), count)


class FileColumn:
    """A column in a file, flat or with `width` values per row; a slice or a row is read when it is accessed."""

    def __init__(
        self, ranges: FileRanges, offset: int, dtype: np.dtype[Any], count: int, width: int | None = None
    ) -> None:
        self._ranges, self._offset, self._count, self._width = ranges, offset, count, width
        self.dtype = dtype

    def __len__(self) -> int:
        return self._count

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._count,) if self._width is None else (self._count // max(self._width, 1), self._width)

    def reshape(self, _: int, width: int) -> "FileColumn":
        return FileColumn(self._ranges, self._offset, self.dtype, self._count, width)

    def __getitem__(self, place: slice | int) -> npt.NDArray[Any]:
        if isinstance(place, int):
            assert self._width is not None, "a flat column is sliced"
            place = slice(place * self._width, (place + 1) * self._width)
        start, stop, _ = place.indices(self._count)
        size = self.dtype.itemsize
        return np.frombuffer(self._ranges.read(self._offset + start * size, max(stop - start, 0) * size), self.dtype)


def document_rows(batch: pa.RecordBatch, read: BufferReader = MAPPED) -> DocumentRows:
    """Return the rows of a record batch of a document shard.

    Raises:
        ValueError: a buffer is missing, too small, or marks nulls in a column without nulls.
    """
    num_rows = batch.num_rows
    validity, offsets, text = batch.column("sample_id").buffers()
    weighted, sided = "loss_weights" in batch.schema.names, "side" in batch.schema.names
    return DocumentRows(
        doc_id=flat_view(batch, "doc_id", np.int64, num_rows, read),
        input_ids=_ragged(batch, "input_ids", np.int32, np.int64, read),
        labels=_ragged(batch, "labels", np.int32, np.int64, read),
        loss_weights=_ragged(batch, "loss_weights", np.float32, np.int64, read) if weighted else None,
        **spans_of(batch, read),
        length=flat_view(batch, "length", np.int32, num_rows, read),
        num_trained=flat_view(batch, "num_trained", np.int32, num_rows, read),
        row=flat_view(batch, "row", np.int32, num_rows, read),
        sample_id=Ragged(
            values=_whole(text, np.uint8, read),
            offsets=_checked(offsets, np.int32, num_rows + 1, read)[:],
        ),
        has_sample_id=_validity(validity, num_rows, read),
        side=flat_view(batch, "side", np.int8, num_rows, read) if sided else None,
        margin=flat_view(batch, "margin", np.float32, num_rows, read) if sided else None,
    )


def block_rows(batch: pa.RecordBatch, block_len: int, read: BufferReader = MAPPED) -> BlockRows:
    """Return the rows of a record batch of a block shard.

    Raises:
        ValueError: a buffer is missing, too small, or marks nulls in a column without nulls.
    """
    num_rows = batch.num_rows

    def tokens(name: str, dtype: type[np.generic]) -> npt.NDArray[Any]:
        values = _fixed(batch, name)
        column: npt.NDArray[Any] = _checked(values, dtype, num_rows * block_len, read)
        return column.reshape(num_rows, block_len)

    return BlockRows(
        input_ids=tokens("input_ids", np.int32),
        labels=tokens("labels", np.int32),
        position_ids=tokens("position_ids", np.int32),
        doc_ids=_ragged(batch, "doc_ids", np.int64, np.int32, read),
        doc_starts=_ragged(batch, "doc_starts", np.int32, np.int32, read),
        doc_lengths=_ragged(batch, "doc_lengths", np.int32, np.int32, read),
        doc_places=_ragged(batch, "doc_places", np.int32, np.int32, read),
        seq_lengths=_ragged(batch, "seq_lengths", np.int32, np.int32, read),
        length=flat_view(batch, "length", np.int32, num_rows, read),
        num_trained=flat_view(batch, "num_trained", np.int32, num_rows, read),
        loss_weights=tokens("loss_weights", np.float32) if "loss_weights" in batch.schema.names else None,
    )


def flat_view(
    batch: pa.RecordBatch, name: str, dtype: type[np.generic], count: int, read: BufferReader = MAPPED
) -> npt.NDArray[Any]:
    """Return the values of a fixed-width column.

    Raises:
        ValueError: the column has nulls, or its buffer is too small.
    """
    values: npt.NDArray[Any] = _checked(_fixed(batch, name), dtype, count, read)[:]
    return values


def _fixed(batch: pa.RecordBatch, name: str) -> pa.Buffer | None:
    *validities, values = batch.column(name).buffers()
    _refuse_nulls(validities)
    return values


def _ragged(
    batch: pa.RecordBatch, name: str, dtype: type[np.generic], offset: type[np.integer], read: BufferReader
) -> Ragged:
    buffers = batch.column(name).buffers()
    _refuse_nulls(buffers[2:-1])
    return Ragged(values=_whole(buffers[-1], dtype, read), offsets=_bounds(buffers, batch.num_rows, offset, read))


def _bounds(
    buffers: list[pa.Buffer | None], num_rows: int, dtype: type[np.generic], read: BufferReader
) -> npt.NDArray[Any]:
    """Return the offsets of a list column, refusing nulls."""
    _refuse_nulls(buffers[:1])
    offsets: npt.NDArray[Any] = _checked(buffers[1], dtype, num_rows + 1, read)[:]
    return offsets


def spans_of(batch: pa.RecordBatch, read: BufferReader = MAPPED) -> dict[str, npt.NDArray[Any]]:
    """Return the span columns of a record batch of documents, named as in `DocumentRows`.

    Raises:
        ValueError: a buffer is missing, too small, or marks nulls where there are none.
    """
    # Validity and offsets of the list, validity of the struct, validity and values of each field.
    buffers = batch.column("spans").buffers()
    _refuse_nulls([buffers[2], buffers[3], buffers[5], buffers[7]])
    names = ("span_message", "span_start", "span_end")
    values = {name: _whole(buffers[place], np.int32, read) for name, place in zip(names, (4, 6, 8), strict=True)}
    return {"span_offsets": _bounds(buffers, batch.num_rows, np.int32, read), **values}


def _validity(bits: pa.Buffer | None, num_rows: int, read: BufferReader) -> npt.NDArray[np.bool_]:
    if bits is None:
        return np.ones(num_rows, np.bool_)
    packed = _checked(bits, np.uint8, (num_rows + 7) // 8, read)[:]
    return np.unpackbits(packed, bitorder="little", count=num_rows).view(np.bool_)


def _refuse_nulls(validities: list[pa.Buffer | None]) -> None:
    if any(buffer is not None for buffer in validities):
        raise ValueError("a column without nulls marks nulls")


def _checked(buffer: pa.Buffer | None, dtype: type[np.generic], count: int, read: BufferReader) -> Any:
    """Return a view of `count` values; raise ValueError if the buffer is smaller."""
    if count == 0:
        return np.zeros(0, dtype)
    if buffer is None or buffer.size < count * np.dtype(dtype).itemsize:
        raise ValueError(f"a buffer has fewer than {count} values")
    return read(buffer, dtype, count)


def _whole(buffer: pa.Buffer | None, dtype: type[np.generic], read: BufferReader) -> npt.NDArray[Any]:
    """Return all values that fit into a buffer."""
    count = 0 if buffer is None else buffer.size // np.dtype(dtype).itemsize
    values: npt.NDArray[Any] = _checked(buffer, dtype, count, read)
    return values
