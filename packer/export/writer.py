"""What writers are given and what they write: the rows of a split as flat arrays, and files with their digests."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from packer.batches import BlockBatch, Bool, Float32, Int8, Int32, Int64
from packer.export.formats import Unit
from packer.layout import MASKED, offsets_of
from packer.store.cache import BlockShards, Cache, DocumentShards
from packer.store.folder import inside, make_folder

_TOKENS = 2**20
"""Tokens read in one go, about: some tens of megabytes with all columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatDocuments:
    """Consecutive documents one after another. D documents, K tokens."""

    input_ids: Int32  # [K]
    labels: Int32  # [K], unshifted
    loss_weights: Float32 | None  # [K], where the split has fractional weights
    offsets: Int64  # [D + 1]
    sides: Int8 | None = None  # [D] of preference data; of a pair both documents are here
    margins: Float32 | None = None  # [D] NaN where there is none; None where `sides` is

    @property
    def trained(self) -> Bool:
        """True where a token has a label.  # bool[K]"""
        found: Bool = self.labels != MASKED
        return found

    @property
    def length(self) -> Int64:
        """Tokens of each document.  # int64[D]"""
        return np.diff(self.offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRows:
    """The rows of one split, and how they are to be exported."""

    cache: Cache
    split: str
    unit: Unit
    is_alone: bool
    """No other split is exported."""

    separate_mask: bool
    """The loss mask is a file of its own."""

    @property
    def shards(self) -> DocumentShards | BlockShards:
        return self.cache.documents(self.split) if self.unit == "documents" else self.cache.blocks(self.split)

    @property
    def weighted(self) -> bool:
        """Whether some rows have fractional loss weights."""
        return self.shards.weighted

    @property
    def is_preference(self) -> bool:
        """Whether the rows are pairs or rated answers."""
        return self.cache.documents(self.split).is_preference

    @property
    def is_paired(self) -> bool:
        """Whether documents 2i and 2i + 1 are the chosen and the rejected answer of pair i."""
        return self.cache.documents(self.split).is_paired

    def __len__(self) -> int:
        return len(self.shards)

    def batches(self) -> Iterator[FlatDocuments | BlockBatch]:
        """All rows in their order, about a million tokens at a time.

        Raises:
            CheckError: a row is not what was written.
            StorageError: something cannot be read.

        """
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
    """Ranges of documents of about `_TOKENS` tokens, none of them empty, that begin at a multiple of `together`.

    Worked example: with 10 in place of a million, lengths [6, 3, 9, 40, 1] make [0, 3), [3, 4) and [4, 5): a range ends
    with the document that reaches the next multiple of 10.
    """
    sums = np.cumsum(lengths)[together - 1 :: together]
    cuts = together * (np.flatnonzero(np.diff(sums // _TOKENS, prepend=0)) + 1)
    bounds = np.unique([0, *cuts.tolist(), len(lengths)]).tolist()
    yield from pairwise(bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """One file that was written."""

    path: str
    """Relative to the export, POSIX."""

    num_bytes: int
    sha256: str


class Files(ExitStack):
    """Writes files below one folder; as a context it closes them."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._opened: dict[str, BinaryIO] = {}

    def open(self, path: str) -> BinaryIO:
        """A new file, by its path relative to the folder.

        Raises:
            StorageError: the path leads out of the folder.

        """
        place = inside(self._folder, path)
        make_folder(place.parent)
        file = self._opened[path] = self.enter_context(place.open("xb", 2**20))
        return file

    def write(self, path: str, content: bytes) -> None:
        """A whole file."""
        with self.open(path) as file:
            file.write(content)

    def written(self) -> tuple[ExportedFile, ...]:
        """All files, once they are closed: puts them on the disk, and digests what is read of them again."""
        found = []
        for path in self._opened:
            with (self._folder / path).open("rb") as file:
                os.fsync(file.fileno())
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                found.append(ExportedFile(path=path, num_bytes=file.tell(), sha256=digest))
        return tuple(found)


class Writer:
    """Writes the rows of one split, which come in their order, in the files of a format.

    Args:
        files: where to.
        rows: where from.

    """

    def __init__(self, files: Files, rows: SplitRows) -> None:
        self.files, self.rows = files, rows
        self.split, self.unit = rows.split, rows.unit
        self.model = rows.cache.manifest.model

    @classmethod
    def refuse(cls, rows: Sequence[SplitRows]) -> None:
        """Raise a UsageError where the trainer would train otherwise than these rows say. Nothing is written yet."""

    @classmethod
    def write_index(cls, files: Files, splits: Sequence[str]) -> None:
        """Write what stands beside the splits."""

    def write(self, batch: FlatDocuments | BlockBatch) -> None:
        """Append rows."""
        if isinstance(batch, FlatDocuments):
            self.documents(batch)
        else:
            self.blocks(batch)

    def documents(self, batch: FlatDocuments) -> None:
        """Append documents."""
        raise NotImplementedError

    def blocks(self, batch: BlockBatch) -> None:
        """Append blocks, where the format can hold them."""
        raise NotImplementedError

    def finish(self) -> dict[str, Any]:
        """Write what is left; returns what export.json says of the split beside its counts."""
        raise NotImplementedError

    def notes(self) -> Iterator[str]:
        """Notes on training with it; called after `finish`."""
        yield from ()
