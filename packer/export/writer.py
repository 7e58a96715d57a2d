"""What the writer of a format is given and does: files that are whole or not there, and the rows of a split."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from packer.batches import BlockBatch
from packer.export.source import FlatDocuments
from packer.store.folder import AtomicFile, inside
from packer.store.manifest import ModelRecord

Form: TypeAlias = Literal["datasets", "megatron", "olmo", "mds"]
Unit: TypeAlias = Literal["documents", "blocks"]

FORMS: dict[Form, tuple[Unit, ...]] = {
    "datasets": ("documents", "blocks"),
    "megatron": ("documents",),
    "olmo": ("documents", "blocks"),
    "mds": ("documents",),
}
"""Form → what it can hold, the default first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """One file that was written."""

    path: str
    """Relative to the export, POSIX."""

    num_bytes: int
    sha256: str


class Files:
    """Writes files below one folder and remembers their digests.

    Raises:
        StorageError: from any method, where the disk refuses.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[ExportedFile] = []
        self._open: list[OpenFile] = []

    def open(self, path: str) -> "OpenFile":
        """A file that gets its name, relative to the folder, when it is finished."""
        file = OpenFile(self, path)
        self._open.append(file)
        return file

    def write(self, path: str, content: bytes) -> None:
        """A whole file."""
        file = self.open(path)
        file.write(content)
        file.finish()

    def abort(self) -> None:
        """Remove the files that are not finished."""
        for file in self._open:
            file.abort()


class OpenFile:
    """A file being written."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        """Relative to the export; may be changed before the end, where the name says how many files there are."""

        self._file = AtomicFile(inside(files.folder, path).parent)

    @property
    def num_bytes(self) -> int:
        return self._file.digest.num_bytes

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def write_array(self, values: npt.NDArray[Any]) -> None:
        """The bytes of an array, in its own type."""
        if len(values):
            self._file.write(np.ascontiguousarray(values).view(np.uint8).data)

    def flush(self) -> None:
        self._file.flush()

    def finish(self) -> None:
        """Give the file its name."""
        digest = self._file.digest
        self._file.commit(inside(self._files.folder, self.path).name)
        self._files.written.append(ExportedFile(path=self.path, num_bytes=digest.num_bytes, sha256=digest.sha256))

    def abort(self) -> None:
        """Remove it, unless it is finished."""
        self._file.abort()


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitToWrite:
    """One split, and where it goes."""

    files: Files
    split: str
    folder: str
    """Where the split's files go, relative to the export: empty, or ending in `/`."""

    unit: Unit
    weighted: bool
    """Some documents have fractional loss weights."""

    model: ModelRecord
    block_len: int
    separate_mask: bool
    identity: str
    """Hexadecimal digits that name exactly these rows."""


class Writer(Protocol):
    """Takes the rows of one split in their order."""

    def documents(self, batch: FlatDocuments) -> None:
        """Append documents."""

    def blocks(self, batch: BlockBatch) -> None:
        """Append blocks."""

    def finish(self) -> dict[str, Any]:
        """End the files; returns what export.json says of the split beside its counts."""
