"""The cache folder: one writer at a time, atomic files, and no leftovers.

A file is written under a temporary name in its folder, flushed to disk and renamed, and then the folder is flushed too.
So after a crash at any moment, a name is either absent or its file is complete.

Whoever made a folder may have put anything into it: a link there could lead to any file of the user, and a pipe would
make packer wait forever. A path may lead elsewhere each time it is used, so what is done in a folder is done through
its descriptor. Names for work are drawn and made exclusively, a lock is a regular file of its folder, and below a cache
nothing is written, renamed or removed through a link. Temporary files that a build finds when it has the lock were left
by a process that was killed, and it removes them (:func:`sweep_temporary`).
"""

import errno
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn, Self

from xxhash import xxh3_128

from packer.errors import BusyError, PackerError, StorageError
from packer.host.files import open_descriptor, open_regular, special_file_error, storage_errors, walk
from packer.names import is_file_path

PRIVATE = ".packer"
"""Folder within a cache for what is not part of it: the lock, and parts of an unfinished build."""

LOCK_NAME = "lock"
_LOCK_RETRY_S = 0.05
"""Pause before a second attempt at the lock: a mere check whether it is free holds it for less than this."""

TEMPORARY_PREFIX = ".tmp-packer-"
_BUFFER_BYTES = 2**20
_SWEPT = ("documents", "blocks", "rows", "media", "model", PRIVATE)


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Lock out every other writer of a cache while the body runs; creates the folder if it does not exist.

    The kernel ties the lock to the open file, so it is released when the process ends for whatever reason. If the body
    fails, the temporary files of processes that it ended are removed.
    """
    with storage_errors("lock", folder), opened_folder(folder / PRIVATE, below=folder) as private:
        descriptor = open_descriptor(LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, dir_fd=private)
    try:
        with storage_errors("lock", folder):
            _take(descriptor, folder, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink == 1:  # otherwise it is also a file of another folder
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        try:
            yield
        except BaseException:
            with suppress(PackerError):
                sweep_temporary(folder)
            raise
    finally:
        os.close(descriptor)


def refuse_busy(folder: Path) -> None:
    """Fail early if another process is writing the cache, before any input is read; creates nothing."""
    # If the folder does not exist or cannot be opened, taking the lock will report it.
    with suppress(OSError):
        if (folder / PRIVATE).is_symlink():
            return
        descriptor = open_descriptor(folder / PRIVATE / LOCK_NAME, os.O_RDONLY | os.O_NOFOLLOW)
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


class FileDigest:
    """Running digests of the bytes of one file."""

    def __init__(self) -> None:
        self._xxh3 = xxh3_128()
        self._sha256 = hashlib.sha256()
        self.num_bytes = 0

    def update(self, data: bytes | bytearray | memoryview) -> None:
        self._xxh3.update(data)
        self._sha256.update(data)
        self.num_bytes += len(data)

    @property
    def xxh3(self) -> str:
        """xxh3-128 so far, 32 hexadecimal digits."""
        return self._xxh3.hexdigest()

    @property
    def sha256(self) -> str:
        """sha256 so far, 64 hexadecimal digits."""
        return self._sha256.hexdigest()

    @property
    def recorded(self) -> dict[str, Any]:
        """What a manifest says of a file with these bytes."""
        return {"num_bytes": self.num_bytes, "xxh3": self.xxh3, "sha256": self.sha256}


def digest_file(path: Path) -> FileDigest:
    """Compute the digests of a file."""
    digest = FileDigest()
    with storage_errors("read", path), open_regular(path) as file:
        # file_digest calls only the `update` method of the digest.
        hashlib.file_digest(file, lambda: digest)  # type: ignore[arg-type, return-value]
    return digest


def digest_file_xxh3(path: Path) -> str:
    """Compute the xxh3-128 of a file, several times as fast as :func:`digest_file`."""
    with storage_errors("read", path), open_regular(path) as file:
        return hashlib.file_digest(file, xxh3_128).hexdigest()


class AtomicFile:
    """A file that gets its name only when all of its bytes are on disk.

    Implements as much of a binary file object as writers need; its bytes are hashed as they are written. Leaving the
    context without :meth:`commit` removes it. Its folder is made; nothing between `below` and it may be a link.
    """

    def __init__(self, folder: Path, *, below: Path | None = None) -> None:
        self.folder = folder
        self.digest = FileDigest()
        with storage_errors("write into", folder):
            self._folder = open_folder(folder, below)
            own = secrets.token_hex(4)  # so that nobody can know the name before
            self.path = folder / f"{TEMPORARY_PREFIX}{os.getpid()}-{own}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            try:
                descriptor = os.open(self.path.name, flags, 0o666, dir_fd=self._folder)
            except BaseException:
                os.close(self._folder)
                raise
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

    def commit(self, name: str) -> Path:
        """Flush to disk and rename to ``name`` in the same folder, replacing any existing file."""
        target = self.folder / name
        with storage_errors("write", target):
            self._file.flush()
            os.fsync(self._file.fileno())
            os.replace(self.path.name, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            self._file.close()
            self.path, self._live = target, False
            sync(self._folder)
        os.close(self._folder)
        return target

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._live:
            return
        self._live = False
        # On a full disk, flushing the buffered bytes fails too; they are no longer needed.
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            os.unlink(self.path.name, dir_fd=self._folder)
        os.close(self._folder)


def write_atomically(path: Path, content: bytes | Iterable[bytes], *, below: Path | None = None) -> FileDigest:
    """Write a file atomically; return the digests of its bytes.

    With `below`, a cache that contains it, nothing on the way may be a link. Otherwise its folder is the user's own.

    Raises:
        StorageError: the disk cannot be written; the previous file at ``path`` is still intact.
    """
    with AtomicFile(path.parent, below=below) as file:
        for chunk in (content,) if isinstance(content, bytes) else content:
            file.write(chunk)
        file.commit(path.name)
        return file.digest


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Exclude other processes that look for work folders in a folder and make theirs; without locks, proceed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def inside(root: Path, path: str) -> Path:
    """Return the path of a file in a folder, for writing it; no folder on the way is a link."""
    above = [root / parent for parent in PurePosixPath(path).parents][:-1]
    if not is_file_path(path.removeprefix(f"{PRIVATE}/")) or any(folder.is_symlink() for folder in above):
        raise StorageError(
            f"{root}: '{path}' is not a file inside this folder, and nothing is written outside of it",
            hint="a folder in it is a symbolic link, or a name in it is not a plain one",
        )
    return root / path


def sweep(cache: Path, named: Collection[str]) -> tuple[str, ...]:
    """Remove files that a committed manifest does not name; return their relative paths.

    Only documents/, blocks/, rows/, media/, model/ and .packer/ are searched, and packer's own temporary files beside
    the manifest. Folders that are symbolic links are skipped, since their contents are not this cache's. Call it with
    the lock held.
    """
    kept = {f"{PRIVATE}/{LOCK_NAME}", *named}
    found = [path for name in _SWEPT for path in _files_below(cache / name)]
    removed = [path for path in found if path.relative_to(cache).as_posix() not in kept]
    return _remove(cache, removed + _temporaries(cache))


def sweep_temporary(cache: Path) -> tuple[str, ...]:
    """Remove the temporary files of writers that died; finished shards stay. Call it with the lock held."""
    return _remove(cache, [path for folder in (".", *_SWEPT) for path in _temporaries(cache / folder)])


def _remove(cache: Path, removed: Iterable[Path]) -> tuple[str, ...]:
    """Remove files of a cache, without following a link; return their relative paths."""
    removed = sorted(removed)
    for folder, paths in groupby(removed, lambda path: path.parent):
        with storage_errors("remove", folder), opened_folder(folder, below=cache) as opened:
            for path in paths:
                with storage_errors("remove", path), suppress(FileNotFoundError):
                    os.unlink(path.name, dir_fd=opened)
            # The next step marks the commit as finished, so a power failure must not bring removed files back.
            sync(opened)
    return tuple(path.relative_to(cache).as_posix() for path in removed)


def _files_below(folder: Path) -> list[Path]:
    """Return files and links below a folder in a fixed order, without entering folders that are links."""
    if not is_real(folder):
        return []
    files: list[Path] = []
    # Leftovers in a folder that cannot be listed would never be removed.
    with storage_errors("list", folder):
        for parent, _, names in walk(folder, _raise):
            files += [Path(parent, name) for name in sorted(names)]
    return files


def _raise(error: OSError) -> NoReturn:
    raise error


def is_real(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink()


def _temporaries(folder: Path) -> list[Path]:
    """Return what is in a folder under names of temporary files, except for folders."""
    if not folder.is_dir() or (folder.is_symlink() and folder.name in _SWEPT):
        return []
    with storage_errors("list", folder):
        return sorted(path for path in folder.iterdir() if path.name.startswith(TEMPORARY_PREFIX) and not is_real(path))


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
