"""Whether the inputs are at the commit what they were when they were read.

A partition is compared with its digest when it is read again; a file may still change behind the partition that was
read last. Size, time and number of a file are looked at before the first byte of it is read, and again before the
commit. Where they differ, its bytes decide: a file that was only touched is the same.
"""

from collections.abc import Sequence
from pathlib import Path

from packer.errors import InputError, StorageError
from packer.source.file_bytes import changed
from packer.source.partition import FileStatus
from packer.store.digest import digest_file
from packer.store.manifest import Input


def refuse_changed(files: Sequence[tuple[Path, FileStatus]], inputs: Sequence[Input]) -> None:
    """Compare inputs with what was read of them.

    Args:
        files: The input files, as they were before they were read.
        inputs: What was read of each.

    Raises:
        InputError: one of them is not what it was.

    """
    for (path, status), entry in zip(files, inputs, strict=True):
        if FileStatus.of(path) == status:
            continue
        try:
            num_bytes, _, sha256 = digest_file(path)
        except StorageError as error:
            raise InputError(error.message, hint=error.hint) from error
        if sha256 != entry.sha256:
            raise changed(path, f"{entry.num_bytes} bytes were read, and now it holds {num_bytes} others")
