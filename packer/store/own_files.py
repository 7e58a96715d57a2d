"""Locks, and folders that are made and flushed: a link in one could lead to any file of the user."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packer.host.limits import storage_errors
from packer.host.regular_file import open_descriptor, special_file_error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock out other processes and threads.

    Raises:
        StorageError: what has this name is no file, or the disk has no locks.
    """
    with storage_errors("lock", path):
        descriptor = open_descriptor(path, os.O_RDWR | os.O_CREAT)
    try:
        with storage_errors("lock", path):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        # Unlock explicitly, as a process that was forked meanwhile has the file open too and would keep the lock.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def make_folder(folder: Path, *, below: Path | None = None) -> None:
    """Create a folder and its parents so that they survive a power failure.

    `below` is `folder` or a folder above it: nothing between the two is a link.

    Raises:
        OSError: the disk cannot be written, or there is a link.
    """
    if below is not None:
        place = below
        for name in folder.relative_to(below).parts:
            place /= name
            if place.is_symlink():
                raise special_file_error(place, "a symbolic link")
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    # A folder that is writable but not readable cannot be flushed.
    with suppress(PermissionError):
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder, so that renames within it survive a power failure.

    Raises:
        OSError: the disk cannot be written.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems (network, FUSE) cannot flush a folder and report EINVAL.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
