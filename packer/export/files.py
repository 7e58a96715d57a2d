"""The files of an export: each is whole or not there, and its digest is known."""

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from packer.store.folder import AtomicFile, inside


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

    def open(self, path: str) -> "OpenFile":
        """A file that gets its name, relative to the folder, when it is closed."""
        return OpenFile(self, path)

    def write(self, path: str, content: bytes) -> None:
        """A whole file."""
        with self.open(path) as file:
            file.write(content)
            file.finish()


class OpenFile:
    """A file being written; leaving the context without :meth:`finish` removes it."""

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
        self._file.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()
