"""Open what packer reads and locks: regular files alone, whatever name leads to them, and no links out of a folder.

A pipe waits for somebody to write into it, a device may never end, or act when it is opened, and what the kernel shows
as a file (in `/proc`, for example) says that it has 0 bytes and then gives some, or waits for them. None of these is a
file that a build could read twice and find unchanged, so all are refused by one rule, and opening never waits.

A folder may come from anybody: a cache, a tokenizer, a dataset. The name that the user typed may be a link, but what
stands in the folder is opened only if no link leads out of it.
"""

import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from packer.errors import InputError

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}

LFS_POINTER, FETCH_LFS = (
    b"version https://git-lfs.github.com/spec/",
    "fetch the file itself: git lfs pull, in its clone",
)
"""How a file begins that a clone without Git LFS has in place of the file, and what replaces it."""

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

_OF_HUB = ("models--", "datasets--")
"""Begin the names of folders that the Hub's client makes, one for each repository."""


def open_descriptor(path: Path | str, flags: int = os.O_RDONLY, *, dir_fd: int | None = None) -> int:
    """Open a regular file and return its descriptor; with `O_NOFOLLOW` in `flags`, one that is not a link either.

    `dir_fd` is of the folder that the path is relative to. OSError as of `os.open`; with ENXIO, it is not a regular
    file.
    """
    with suppress(FileNotFoundError):  # os.open says so, or creates it
        # Before it is opened, since opening some devices acts on them.
        follows = not flags & os.O_NOFOLLOW
        _refuse_special(os.stat(path, dir_fd=dir_fd, follow_symlinks=follows).st_mode, path)
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o666, dir_fd=dir_fd)
    try:
        _refuse_special(os.fstat(descriptor).st_mode, path)
        _refuse_boundless(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_regular(path: Path | str) -> io.BufferedReader:
    """Open a regular file for reading, as ``open(path, "rb")`` does; OSError as of :func:`open_descriptor`."""
    return os.fdopen(open_descriptor(path), "rb")


MAX_SMALL_BYTES = 64 * 2**20
"""Limit for a file that is read whole: a recipe, a state, an index. Usual ones have some thousand bytes."""


def read_regular_bytes(path: Path | str) -> bytes:
    """Read a small regular file whole.

    OSError as of :func:`open_descriptor`; with EFBIG, it has more than `MAX_SMALL_BYTES`.
    """
    with open_regular(path) as file:
        content = file.read(MAX_SMALL_BYTES + 1)
    if len(content) > MAX_SMALL_BYTES:
        reason = f"it has more than {MAX_SMALL_BYTES:,} bytes"
        raise OSError(errno.EFBIG, reason, os.fspath(path))
    return content


def regular_path(path: Path | str) -> bytes:
    """Return a path for a library that opens it by name, after checking that it leads to a regular file.

    As bytes, since a name need not be text. OSError as of :func:`open_descriptor`.
    """
    os.close(open_descriptor(path))
    return os.fsencode(path)


def special_file_error(path: Path | str, what: str) -> OSError:
    """Return the error for what is not a regular file; `what` names its kind."""
    return OSError(errno.ENXIO, f"it is {what}, not a regular file", os.fspath(path))


def _refuse_special(mode: int, path: Path | str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        raise special_file_error(path, _KINDS.get(stat.S_IFMT(mode), "something else"))


def _refuse_boundless(descriptor: int, path: Path | str) -> None:
    """Refuse a file that has 0 bytes and gives some all the same, or cannot be read at a place of its own."""
    if os.fstat(descriptor).st_size:
        return
    with suppress(OSError):
        if not os.pread(descriptor, 1, 0):
            return
    raise special_file_error(path, "a file of the kernel")


def walk(folder: Path, onerror: Callable[[OSError], None] | None = None) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder below one, and itself, with the names of its folders and of all else, links among them.

    As `os.walk`, which before Python 3.12 calls itself for every level, of which a folder may have thousands: what is
    taken out of the folders is not entered, and a folder that cannot be listed is left out or given to `onerror`.
    """
    left = [os.fspath(folder)]
    while left:
        parent = left.pop()
        folders: list[str] = []
        names: list[str] = []
        try:
            with os.scandir(parent) as entries:
                for entry in entries:
                    (folders if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
        except OSError as error:
            if onerror is not None:
                onerror(error)
            continue
        folders.sort()
        yield parent, folders, names
        left += [f"{parent}/{name}" for name in reversed(folders)]


def path_within(folder: Path, name: str) -> Path:
    """Return the path of what has a name in a folder that is not a cache."""
    if leads_outside(folder, name):
        raise InputError(
            f"{folder / name}: not read: a link leads out of this folder",
            hint="if you trust what it leads to, copy that here in place of the link",
        )
    return folder / name


def is_inside(root: Path, path: str) -> bool:
    """Whether a path within a folder stays inside after following symbolic links; `root` must be resolved already.

    The Hub's client keeps files in `blobs/`, and links to them in `snapshots/COMMIT/` beside it: these count as inside.
    """
    try:
        place = Path(os.path.realpath(root / path, strict=True))
    except OSError as error:
        if error.errno not in _NOTHING_THERE:  # such as a path too long to look up, which links open all the same
            return False
        place = Path(os.path.realpath(root / path))  # opening it fails as well
    homes = (parent.parent for parent in root.parents if parent.name == "snapshots")
    blobs = next((home / "blobs" for home in homes if home.name.startswith(_OF_HUB)), None)
    return place.is_relative_to(root) or (blobs is not None and not blobs.is_symlink() and place.parent == blobs)


def leads_outside(folder: Path, path: str) -> bool:
    """Whether a path leads out of a folder, which need not be resolved; without links on the way, some microseconds."""
    parts = path.split("/")
    ways = ("/".join(parts[: number + 1]) for number in range(len(parts)))
    has_link = any(os.path.islink(f"{folder}/{way}") for way in ways)  # noqa: PTH114 - for every file; a Path takes longer
    return (has_link or not {"", ".."}.isdisjoint(parts)) and not is_inside(folder.resolve(), path)
