"""View a record batch of a shard as flat arrays over its own memory, without copying.

Arrow keeps no checksums, so a flipped bit in a file's metadata can result in any length and any offset. Every view is
checked against the bounds of its buffer; the values themselves are checked by the digests.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.store.arrow_columns import DTYPES, BlockRows, DocumentRows, Ragged


def document_rows(batch: pa.RecordBatch) -> DocumentRows:
    """Return the rows of a record batch of a document shard.

    Raises:
        ValueError: a buffer is missing, too small, or marks nulls in a column without nulls.
    """
    validity, offsets, text = batch.column("sample_id").buffers()
    absent = {"loss_weights": None, "side": None, "margin": None}
    return DocumentRows(
        **absent | {name: _column(batch, name) for name in batch.schema.names if name not in _APART},
        **_spans(batch),
        sample_id=Ragged(values=_whole(text, np.uint8), offsets=_checked(offsets, np.int32, batch.num_rows + 1)),
        has_sample_id=_validity(validity, batch.num_rows),
    )


def block_rows(batch: pa.RecordBatch) -> BlockRows:
    """Return the rows of a record batch of a block shard.

    Raises:
        ValueError: a buffer is missing, too small, or marks nulls in a column without nulls.
    """
    absent = {"loss_weights": None}
    return BlockRows(**absent | {name: _column(batch, name) for name in batch.schema.names if name not in _APART})


_APART = ("spans", "sample_id", "digest")
"""Columns that are no array of numbers for each row, or not part of the rows."""


def _column(batch: pa.RecordBatch, name: str) -> Any:
    """Return a column as an array of one value or L values per row, or of lists."""
    kind, num_rows = batch.schema.field(name).type, batch.num_rows
    if pa.types.is_fixed_size_list(kind):
        return flat_view(batch, name, DTYPES[kind.value_type], num_rows * kind.list_size).reshape(num_rows, -1)
    if pa.types.is_primitive(kind):
        return flat_view(batch, name, DTYPES[kind], num_rows)
    buffers = batch.column(name).buffers()
    _refuse_nulls(buffers[2:-1])
    width = np.int64 if pa.types.is_large_list(kind) else np.int32
    return Ragged(values=_whole(buffers[-1], DTYPES[kind.value_type]), offsets=_bounds(buffers, num_rows, width))


def flat_view(batch: pa.RecordBatch, name: str, dtype: type[np.generic], count: int) -> npt.NDArray[Any]:
    """Return the values of a fixed-width column.

    Raises:
        ValueError: the column has nulls, or its buffer is too small.
    """
    *validities, values = batch.column(name).buffers()
    _refuse_nulls(validities)
    return _checked(values, dtype, count)


def _bounds(buffers: list[pa.Buffer | None], num_rows: int, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Return the offsets of a list column, refusing nulls."""
    _refuse_nulls(buffers[:1])
    return _checked(buffers[1], dtype, num_rows + 1)


def _spans(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return the span columns of a record batch of documents, named as in `DocumentRows`."""
    # Validity and offsets of the list, validity of the struct, validity and values of each field.
    buffers = batch.column("spans").buffers()
    _refuse_nulls([buffers[2], buffers[3], buffers[5], buffers[7]])
    names = ("span_message", "span_start", "span_end")
    values = {name: _whole(buffers[place], np.int32) for name, place in zip(names, (4, 6, 8), strict=True)}
    return {"span_offsets": _bounds(buffers, batch.num_rows, np.int32), **values}


def _validity(bits: pa.Buffer | None, num_rows: int) -> npt.NDArray[np.bool_]:
    if bits is None:
        return np.ones(num_rows, np.bool_)
    packed = _checked(bits, np.uint8, (num_rows + 7) // 8)
    return np.unpackbits(packed, bitorder="little", count=num_rows).view(np.bool_)


def _refuse_nulls(validities: list[pa.Buffer | None]) -> None:
    if any(buffer is not None for buffer in validities):
        raise ValueError("a column without nulls marks nulls")


def _checked(buffer: pa.Buffer | None, dtype: type[np.generic], count: int) -> npt.NDArray[Any]:
    """Return a view of `count` values; raise ValueError if the buffer is smaller."""
    if count == 0:
        return np.zeros(0, dtype)
    if buffer is None or buffer.size < count * np.dtype(dtype).itemsize:
        raise ValueError(f"a buffer has fewer than {count} values")
    values: npt.NDArray[Any] = np.frombuffer(buffer, dtype, count)
    return values


def _whole(buffer: pa.Buffer | None, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Return all values that fit into a buffer."""
    return _checked(buffer, dtype, 0 if buffer is None else buffer.size // np.dtype(dtype).itemsize)
