"""Where an export is written: a folder beside its place, which takes it when all is done.

The folder's name tells whose place it is for, and its writer holds a lock on it, which the kernel frees when the writer
ends, however it ends. So the next export to that place can sweep what a killed one left, and never a live one's.
"""

import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packer.store.failures import storage_errors
from packer.store.folder import TEMPORARY_PREFIX, make_folder, sync_folder

_OLD = "-old"
"""Behind the name of a folder: what lay at the place before, until the folder is there."""


@contextmanager
def replacing(out: Path, may_replace: Callable[[], object] = bool) -> Iterator[Path]:
    """A folder to write into that takes the place of `out` when the body is done, and else is gone.

    Args:
        out: the place.
        may_replace: raises where what lies at the place by then is not to be lost.

    Raises:
        StorageError: the disk refuses; what was there is there still.

    """
    out = Path(os.path.abspath(out))  # noqa: PTH100 - a link at its end is a name to be replaced, not followed
    with storage_errors("write into", out.parent):
        make_folder(out.parent)
        left_old = _sweep(out)
        folder, lock = _locked_folder(out)
    old = folder.with_name(f"{folder.name}{_OLD}")
    try:
        yield folder
        with storage_errors("write", out):
            for below in [path for path in folder.rglob("*") if path.is_dir()] + [folder]:
                sync_folder(below)
            _take_place(folder, out, old, may_replace)
            sync_folder(out.parent)
        for left in left_old:  # not before: the place may be empty, and this all that is left of what lay there
            _remove(left)
    finally:
        _remove(folder)
        if os.path.lexists(out):  # else it is all there is: the next export keeps it until it is done
            _remove(old)
        os.close(lock)


def _take_place(folder: Path, out: Path, old: Path, may_replace: Callable[[], object]) -> None:
    """Give a finished folder its place; whatever ends this, what lay there lies there or at `old`."""
    if not os.path.lexists(out):
        try:
            folder.rename(out)  # fails where somebody put something there meanwhile
        except OSError:
            may_replace()
            raise
        return
    may_replace()
    try:
        out.rename(old)
        folder.rename(out)
    except BaseException:  # an interrupt, too
        if os.path.lexists(old) and not os.path.lexists(out):
            old.rename(out)
        raise


def _prefix(out: Path) -> str:
    """How names of folders for this place begin, however long its own name is."""
    return f"{TEMPORARY_PREFIX}{hashlib.sha256(os.fsencode(out.name)).hexdigest()[:12]}-"


def _locked_folder(out: Path) -> tuple[Path, int]:
    """A new folder for a place, and the descriptor that keeps sweepers away."""
    while True:
        folder = out.with_name(f"{_prefix(out)}{os.getpid()}-{secrets.token_hex(4)}")
        folder.mkdir()
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            # Where a file system has no locks of folders, none is swept either.
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if folder.is_dir():
                return folder, descriptor
            os.close(descriptor)  # swept before it was locked


def _sweep(out: Path) -> list[Path]:
    """Remove what writers that died left for a place; returns what lay there before them, which is kept for now."""
    found = sorted(path for path in out.parent.iterdir() if path.name.startswith(_prefix(out)))
    olds = [path for path in found if path.name.endswith(_OLD)]
    for path in found:
        if path not in olds:
            _remove_dead(path)
    return [old for old in olds if not os.path.lexists(old.with_name(old.name.removesuffix(_OLD)))]


def _remove_dead(folder: Path) -> None:
    """Remove a folder that no process holds the lock of; meanwhile it is held here, as its maker may be about to."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(folder)
        finally:
            os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)
