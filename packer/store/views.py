"""View a record batch of a shard as flat arrays over its own memory, without copying.

Arrow keeps no checksums, so a flipped bit in a file's metadata can result in any length and any offset. Every view is
checked against the bounds of its buffer; the values themselves are checked by the digests.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.media.columns import Media
from packer.store.arrow_columns import BlockRows, DocumentRows, Ragged


def document_rows(batch: pa.RecordBatch) -> DocumentRows:
    """Return the rows of a record batch of a document shard.

    Raises:
        ValueError: a buffer is missing, too small, or marks nulls in a column without nulls.
    """
    num_rows = batch.num_rows
    validity, offsets, text = batch.column("sample_id").buffers()
    weighted, sided = "loss_weights" in batch.schema.names, "side" in batch.schema.names
    return DocumentRows(
        doc_id=flat_view(batch, "doc_id", np.int64, num_rows),
        input_ids=_ragged(batch, "input_ids", np.int32, np.int64),
        labels=_ragged(batch, "labels", np.int32, np.int64),
        loss_weights=_ragged(batch, "loss_weights", np.float32, np.int64) if weighted else None,
        **spans_of(batch),
        length=flat_view(batch, "length", np.int32, num_rows),
        num_trained=flat_view(batch, "num_trained", np.int32, num_rows),
        row=flat_view(batch, "row", np.int32, num_rows),
        sample_id=Ragged(
            values=_whole(text, np.uint8),
            offsets=_checked(offsets, np.int32, num_rows + 1)[:],
        ),
        has_sample_id=_validity(validity, num_rows),
        side=flat_view(batch, "side", np.int8, num_rows) if sided else None,
        margin=flat_view(batch, "margin", np.float32, num_rows) if sided else None,
        media=_media(batch) if "media" in batch.schema.names else None,
    )


def _media(batch: pa.RecordBatch) -> Media:
    # Validity and offsets of the list, validity of the struct, validity and values of each field.
    buffers = batch.column("media").buffers()
    _refuse_nulls([buffers[2], *buffers[3::2]])
    digests, *places = buffers[4::2]
    columns = [_whole(place, np.int32) for place in places]
    number = min(map(len, columns))
    return Media(
        offsets=_bounds(buffers, batch.num_rows, np.int32).astype(np.int64),
        sha256=_checked(digests, np.uint8, number * 32)[:].reshape(number, 32),
        places=np.stack([column[:number] for column in columns], axis=1),
    )


def block_rows(batch: pa.RecordBatch, block_len: int) -> BlockRows:
    """Return the rows of a record batch of a block shard.

    Raises:
        ValueError: a buffer is missing, too small, or marks nulls in a column without nulls.
    """
    num_rows = batch.num_rows

    def tokens(name: str, dtype: type[np.generic]) -> npt.NDArray[Any]:
        values = _fixed(batch, name)
        column: npt.NDArray[Any] = _checked(values, dtype, num_rows * block_len)
        return column.reshape(num_rows, block_len)

    return BlockRows(
        input_ids=tokens("input_ids", np.int32),
        labels=tokens("labels", np.int32),
        position_ids=tokens("position_ids", np.int32),
        doc_ids=_ragged(batch, "doc_ids", np.int64, np.int32),
        doc_starts=_ragged(batch, "doc_starts", np.int32, np.int32),
        doc_lengths=_ragged(batch, "doc_lengths", np.int32, np.int32),
        doc_places=_ragged(batch, "doc_places", np.int32, np.int32),
        seq_lengths=_ragged(batch, "seq_lengths", np.int32, np.int32),
        length=flat_view(batch, "length", np.int32, num_rows),
        num_trained=flat_view(batch, "num_trained", np.int32, num_rows),
        loss_weights=tokens("loss_weights", np.float32) if "loss_weights" in batch.schema.names else None,
    )


def flat_view(batch: pa.RecordBatch, name: str, dtype: type[np.generic], count: int) -> npt.NDArray[Any]:
    """Return the values of a fixed-width column.

    Raises:
        ValueError: the column has nulls, or its buffer is too small.
    """
    values: npt.NDArray[Any] = _checked(_fixed(batch, name), dtype, count)[:]
    return values


def _fixed(batch: pa.RecordBatch, name: str) -> pa.Buffer | None:
    *validities, values = batch.column(name).buffers()
    _refuse_nulls(validities)
    return values


def _ragged(batch: pa.RecordBatch, name: str, dtype: type[np.generic], offset: type[np.integer]) -> Ragged:
    buffers = batch.column(name).buffers()
    _refuse_nulls(buffers[2:-1])
    return Ragged(values=_whole(buffers[-1], dtype), offsets=_bounds(buffers, batch.num_rows, offset))


def _bounds(buffers: list[pa.Buffer | None], num_rows: int, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Return the offsets of a list column, refusing nulls."""
    _refuse_nulls(buffers[:1])
    offsets: npt.NDArray[Any] = _checked(buffers[1], dtype, num_rows + 1)[:]
    return offsets


def spans_of(batch: pa.RecordBatch) -> dict[str, npt.NDArray[Any]]:
    """Return the span columns of a record batch of documents, named as in `DocumentRows`.

    Raises:
        ValueError: a buffer is missing, too small, or marks nulls where there are none.
    """
    # Validity and offsets of the list, validity of the struct, validity and values of each field.
    buffers = batch.column("spans").buffers()
    _refuse_nulls([buffers[2], buffers[3], buffers[5], buffers[7]])
    names = ("span_message", "span_start", "span_end")
    values = {name: _whole(buffers[place], np.int32) for name, place in zip(names, (4, 6, 8), strict=True)}
    return {"span_offsets": _bounds(buffers, batch.num_rows, np.int32), **values}


def _validity(bits: pa.Buffer | None, num_rows: int) -> npt.NDArray[np.bool_]:
    if bits is None:
        return np.ones(num_rows, np.bool_)
    packed = _checked(bits, np.uint8, (num_rows + 7) // 8)[:]
    return np.unpackbits(packed, bitorder="little", count=num_rows).view(np.bool_)


def _refuse_nulls(validities: list[pa.Buffer | None]) -> None:
    if any(buffer is not None for buffer in validities):
        raise ValueError("a column without nulls marks nulls")


def _checked(buffer: pa.Buffer | None, dtype: type[np.generic], count: int) -> Any:
    """Return a view of `count` values; raise ValueError if the buffer is smaller."""
    if count == 0:
        return np.zeros(0, dtype)
    if buffer is None or buffer.size < count * np.dtype(dtype).itemsize:
        raise ValueError(f"a buffer has fewer than {count} values")
    return np.frombuffer(buffer, dtype, count)


def _whole(buffer: pa.Buffer | None, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Return all values that fit into a buffer."""
    count = 0 if buffer is None else buffer.size // np.dtype(dtype).itemsize
    values: npt.NDArray[Any] = _checked(buffer, dtype, count)
    return values
