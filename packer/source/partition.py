"""Partitions (the pieces of an input file that are built one by one) and file formats."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from packer.source.file_bytes import Codec, FilePath, unreadable_error

Format = Literal["jsonl", "json", "csv", "tsv", "parquet", "arrow"]

CSV_FORMATS = ("csv", "tsv")
TABLE_FORMATS = ("parquet", "arrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    """Size, modification time and inode of a file: if these are unchanged, so are its bytes."""

    num_bytes: int
    modified_ns: int
    inode: int

    @classmethod
    def of(cls, path: FilePath) -> Self:
        """Return the status of a file."""
        if not isinstance(path, Path):
            return cls(num_bytes=path.num_bytes, modified_ns=0, inode=0)  # another version of it is not read
        try:
            found = path.stat()
        except OSError as error:
            raise unreadable_error(path, error) from error
        return cls(num_bytes=found.st_size, modified_ns=found.st_mtime_ns, inode=found.st_ino)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """The state of a Parquet or Arrow file when it was cut into partitions."""

    status: FileStatus
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A piece of an input file that is read, tokenized and stored as a unit; it has at least one row."""

    path: FilePath
    format: Format
    start: int  # bytes
    stop: int  # bytes; for Parquet, start and stop are offsets in the uncompressed data
    first_row: int
    """Number of rows in the file before this partition."""

    first_line: int
    """Number of lines in the file before this partition, including blank ones; 0 if its rows are not lines."""

    num_rows: int
    xxh3: str
    """xxh3-128 in hexadecimal: of the bytes `start` … `stop`; for a table, of the file's sha256 and the three numbers
    below."""

    codec: Codec | None = None
    """How the bytes are compressed."""

    table: TableFile | None = None
    first_group: int = 0
    num_groups: int = 0
    """Number of row groups (Parquet) or record batches (Arrow)."""

    skip: int = 0
    """Number of rows of the first group that precede this partition."""

    @property
    def num_bytes(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePartitions:
    """A file and its partitions, in order; together they contain each of its rows exactly once."""

    sha256: str
    """Digest of the whole file, including rows beyond a limit."""

    num_bytes: int
    num_rows: int
    """Number of rows in the partitions, at most the limit."""

    partitions: tuple[Partition, ...]
