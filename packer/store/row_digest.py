"""Row digest: xxh3-64 (seed 0) of one row's bytes, little-endian as Arrow stores them.

First a header of int64 values, then the bytes of each list column of the row, in the order of the schema. The header
holds the length of every list, so no two different rows have the same bytes. The digest is stored in the column
``digest``, which is not part of it.

- documents: header = doc_id, length, num_trained, row, then the lengths of input_ids, labels, special_tokens_mask,
  loss_weights (-1 where the file has no such column), spans and sample_id (UTF-8 bytes; -1 for null). Bytes: input_ids,
  labels, special_tokens_mask (one byte a value), loss_weights, spans' messages, starts and ends, sample_id.
- blocks: header = length, num_trained, L, 1 with loss_weights and 0 without, then the lengths of doc_ids, doc_starts,
  doc_lengths, doc_places and seq_lengths. Bytes: input_ids, labels, position_ids, doc_ids, doc_starts, doc_lengths,
  doc_places, seq_lengths, loss_weights.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64

from packer.batches import Int64, UInt64

Pieces: TypeAlias = tuple[npt.NDArray[Any], Int64, Int64]
"""A flat array, and for each row where its piece of it starts and ends (in values)."""


def digest_rows(header: Int64, columns: Sequence[Pieces]) -> UInt64:
    """xxh3-64 of each row: its line of the header, then its piece of each column.  # uint64[R]

    Worked example: header [[2], [1]], one int32 column ([7, 8, 9], starts [0, 2], ends [2, 3]) digests the bytes
    of int64 2, int32 7, 8 and of int64 1, int32 9.

    Args:
        header: int64[R, H]
        columns: flat arrays with the starts and ends of each row, int64[R].

    """
    num_rows, width = header.shape[0], header.shape[1] * header.itemsize
    heads = _bytes_of(np.ascontiguousarray(header))
    views = [
        (_bytes_of(values), (starts * values.itemsize).tolist(), (ends * values.itemsize).tolist())
        for values, starts, ends in columns
        if (starts != ends).any()
    ]
    digests = np.empty(num_rows, np.uint64)
    for i in range(num_rows):
        state = xxh3_64(heads[i * width : (i + 1) * width])
        for view, starts, ends in views:
            state.update(view[starts[i] : ends[i]])
        digests[i] = state.intdigest()
    return digests


def _bytes_of(values: npt.NDArray[Any]) -> memoryview:
    return values.reshape(-1).view(np.uint8).data
