"""Open files and locks of packer's own in a folder that somebody else may have filled.

A link there could lead to any file of the user, and a pipe would make packer wait forever.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packer.errors import StorageError
from packer.host.limits import storage_errors
from packer.host.regular_file import open_descriptor


def open_own(path: Path, flags: int) -> int:
    """Open a regular file, and return its descriptor; no link is followed, and anything else counts as not there.

    Raises:
        FileNotFoundError: there is no regular file of this name.
        OSError: it cannot be opened.
    """
    try:
        return open_descriptor(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.EISDIR):
            raise
    raise FileNotFoundError(errno.ENOENT, "not a regular file", os.fspath(path))


def read_own(path: Path) -> bytes | None:
    """Read a small regular file; None if there is none of this name.

    Raises:
        StorageError: it cannot be read.
    """
    with storage_errors("read", path), suppress(FileNotFoundError), os.fdopen(open_own(path, os.O_RDONLY), "rb") as own:
        return own.read()
    return None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock out other processes and threads.

    Raises:
        StorageError: what has this name is no file, or the disk has no locks.
    """
    with storage_errors("lock", path):
        try:
            descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            raise StorageError(f"{path} is a link, a pipe or a device, and no lock", hint="remove it") from None
    try:
        with storage_errors("lock", path):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        # Unlock explicitly, as a process that was forked meanwhile has the file open too and would keep the lock.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
