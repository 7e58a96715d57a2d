"""What the disk refuses, as :class:`StorageError` with a way out."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packer.errors import StorageError

_HINTS = {
    errno.ENOSPC: "free some space, or build into a folder on another disk",
    errno.EDQUOT: "the disk quota is used up: free some space, or build into a folder on another disk",
    errno.EFBIG: "the file is larger than this disk or this user's limit allows: lower shard_bytes",
    errno.EACCES: "check who owns the folder and its permissions",
    errno.EPERM: "check who owns the folder and its permissions",
    errno.EROFS: "the disk is mounted read-only: build into another folder",
    errno.EIO: "the disk reports a failure: check its health before trusting anything on it",
    errno.EMFILE: "too many open files: raise `ulimit -n`",
    errno.ENOLCK: "this file system has no locks: build on a local disk and copy the cache afterwards",
    errno.ENOTSUP: "this file system lacks what packer needs: build on a local disk and copy the cache afterwards",
}


@contextmanager
def storage_errors(action: str, path: Path | str) -> Iterator[None]:
    """Turn an OSError into a StorageError that says what failed, and where.

    Raises:
        StorageError: the body raised an OSError.

    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        hint = _HINTS.get(error.errno) if error.errno is not None else None
        raise StorageError(f"cannot {action} {path}: {reason}", hint=hint) from error
