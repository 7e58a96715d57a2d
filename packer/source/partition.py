"""Partitions, the pieces of an input file that are built one by one, and the formats of files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from packer.source.file_bytes import Codec, FilePath, unreadable

Format = Literal["jsonl", "json", "csv", "tsv", "parquet", "arrow"]

CSV_FORMATS = ("csv", "tsv")
TABLE_FORMATS = ("parquet", "arrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    """Size, time and number of a file: where they are the same, so are its bytes."""

    num_bytes: int
    modified_ns: int
    inode: int

    @classmethod
    def of(cls, path: FilePath) -> Self:
        """Look at a file.

        Raises:
            InputError: it cannot be looked at.

        """
        if not isinstance(path, Path):
            return cls(num_bytes=path.num_bytes, modified_ns=0, inode=0)  # another version of it is not read
        try:
            found = path.stat()
        except OSError as error:
            raise unreadable(path, error) from error
        return cls(num_bytes=found.st_size, modified_ns=found.st_mtime_ns, inode=found.st_ino)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """The Parquet or Arrow file of a partition, as it was when it was cut."""

    status: FileStatus
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A piece of an input file that is read, tokenized and kept as one; holds at least one row."""

    path: FilePath
    format: Format
    start: int  # bytes
    stop: int  # bytes; of Parquet both are those of a file that is not compressed
    first_row: int
    """Rows of the file before this partition."""

    first_line: int
    """Lines of the file before this partition, blank ones too; 0 where its rows are no lines."""

    num_rows: int
    xxh3: str
    """xxh3-128 of bytes `start` … `stop`, in hexadecimal; of a table, of the file's sha256 and the numbers below."""

    codec: Codec | None = None
    """How the bytes are compressed."""

    table: TableFile | None = None
    first_group: int = 0
    num_groups: int = 0
    """Row groups of Parquet, or record batches of Arrow."""

    skip: int = 0
    """Rows of the first group before this partition."""

    @property
    def num_bytes(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePartitions:
    """A file and its partitions, in order; together they hold each of its rows once."""

    sha256: str
    """Digest of the whole file, including rows beyond a limit."""

    num_bytes: int
    num_rows: int
    """Rows in the partitions: at most the limit."""

    partitions: tuple[Partition, ...]
