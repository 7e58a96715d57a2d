"""Digests: of documents' content, of blocks, of files. Row digests are defined in :mod:`packer.store.row_digest`.

**doc_id**: xxh3-64 of int64 (number of tokens, 1 with weights and 0 without), input_ids, labels and, only where a
weight of this document is neither 0 nor 1, its loss weights; read as int64. It depends on nothing but the
document: not on its row, its file or its neighbours.

**File digest**: xxh3-128 (finds accidents, fast) and sha256 (identity) of all bytes of a file.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from xxhash import xxh3_128

from packer.batches import BlockBatch, Float32, Int32, Int64, UInt64
from packer.store.arrow_columns import BlockRows
from packer.store.path_errors import storage_errors
from packer.store.row_digest import Pieces, digest_rows

_CHUNK_BYTES = 4 * 2**20


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


def digest_file(path: Path) -> tuple[int, str, str]:
    """Number of bytes, xxh3-128 and sha256 of a file, read once in pieces.

    Raises:
        StorageError: the file cannot be read.

    """
    digest = FileDigest()
    for chunk in _chunks(path):
        digest.update(chunk)
    return digest.num_bytes, digest.xxh3, digest.sha256


def digest_file_xxh3(path: Path) -> str:
    """xxh3-128 of a file: as :func:`digest_file`, several times as fast.

    Raises:
        StorageError: the file cannot be read.

    """
    digest = xxh3_128()
    for chunk in _chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def document_ids(*, input_ids: Int32, labels: Int32, loss_weights: Float32 | None, offsets: Int64) -> Int64:
    """Identity of each document's content, as the module says.  # int64[D]

    Args:
        input_ids: int32[K]
        labels: int32[K]
        loss_weights: float32[K], or None where every weight is 0 or 1
        offsets: int64[D + 1]

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
    return digest_rows(header, columns).view(np.int64)


def block_digests(batch: BlockBatch, *, weighted: bool | None = None) -> UInt64:
    """Row digests of blocks.  # uint64[B]

    Args:
        batch: the blocks.
        weighted: whether their shard has loss_weights; by default, whether the batch has.

    """
    has = batch.loss_weights is not None
    return BlockRows.of(batch, weighted=has if weighted is None else weighted).digests()


def _chunks(path: Path) -> Iterator[memoryview]:
    buffer = bytearray(_CHUNK_BYTES)
    view = memoryview(buffer)
    with storage_errors("read", path), path.open("rb", buffering=0) as file:
        # The next piece is on its way while this one is digested; macOS takes no such advice.
        if hasattr(os, "posix_fadvise"):  # pragma: no branch - a system has it or not
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while count := file.readinto(buffer):
            yield view[:count]
