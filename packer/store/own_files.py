"""Files, locks and folders that are opened before anything is done in them: somebody else may fill them.

A link there could lead to any file of the user, and a pipe would make packer wait forever. A path may lead elsewhere
each time it is used: what is done through the descriptor of a folder is done in it.
"""

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
    """Lock out other processes and threads."""
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


@contextmanager
def opened_folder(folder: Path, *, below: Path | None) -> Iterator[int]:
    """Create a folder if necessary, and open it: what is done through its descriptor is done there. Raises OSError.

    `below` is `folder` or a folder above it: nothing between the two is a link, whoever exchanges them meanwhile.
    """
    opened = open_folder(folder, below)
    try:
        yield opened
    finally:
        os.close(opened)


def open_folder(folder: Path, below: Path | None) -> int:
    """Return the descriptor of :func:`opened_folder`, which the caller closes."""
    place = folder if below is None else below
    make_folder(place)
    opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in folder.relative_to(place).parts:
        parent, place = opened, place / name
        try:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
                sync(parent)
            opened = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        except OSError:
            if place.is_symlink():
                raise special_file_error(place, "a symbolic link") from None
            raise
        finally:
            os.close(parent)
    return opened


def make_folder(folder: Path) -> None:
    """Create a folder and its parents so that they survive a power failure. Raises OSError."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    # A folder that is writable but not readable cannot be flushed.
    with suppress(PermissionError):
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder, so that renames within it survive a power failure. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def sync(folder: int) -> None:
    """Flush an open folder, as :func:`sync_folder`."""
    try:
        os.fsync(folder)
    except OSError as error:
        # Some file systems (network, FUSE) cannot flush a folder and report EINVAL.
        if error.errno != errno.EINVAL:
            raise
