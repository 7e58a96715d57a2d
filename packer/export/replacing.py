"""Where an export is written: a working folder beside its place, which takes it when all is done.

The working folder has a name of that place, and its writer holds a lock on it, which the kernel frees when the writer
ends, however it ends. So a second export to one place is refused while the first is at work, and what a killed one left
is cleared by the next: what lay at the place before comes back, as far as it was moved.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packer.errors import BusyError
from packer.limits import storage_errors
from packer.store.folder import TEMPORARY_PREFIX, make_folder, sync_folder


@contextmanager
def replacing(out: Path, may_replace: Callable[[], object] = bool) -> Iterator[Path]:
    """A folder to write into that takes the place of `out` when the body is done, and else is gone.

    Args:
        out: the place.
        may_replace: raises where what lies at the place by then is not to be lost.

    Raises:
        BusyError: another process is writing to this place.
        StorageError: the disk refuses; what was there is there still.

    """
    out = Path(os.path.abspath(out))  # noqa: PTH100 - a link at its end is a name to be replaced, not followed
    digest = hashlib.sha256(os.fsencode(out.name)).hexdigest()[:12]  # however long its own name is
    work = out.with_name(f"{TEMPORARY_PREFIX}{digest}")
    new, old = work / "new", work / "old"
    with storage_errors("write into", out.parent):
        make_folder(out.parent)
        lock = _locked(work, out)
    try:
        with storage_errors("write into", out.parent):
            if os.path.lexists(old) and not os.path.lexists(out):
                old.rename(out)
                may_replace()
            _remove(old)
            _remove(new)
            new.mkdir()
        yield new
        with storage_errors("write", out):
            for folder in [path for path in new.rglob("*") if path.is_dir()] + [new]:
                sync_folder(folder)
            _take_place(new, out, old, may_replace)
            sync_folder(out.parent)
    finally:
        if os.path.lexists(out) or not os.path.lexists(old):  # else it is all there is of what lay there
            _remove(work)
        os.close(lock)


def _take_place(new: Path, out: Path, old: Path, may_replace: Callable[[], object]) -> None:
    """Give a finished folder its place; whatever ends this, what lay there lies there or at `old`."""
    if not os.path.lexists(out):
        try:
            new.rename(out)  # fails where somebody put something there meanwhile
        except OSError:
            may_replace()
            raise
        return
    may_replace()
    try:
        out.rename(old)
        new.rename(out)
    except BaseException:  # an interrupt, too
        if os.path.lexists(old) and not os.path.lexists(out):
            old.rename(out)
        raise


def _locked(work: Path, out: Path) -> int:
    """The descriptor of the working folder, which is made where it is not there, locked."""
    while True:
        work.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise BusyError(
                    f"{out}: another process is writing this export", hint="wait until it ends, or name another folder"
                ) from None
            except OSError:
                return descriptor  # a file system without locks of folders
            with suppress(FileNotFoundError):
                if os.path.samestat(work.stat(), os.fstat(descriptor)):
                    return descriptor
            os.close(descriptor)  # whoever had it has removed the folder since it was opened here


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)
