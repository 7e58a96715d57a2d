"""What all formats share: their input, the rows of a split as flat arrays, and their output, files with digests."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.batches import BlockBatch, Float32, Int8, Int32, Int64
from packer.errors import UsageError
from packer.export.formats import Unit
from packer.layout import array_of, offsets_of
from packer.store.cache import BlockShards, Cache, DocumentShards
from packer.store.folder import inside, make_folder

_TOKENS = 2**20
"""Approximate number of tokens read at a time: some tens of megabytes with all columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatDocuments:
    """Consecutive documents as flat arrays. D documents, K tokens."""

    input_ids: Int32  # [K]
    labels: Int32  # [K], unshifted
    loss_weights: Float32 | None  # [K], None unless the split has fractional weights
    offsets: Int64  # [D + 1]
    sides: Int8 | None = None  # [D] for preference data; both documents of a pair are in the same batch
    margins: Float32 | None = None  # [D] NaN for no margin; None if `sides` is

    @property
    def length(self) -> Int64:
        """Tokens of each document.  # int64[D]"""
        return np.diff(self.offsets)


Batch: TypeAlias = FlatDocuments | BlockBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRows:
    """The rows of one split, and how to export them."""

    cache: Cache
    split: str
    unit: Unit
    is_alone: bool
    """Whether this is the only split that is exported."""

    @property
    def shards(self) -> DocumentShards | BlockShards:
        return self.cache.documents(self.split) if self.unit == "documents" else self.cache.blocks(self.split)

    @property
    def weighted(self) -> bool:
        """Whether some rows have fractional loss weights."""
        return self.shards.weighted

    def __len__(self) -> int:
        return len(self.shards)

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order, about a million tokens at a time."""
        shards = self.shards
        if isinstance(shards, BlockShards):
            step = max(1, _TOKENS // max(1, shards.block_len))
            for first in range(0, len(shards), step):
                yield shards.read(np.arange(first, min(first + step, len(shards)), dtype=np.int64))
            return
        lengths = shards.lengths().astype(np.int64)
        sides, margins = (shards.sides(), shards.margins()) if shards.is_preference else (None, None)
        for first, end in _windows(lengths, together=2 if shards.is_paired else 1):
            found = shards.locate(np.arange(first, end, dtype=np.int64))
            offsets = offsets_of(lengths[first:end])
            weights = np.concatenate(found.values("loss_weights"), dtype=np.float32) if shards.weighted else None
            yield FlatDocuments(
                input_ids=np.concatenate(found.values("input_ids")),
                labels=np.concatenate(found.values("labels")),
                loss_weights=weights,
                offsets=offsets,
                sides=None if sides is None else sides[first:end],
                margins=None if margins is None else margins[first:end],
            )


def _windows(lengths: Int64, *, together: int) -> Iterator[tuple[int, int]]:
    """Yield nonempty ranges of documents of about `_TOKENS` tokens that begin at a multiple of `together`.

    Worked example: with 10 instead of a million, lengths [6, 3, 9, 40, 1] give [0, 3), [3, 4) and [4, 5): a range ends
    with the document that reaches the next multiple of 10.
    """
    sums = np.cumsum(lengths)[together - 1 :: together]
    cuts = together * (np.flatnonzero(np.diff(sums // _TOKENS, prepend=0)) + 1)
    bounds = np.unique([0, *cuts.tolist(), len(lengths)]).tolist()
    yield from pairwise(bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A file that was written."""

    path: str
    """Relative to the export, POSIX."""

    num_bytes: int
    sha256: str


class Files(ExitStack):
    """Writes files below one folder; leaving the context closes them."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._opened: dict[str, BinaryIO] = {}

    def open(self, path: str) -> BinaryIO:
        """Create a file, given its path relative to the folder."""
        place = inside(self._folder, path)
        try:
            make_folder(place.parent)
            file = self._opened[path] = self.enter_context(place.open("xb", 2**20))
        except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
            raise UsageError(
                f"a split of the cache and a file of the export have the same name: {path}",
                hint="--split exports another split; a recipe may give this one another name",
            ) from error
        return file

    def write(self, path: str, content: bytes) -> None:
        """Write a whole file."""
        with self.open(path) as file:
            file.write(content)

    def written(self) -> tuple[ExportedFile, ...]:
        """Flush all files to disk and return them with digests of what is read back. Call it after they are closed."""
        found = []
        for path in self._opened:
            with (self._folder / path).open("rb") as file:
                os.fsync(file.fileno())
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                found.append(ExportedFile(path=path, num_bytes=file.tell(), sha256=digest))
        return tuple(found)


def lists(values: npt.NDArray[Any], offsets: Int64) -> pa.Array:
    """Return a column of lists: entry i is ``values[offsets[i]:offsets[i + 1]]``, of lists where values are rows."""
    inner = array_of(values) if values.ndim == 1 else None
    if inner is None:
        inner = lists(values.reshape(-1), np.arange(len(values) + 1) * values.shape[1])
    return pa.ListArray.from_arrays(array_of(offsets.astype(np.int32)), inner)
