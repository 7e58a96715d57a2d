"""Files of this machine: which are opened, what is said where the system refuses, and where packer's own are.

Packer reads and locks regular files alone, whatever name leads to them, and no links out of a folder.

A pipe waits for somebody to write into it, a device may never end, or act when it is opened, and what the kernel shows
as a file (in `/proc`, for example) says that it has 0 bytes and then gives some, or waits for them. None of these is a
file that a build could read twice and find unchanged, so all are refused by one rule, and opening never waits.

A folder may come from anybody: a cache, a tokenizer, a dataset. The name that the user typed may be a link, but what
stands in the folder is opened only if no link leads out of it.
"""

import errno
import io
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from packer.errors import InputError, PackerError, ResourceError, StorageError, UsageError

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


CACHE_DIR = "PACKER_CACHE_DIR"
"""Environment variable that names the folder of packer's own files."""


def cache_dir(asked: Path | str | None = None) -> Path:
    """Return the folder for packer's own files."""
    if named := asked or os.environ.get(CACHE_DIR):
        return Path(named).absolute()
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        # The XDG specification says to ignore relative paths.
        return (caches if caches.is_absolute() else Path.home() / ".cache") / "packer"
    except RuntimeError:
        raise UsageError(
            "there is no home directory for packer's own files, such as copies of caches in buckets",
            hint=f"set {CACHE_DIR} to a folder for them",
        ) from None


# What is exhausted, and what the disk refuses


def out_of(error: BaseException, action: str | None = None) -> ResourceError | None:
    """Return the error to raise if another one means that a resource is exhausted; None if it means something else.

    `action` is what failed, and where: "cannot read x.jsonl".
    """
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, OSError) and error.filename is None and (error.strerror or "").startswith(_NO_TEMPORARY):
        return ResourceError(
            f"{error.strerror}: none of them is writable and has space", hint="set TMPDIR to a folder on another disk"
        )
    if isinstance(error, MemoryError):
        number = errno.ENOMEM
    elif _NO_THREAD.search(str(error)):
        number = errno.EAGAIN
    if number not in _RAN_OUT:
        return None
    what, limit = _RAN_OUT[number]
    return ResourceError(
        what if action is None else f"{action}: {what}", hint=f"raise `{limit}`, or use fewer processes: -j 1"
    )


_RAN_OUT: Mapping[int | None, tuple[str, str]] = {
    errno.EMFILE: ("too many open files", "ulimit -n"),
    errno.ENFILE: ("too many open files on this machine", "sysctl fs.file-max"),
    errno.ENOMEM: ("out of memory", "ulimit -v"),
    errno.EAGAIN: ("no more processes or threads", "ulimit -u"),
}
"""By errno: what is exhausted, and the setting that limits it."""

_NO_TEMPORARY = "No usable temporary directory"
"""How `tempfile` begins to say it; that is a FileNotFoundError without a path."""

_NO_THREAD = re.compile("can't start new thread|ThreadPoolBuildError|failed to spawn thread")
"""How Python, rayon and Rust say that no thread could be started."""


MAX_JSON_VALUES = 10_000_000
"""Limit for the values of received JSON that may have any form: `{},` takes 72 bytes for 3, so 720 MB. The largest
published `tokenizer.json` has some two million."""


def refuse_many_values(content: bytes) -> None:
    """Refuse JSON, with a ValueError, that may have more than `MAX_JSON_VALUES`, by a bound that takes no decoding."""
    if sum(content.count(mark) for mark in (b",", b"[", b"{")) > MAX_JSON_VALUES:
        raise ValueError(f"more than {MAX_JSON_VALUES:,} values")


_OTHER_DISK = "name a folder on another disk: with -o, or for copies of what is in a bucket with PACKER_CACHE_DIR"

_HINTS: dict[int, str | None] = {
    errno.ENOSPC: f"free some space, or {_OTHER_DISK}",
    errno.EDQUOT: f"the disk quota is used up: free some space, or {_OTHER_DISK}",
    errno.EFBIG: "the file is larger than this disk or this user's limit allows; of a build, lower shard_bytes",
    errno.ENAMETOOLONG: "name a shorter path",
    errno.EACCES: "check who owns the folder and its permissions",
    errno.EPERM: "check who owns the folder and its permissions",
    errno.EROFS: f"the disk is mounted read-only: {_OTHER_DISK}",
    errno.EIO: "the disk reports a failure: check its health before trusting anything on it",
    errno.ENOLCK: "this file system has no locks: build on a local disk and copy the cache afterwards",
    errno.ENXIO: "only regular files are read and locked, and folders of a cache are no links: put the real one there",
    errno.ENOENT: None,
    errno.ENOTDIR: None,
    errno.EISDIR: None,
    errno.ENOTSUP: "this file system lacks what packer needs: build on a local disk and copy the cache afterwards",
}

_ELSE = "run the same command again: what was finished is kept"


def is_panic(error: BaseException) -> bool:
    """Whether an error is a panic of a library written in Rust, which does not derive from `Exception`."""
    return type(error).__name__ == "PanicException"


@contextmanager
def storage_errors(action: str, path: Path | str) -> Iterator[None]:
    """Turn an OSError into a StorageError that says what failed, and where; if something ran out, a ResourceError."""
    try:
        yield
    except OSError as error:
        raise _storage_error(action, path, error) from error


@contextmanager
def path_errors() -> Iterator[None]:
    """Turn an OSError that names its path into a StorageError; for work that touches many paths."""
    try:
        yield
    except (OSError, MemoryError, RuntimeError) as error:
        if not isinstance(error, OSError) or error.filename is None:
            if (limit := out_of(error)) is not None:
                raise limit from error
            raise  # a pipe, or something else that is not on a disk
        raise _storage_error("use", os.fsdecode(error.filename), error) from error


def _storage_error(action: str, path: Path | str, error: OSError) -> PackerError:
    if (limit := out_of(error, f"cannot {action} {path}")) is not None:
        return limit
    hint = _ELSE if error.errno is None else _HINTS.get(error.errno, _ELSE)
    return StorageError(f"cannot {action} {path}: {error.strerror or error}", hint=hint)
