"""How a reader gets at the bytes of a shard: through a map of the file, or by reading them row by row.

A map is fastest where files lie on a local disk. On a network file system a page that cannot be fetched kills the
process, and a page is little to ask for at a time: there, rows are better read with ``pread``. The structure of a file
is taken from a map in both cases, once, when it is opened; what is read later is only values.
"""

import os
import weakref
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.errors import CheckError
from packer.store.path_errors import storage_errors


class Pages(Protocol):
    """Values of the buffers of one file."""

    def array(self, buffer: pa.Buffer, dtype: type[np.generic], count: int) -> npt.NDArray[Any]:
        """The first values of a buffer, at hand: offsets, and columns with one value a row."""

    def column(self, buffer: pa.Buffer, dtype: type[np.generic], count: int) -> Any:
        """The first values of a buffer, an array or what can be sliced like one: columns of tokens."""


class MappedPages:
    """Arrays over the pages of the map."""

    def array(self, buffer: pa.Buffer, dtype: type[np.generic], count: int) -> npt.NDArray[Any]:
        return np.frombuffer(buffer, dtype, count)

    column = array


class ReadPages:
    """Values read from the file when they are asked for. One descriptor stays open.

    Args:
        path: the file.
        base: address its map had when its buffers were found.

    """

    def __init__(self, path: Path, base: int) -> None:
        self._path = path
        self._base = base
        with storage_errors("read", path):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)

    def array(self, buffer: pa.Buffer, dtype: type[np.generic], count: int) -> npt.NDArray[Any]:
        return self.read(buffer.address - self._base, dtype, count)

    def column(self, buffer: pa.Buffer, dtype: type[np.generic], count: int) -> "FileColumn":
        return FileColumn(self, buffer.address - self._base, dtype, count)

    def read(self, offset: int, dtype: type[np.generic], count: int) -> npt.NDArray[Any]:
        """So many values from an offset in bytes on.

        Raises:
            CheckError: the file ends before them.
            StorageError: it cannot be read.

        """
        size = count * np.dtype(dtype).itemsize
        with storage_errors("read", self._path):
            read = os.pread(self._descriptor, size, offset)
            while 0 < len(read) < size and (more := os.pread(self._descriptor, size - len(read), offset + len(read))):
                read += more
        if len(read) != size:
            raise CheckError(f"{self._path} is truncated: expected {size} bytes at {offset}, found {len(read)}")
        return np.frombuffer(read, dtype)


class FileColumn:
    """A column in a file: a slice of it is read when it is taken."""

    def __init__(self, pages: ReadPages, offset: int, dtype: type[np.generic], count: int) -> None:
        self._pages, self._offset, self._count = pages, offset, count
        self._type = dtype
        self.dtype = np.dtype(dtype)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: slice) -> npt.NDArray[Any]:
        start, stop, _ = place.indices(self._count)
        return self._pages.read(self._offset + start * self.dtype.itemsize, self._type, max(stop - start, 0))

    def reshape(self, num_rows: int, width: int) -> "FileTable":
        return FileTable(self, (num_rows, width))


class FileTable:
    """A column with as many values in each row: a row is read when it is taken."""

    def __init__(self, column: FileColumn, shape: tuple[int, int]) -> None:
        self._column = column
        self.shape = shape

    def __getitem__(self, row: int) -> npt.NDArray[Any]:
        width = self.shape[1]
        return self._column[row * width : (row + 1) * width]


MAPPED = MappedPages()
