"""What the disk refuses, as :class:`StorageError` with a way out."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packer.errors import PackerError, StorageError
from packer.limits import out_of

_HINTS: dict[int, str | None] = {
    errno.ENOSPC: "free some space, or build into a folder on another disk",
    errno.EDQUOT: "the disk quota is used up: free some space, or build into a folder on another disk",
    errno.EFBIG: "the file is larger than this disk or this user's limit allows: lower shard_bytes",
    errno.EACCES: "check who owns the folder and its permissions",
    errno.EPERM: "check who owns the folder and its permissions",
    errno.EROFS: "the disk is mounted read-only: build into another folder",
    errno.EIO: "the disk reports a failure: check its health before trusting anything on it",
    errno.ENOLCK: "this file system has no locks: build on a local disk and copy the cache afterwards",
    errno.ENOENT: None,
    errno.ENOTDIR: None,
    errno.EISDIR: None,
    errno.ENOTSUP: "this file system lacks what packer needs: build on a local disk and copy the cache afterwards",
}

_ELSE = "run the same command again: what was finished is kept"


@contextmanager
def storage_errors(action: str, path: Path | str) -> Iterator[None]:
    """Turn an OSError into a StorageError that says what failed, and where.

    Raises:
        StorageError: the body raised an OSError.
        ResourceError: it says that file handles or memory ran out.

    """
    try:
        yield
    except OSError as error:
        raise _error_of(action, path, error) from error


@contextmanager
def path_errors() -> Iterator[None]:
    """The same around much work, for calls that look whether a path is there or what a folder holds: they name it.

    Raises:
        StorageError: the body raised an OSError that names a path.

    """
    try:
        yield
    except (OSError, MemoryError, RuntimeError) as error:
        if not isinstance(error, OSError) or error.filename is None:
            if (limit := out_of(error)) is not None:
                raise limit from error
            raise  # a pipe, or something else that is no place on a disk
        raise _error_of("use", os.fsdecode(error.filename), error) from error


def _error_of(action: str, path: Path | str, error: OSError) -> PackerError:
    if (limit := out_of(error, f"cannot {action} {path}")) is not None:
        return limit
    hint = _ELSE if error.errno is None else _HINTS.get(error.errno, _ELSE)
    return StorageError(f"cannot {action} {path}: {error.strerror or error}", hint=hint)
