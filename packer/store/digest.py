"""Definitions of the digests of documents' content, of rows and of files.

**doc_id**: xxh3-64 of int64 (number of tokens, then 1 with weights or 0 without), input_ids, labels and, only if a
weight of this document is neither 0 nor 1, its loss weights; interpreted as int64. If it has images, the second number
is 2 more, and the sha256 and then the five int32 of each follow. If the recipe takes columns from rows, it is 4 more,
and the document's values of each follow, by name. It depends on the document alone, not on its row, its file, its
neighbors, or the columns that files give.

**Row digest**: xxh3-64 (seed 0) of one row's bytes, little-endian as Arrow stores them.

First a header of int64 values, then the bytes of each list column of the row, in the order of the schema. The header
contains the length of every list, so that no two different rows have the same bytes. The digest is stored in the column
``digest``, which it does not cover.

- documents: header = doc_id, length, num_trained, row, then the lengths of input_ids, labels, loss_weights (-1 if the
  file has no such column), spans and sample_id (UTF-8 bytes; -1 for null); only if the file has these columns, also
  side, and the four bytes of margin as an int32. Bytes: input_ids, labels, loss_weights, spans' messages, starts and
  ends, sample_id; then, of a document with images, the sha256 of each, and the five int32 of each; then its values of
  columns that the recipe declares, by name.
- blocks: header = length, num_trained, L, 1 with loss_weights or 0 without, then the lengths of doc_ids, doc_starts,
  doc_lengths, doc_places and seq_lengths. Bytes: input_ids, labels, position_ids, doc_ids, doc_starts, doc_lengths,
  doc_places, seq_lengths, loss_weights.

**File digest**: xxh3-128 (fast, detects accidental damage) and sha256 (identity) of all bytes of a file.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64, xxh3_128

from packer.batches import Float32, Int32, Int64, UInt64
from packer.host.limits import storage_errors
from packer.host.regular_file import open_regular
from packer.media.carried import Media

Pieces: TypeAlias = tuple[npt.NDArray[Any], Int64, Int64]
"""A flat array, with the start and end of each row's piece of it (counted in values)."""


class FileDigest:
    """Running digests of the bytes of one file."""

    def __init__(self) -> None:
        self._xxh3 = xxh3_128()
        self._sha256 = hashlib.sha256()
        self.num_bytes = 0

    def update(self, data: bytes | bytearray | memoryview) -> None:
        self._xxh3.update(data)
        self._sha256.update(data)
        self.num_bytes += len(data)

    @property
    def xxh3(self) -> str:
        """xxh3-128 so far, 32 hexadecimal digits."""
        return self._xxh3.hexdigest()

    @property
    def sha256(self) -> str:
        """sha256 so far, 64 hexadecimal digits."""
        return self._sha256.hexdigest()

    @property
    def recorded(self) -> dict[str, Any]:
        """What a manifest says of a file with these bytes."""
        return {"num_bytes": self.num_bytes, "xxh3": self.xxh3, "sha256": self.sha256}


def digest_file(path: Path) -> FileDigest:
    """Compute the digests of a file."""
    digest = FileDigest()
    with storage_errors("read", path), open_regular(path) as file:
        # file_digest calls only the `update` method of the digest.
        hashlib.file_digest(file, lambda: digest)  # type: ignore[arg-type, return-value]
    return digest


def digest_file_xxh3(path: Path) -> str:
    """Compute the xxh3-128 of a file, several times as fast as :func:`digest_file`."""
    with storage_errors("read", path), open_regular(path) as file:
        return hashlib.file_digest(file, xxh3_128).hexdigest()


def document_ids(
    *,
    input_ids: Int32,
    labels: Int32,
    loss_weights: Float32 | None,
    offsets: Int64,
    media: Media | None = None,
    values: Sequence[Pieces] = (),
) -> Int64:
    """Compute the doc_id of each of D documents of K tokens, as defined above.  # int64[D]

    `loss_weights` may be None if every weight is 0 or 1; `values` are of columns that come from rows.
    """
    starts, ends = offsets[:-1], offsets[1:]
    header = np.zeros((len(starts), 2), np.int64)
    header[:, 0] = ends - starts
    columns: list[Pieces] = [(input_ids, starts, ends), (labels, starts, ends)]
    if loss_weights is not None:
        fractional = np.zeros(len(loss_weights) + 1, np.int64)
        np.cumsum((loss_weights != 0) & (loss_weights != 1), out=fractional[1:])
        has = fractional[ends] > fractional[starts]
        header[:, 1] = has
        columns.append((loss_weights, starts, np.where(has, ends, starts)))
    if media is not None:
        first, last = media.offsets[:-1], media.offsets[1:]
        header[:, 1] += 2 * (last > first)
        columns.append((media.sha256.reshape(-1), first * 32, last * 32))
        columns.append((media.places.reshape(-1), first * 5, last * 5))
    header[:, 1] += 4 * bool(values)
    return digest_rows(header, [*columns, *values]).view(np.int64)


def digest_rows(header: Int64, columns: Sequence[Pieces]) -> UInt64:
    """Compute the xxh3-64 of each row: its line of the header [R, H], then its piece of each column.  # uint64[R]

    Worked example: header [[2], [1]] and one int32 column ([7, 8, 9], starts [0, 2], ends [2, 3]) digest the bytes
    of int64 2, int32 7, 8 and of int64 1, int32 9.
    """
    num_rows, width = header.shape[0], header.shape[1] * header.itemsize
    heads = _bytes_of(np.ascontiguousarray(header))
    views = [
        (_bytes_of(values), (starts * values.itemsize).tolist(), (ends * values.itemsize).tolist())
        for values, starts, ends in columns
        if len(values)
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
