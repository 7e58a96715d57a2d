"""The cache folder: one writer at a time, atomic files, and no leftovers.

A file is written under a temporary name in its folder, flushed to disk and renamed, and then the folder is flushed too.
So after a crash at any moment, a name is either absent or its file is complete.
"""

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from packer.errors import BusyError, StorageError
from packer.limits import storage_errors
from packer.names import is_file_path
from packer.store.digest import FileDigest

PRIVATE = ".packer"
"""Folder within a cache for what is not part of it: the lock, and parts of an unfinished build."""

LOCK_NAME = "lock"
_LOCK_RETRY_S = 0.05
"""Pause before a second attempt at the lock: a mere check whether it is free holds it for less than this."""

TEMPORARY_PREFIX = ".tmp-packer-"
_BUFFER_BYTES = 2**20
_SWEPT = ("documents", "blocks", "rows", "model", PRIVATE)


@contextmanager
def lock(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Lock out every other writer of a cache while the body runs; creates the folder if it does not exist.

    With `shared`, other holders of a shared lock may write too: they only add content-addressed files, and remove none.

    The kernel ties the lock to the open file, so it is released when the process ends for whatever reason.

    Raises:
        BusyError: another process holds it.
        StorageError: the folder cannot be written, or its file system has no locks.
    """
    with storage_errors("lock", folder):
        make_folder(folder / PRIVATE)
        descriptor = os.open(folder / PRIVATE / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with storage_errors("lock", folder):
            _take(descriptor, folder, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def refuse_busy(folder: Path) -> None:
    """Fail early if another process is writing the cache, before any input is read; creates nothing.

    Raises:
        BusyError: another process holds the lock.
    """
    # If the folder does not exist or cannot be opened, taking the lock will report it.
    with suppress(OSError):
        descriptor = os.open(folder / PRIVATE / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _take(descriptor, folder, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)


def _take(descriptor: int, folder: Path, kind: int = fcntl.LOCK_EX) -> None:
    try:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        time.sleep(_LOCK_RETRY_S)
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        who = f"process {holder}" if holder.isdigit() else "another process"
        raise BusyError(
            f"{folder}: {who} is writing this cache", hint="wait until it ends, or build into another folder"
        ) from None


class AtomicFile:
    """A file that gets its name only when all of its bytes are on disk.

    Implements as much of a binary file object as writers need; its bytes are hashed as they are written. Leaving the
    context without :meth:`commit` removes it.

    Example:
        >>> with AtomicFile(Path("cache")) as file:  # doctest: +SKIP
        ...     file.write(b"{}")
        ...     file.commit("manifest.json")

    Raises:
        StorageError: from any method, if the disk cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        self.digest = FileDigest()
        with storage_errors("write into", folder):
            make_folder(folder)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._file = os.fdopen(descriptor, "wb", buffering=_BUFFER_BYTES)
        self._live = True

    def write(self, data: bytes | bytearray | memoryview) -> int:
        with storage_errors("write", self.path):
            self._file.write(data)
        self.digest.update(data)
        return len(data)

    @property
    def closed(self) -> bool:
        return self._file.closed

    def flush(self) -> None:
        with storage_errors("write", self.path):
            self._file.flush()

    def reserve(self, num_bytes: int) -> None:
        """Set the final size in advance and lock the file: others see the space it takes, and that it is in use."""
        with storage_errors("write", self.path):
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX)
            self._file.truncate(num_bytes)

    def commit(self, name: str) -> Path:
        """Flush to disk and rename to ``name`` in the same folder, replacing any existing file."""
        target = self.folder / name
        with storage_errors("write", target):
            self._file.flush()
            os.fsync(self._file.fileno())
            self.path.replace(target)  # rename before closing: the lock marks the file as in use
            self._file.close()
            self._live = False
            sync_folder(self.folder)
        return target

    def abort(self) -> None:
        """Remove the temporary file; a no-op after `commit`."""
        if not self._live:
            return
        self._live = False
        # On a full disk, flushing the buffered bytes fails too; they are no longer needed.
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


def write_atomically(path: Path, content: bytes | Iterable[bytes]) -> FileDigest:
    """Write a file atomically; return the digests of its bytes.

    Raises:
        StorageError: the disk cannot be written; the previous file at ``path`` is still intact.
    """
    with AtomicFile(path.parent) as file:
        for chunk in (content,) if isinstance(content, bytes) else content:
            file.write(chunk)
        file.commit(path.name)
        return file.digest


def inside(root: Path, path: str) -> Path:
    """Return the path of a file in a folder, for writing or opening; never one outside of the folder.

    Raises:
        StorageError: the path, or a symbolic link in it, leads outside, or a part of it is not a plain name.
    """
    if not is_file_path(path) or not is_inside(Path(os.path.realpath(root)), path):
        raise StorageError(
            f"{root}: '{path}' is not a file inside this folder, and nothing is written outside of it",
            hint="a symbolic link in it leads elsewhere, or a name in it is not a plain one",
        )
    return root / path


def is_inside(root: Path, path: str) -> bool:
    """Whether a path within a folder stays inside after following symbolic links; `root` must be resolved already.

    The Hub's client keeps files in `blobs/`, and links to them in `snapshots/COMMIT/` beside it: these count as inside.
    """
    # Unlike Path.resolve, this does not raise for circular links on any version of Python; opening them fails later.
    place = Path(os.path.realpath(root / path))
    blobs = next((parent.parent / "blobs" for parent in root.parents if parent.name == "snapshots"), None)
    return place.is_relative_to(root) or (blobs is not None and not blobs.is_symlink() and place.parent == blobs)


class ContainedPaths:
    """The paths that stay in a folder, as :func:`is_inside` defines it; efficient for many paths.

    Resolving a path takes 70 µs. So each folder is listed once, and only paths that are symbolic links are resolved.
    """

    def __init__(self, folder: Path) -> None:
        self._root = folder.resolve()
        self._links = cache(self._links_of)

    def __contains__(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        links = self._links(folder)
        return (links is not None and name not in links) or is_inside(self._root, path)

    def _links_of(self, folder: str) -> Collection[str] | None:
        """Return the names of symbolic links directly in a folder; None if it leads outside or cannot be listed."""
        if not is_inside(self._root, folder):
            return None
        try:
            with os.scandir(self._root / folder) as entries:
                return {entry.name for entry in entries if entry.is_symlink()}
        except FileNotFoundError:
            return ()
        except OSError:
            return None


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
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems (network, FUSE) cannot flush a folder and report EINVAL.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def sweep(cache: Path, named: Collection[str]) -> tuple[str, ...]:
    """Remove files that a committed manifest does not name; return their relative paths.

    Only documents/, blocks/, rows/, model/ and .packer/ are searched, and packer's own temporary files beside the
    manifest. Folders that are symbolic links are skipped, since their contents are not this cache's. Call it with the
    lock held.

    Raises:
        StorageError: a file cannot be removed.
    """
    kept = {f"{PRIVATE}/{LOCK_NAME}", *named}
    found = [path for name in _SWEPT for path in _files_below(cache / name)]
    removed = [path for path in found if path.relative_to(cache).as_posix() not in kept]
    removed += _temporaries(cache)
    _remove(removed)
    # The next step marks the commit as finished, so a power failure must not bring removed files back.
    for folder in sorted({path.parent for path in removed}):
        with storage_errors("write", folder):
            sync_folder(folder)
    return tuple(path.relative_to(cache).as_posix() for path in removed)


def sweep_temporary(cache: Path) -> tuple[str, ...]:
    """Remove the temporary files of writers that died; finished shards stay.

    Call it with the lock held, before writing.

    Raises:
        StorageError: a file cannot be removed.
    """
    folders = [cache, *(cache / name for name in _SWEPT)]
    removed = [path for folder in folders for path in _temporaries(folder)]
    _remove(removed)
    return tuple(path.relative_to(cache).as_posix() for path in removed)


def _files_below(folder: Path) -> list[Path]:
    """Return files and links below a folder in a fixed order, without entering folders that are links."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    files: list[Path] = []
    # By default os.walk skips folders that it cannot list; leftovers in them would never be removed.
    with storage_errors("list", folder):
        for parent, folders, names in os.walk(folder, onerror=_raise, followlinks=False):
            files += [Path(parent, name) for name in sorted(names)]
            files += [Path(parent, name) for name in sorted(folders) if Path(parent, name).is_symlink()]
    return files


def _raise(error: OSError) -> NoReturn:
    raise error


def _temporaries(folder: Path) -> list[Path]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    with storage_errors("list", folder):
        return sorted(path for path in folder.iterdir() if path.name.startswith(TEMPORARY_PREFIX) and path.is_file())


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with storage_errors("remove", path):
            path.unlink(missing_ok=True)
