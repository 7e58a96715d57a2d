"""What the writer of a format is given and does, and the files it writes, whose digests are made on the way."""

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from packer.batches import BlockBatch
from packer.export.formats import Unit
from packer.export.source import FlatDocuments
from packer.store.cache import Cache
from packer.store.folder import inside, make_folder
from packer.store.manifest import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """One file that was written."""

    path: str
    """Relative to the export, POSIX."""

    num_bytes: int
    sha256: str


class HashedFile(io.BufferedWriter):
    """A new file and the sha256 of what was written; closing it puts it on the disk."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "x"), 2**20)
        self.sha256 = hashlib.sha256()
        self.num_bytes = 0

    def write(self, data: Any) -> int:
        written = super().write(data)
        self.sha256.update(data)
        self.num_bytes += written
        return written

    def write_array(self, values: npt.NDArray[Any]) -> None:
        """The bytes of an array, in its own type."""
        self.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def close(self) -> None:
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
        super().close()


class Files(ExitStack):
    """Writes files below one folder; as a context it closes them."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._opened: dict[str, HashedFile] = {}

    def open(self, path: str) -> HashedFile:
        """A new file, by its path relative to the folder.

        Raises:
            StorageError: the path leads out of the folder.

        """
        place = inside(self._folder, path)
        make_folder(place.parent)
        file = self._opened[path] = self.enter_context(HashedFile(place))
        return file

    def write(self, path: str, content: bytes) -> None:
        """A whole file."""
        with self.open(path) as file:
            file.write(content)

    def written(self) -> tuple[ExportedFile, ...]:
        """All files so far."""
        return tuple(
            ExportedFile(path=path, num_bytes=file.num_bytes, sha256=file.sha256.hexdigest())
            for path, file in self._opened.items()
        )


class Writer:
    """Writes the rows of one split, which come in their order, in the files of a format.

    Args:
        files: where to.
        cache: where from.
        split: name of the split.
        unit: what its rows are.
        is_alone: whether no other split is exported.
        separate_mask: whether the loss mask is a file of its own.

    """

    holds_weights: ClassVar[bool] = False
    """Whether fractional loss weights have a place; a cache that has some is refused otherwise."""

    separates_mask: ClassVar[bool] = False
    """Whether the loss mask can be a file of its own."""

    def __init__(
        self, files: Files, cache: Cache, split: str, *, unit: Unit, is_alone: bool, separate_mask: bool
    ) -> None:
        self.files, self.cache, self.split, self.unit = files, cache, split, unit
        self.is_alone, self.separate_mask = is_alone, separate_mask
        self.model = cache.manifest.model

    @classmethod
    def refuse(cls, cache: Cache, shards: Sequence[Shard], *, unit: Unit, separate_mask: bool) -> None:
        """Raise a UsageError where the trainer would train otherwise than these shards say. Nothing is written yet."""

    @classmethod
    def write_index(cls, files: Files, splits: Sequence[str]) -> None:
        """Write what stands beside the splits."""

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
        """What whoever trains with it should know; asked after `finish`."""
        yield from ()


def is_weighted(cache: Cache, split: str, unit: Unit) -> bool:
    """Whether some rows of a split have fractional loss weights."""
    return cache.documents(split).weighted if unit == "documents" else cache.blocks(split).weighted
