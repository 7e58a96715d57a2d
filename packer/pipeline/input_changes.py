"""Whether the inputs are at the commit what they were when they were read.

A partition is compared with its digest when it is read again; a file may still change behind the partition that was
read last. Size, time and number of a file are looked at before the first byte of it is read, and again before the
commit. Where they differ, its bytes decide: a file that was only touched is the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from packer.errors import InputError, StorageError
from packer.source.file_bytes import changed, unreadable
from packer.store.digest import digest_file
from packer.store.manifest import Input


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A file as its folder tells of it."""

    path: Path
    num_bytes: int
    modified_ns: int
    inode: int

    @classmethod
    def at(cls, path: Path) -> Self:
        """Look at a file.

        Raises:
            InputError: it cannot be looked at.

        """
        try:
            found = path.stat()
        except OSError as error:
            raise unreadable(path, error) from error
        return cls(path=path, num_bytes=found.st_size, modified_ns=found.st_mtime_ns, inode=found.st_ino)


def refuse_changed(looks: Sequence[Look], inputs: Sequence[Input]) -> None:
    """Compare inputs with what was read of them.

    Raises:
        InputError: one of them is not what it was.

    """
    for look, entry in zip(looks, inputs, strict=True):
        if Look.at(look.path) == look:
            continue
        try:
            num_bytes, _, sha256 = digest_file(look.path)
        except StorageError as error:
            raise InputError(error.message, hint=error.hint) from error
        if sha256 != entry.sha256:
            raise changed(look.path, f"{entry.num_bytes} bytes were read, and now it holds {num_bytes} others")
