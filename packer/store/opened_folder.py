"""Folders that are opened before anything is written, renamed or removed in them.

A path may lead elsewhere each time it is used: whoever else may write a folder can put a link in its place in between.
What is done through the descriptor of a folder is done in it.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packer.host.regular_file import special_file_error


@contextmanager
def opened_folder(folder: Path, *, below: Path | None) -> Iterator[int]:
    """Create a folder if necessary, and open it: what is done through its descriptor is done there.

    `below` is `folder` or a folder above it: nothing between the two is a link, whoever exchanges them meanwhile.

    Raises:
        OSError: the disk cannot be written, or there is a link.
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
    """Create a folder and its parents so that they survive a power failure.

    Raises:
        OSError: the disk cannot be written.
    """
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
