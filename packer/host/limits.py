"""Translate operating system errors: failing disks, and exhausted resources (file handles, memory, processes)."""

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from packer.errors import PackerError, ResourceError, StorageError


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
