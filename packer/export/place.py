"""The folder an export is written into: it appears with all of its files, or not at all.

What is written lies in a working folder beside the place until all is done. That folder is named after the place, and
its writer holds a lock in it. So a second export to one place is refused while the first is at work, and what a killed
one left is removed by the next.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from packer.errors import BusyError, UsageError
from packer.limits import storage_errors
from packer.store.folder import TEMPORARY_PREFIX, lock, sync_folder

RECORD = "export.json"
"""What an export was made from, and what its form says of each split; it makes a folder an export."""


@contextmanager
def replacing(cache: Path, out: Path, *, force: bool) -> Iterator[Path]:
    """A folder to write into; it is moved to `out` when the body is done, and removed if the body fails.

    Args:
        cache: must not lie there.
        out: the place.
        force: replace an export.

    Raises:
        UsageError: something lies there that is not to be lost.
        BusyError: another process is writing to this place.
        StorageError: the disk refuses; what was there is there still.

    """
    _refuse_place(cache, out, force=force)
    out = Path(os.path.abspath(out))  # noqa: PTH100 - a link at its end is a name to be replaced, not followed
    digest = hashlib.sha256(os.fsencode(out.name)).hexdigest()[:12]  # however long its own name is
    work = out.with_name(f"{TEMPORARY_PREFIX}{digest}")
    new, old = work / "new", work / "old"
    with ExitStack() as locked:
        try:
            locked.enter_context(lock(work))
        except BusyError:
            raise BusyError(
                f"{out}: another process is writing this export", hint="wait until it ends, or name another folder"
            ) from None
        try:
            with storage_errors("write", out):
                for left in (new, old):
                    shutil.rmtree(left, ignore_errors=True)
                new.mkdir()
                yield new
                for folder in [path for path in new.rglob("*") if path.is_dir()] + [new]:
                    sync_folder(folder)
                _refuse_place(cache, out, force=force)  # somebody may have put something there meanwhile
                _take_place(new, out, old)
                sync_folder(out.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _refuse_place(cache: Path, out: Path, *, force: bool) -> None:
    """An export may replace an export and nothing else: whatever lies there beside its files is not its own.

    Raises:
        UsageError: something lies there that is not to be lost.

    """
    place, home = out.resolve(), cache.resolve()
    if place == home or place.is_relative_to(home):
        where = "is the cache" if place == home else "lies in the cache"
        raise UsageError(f"{out} {where}", hint="export into a folder beside it")
    if home.is_relative_to(place):
        raise UsageError(f"{out} holds the cache", hint="export into a folder beside it")
    if not os.path.lexists(out):
        return
    if not (out / RECORD).is_file():
        raise UsageError(f"{out} is there, and is no export", hint="name a folder that is not there")
    if not force:
        raise UsageError(f"{out} is there", hint="--force replaces an export")
    found = (path for path in out.rglob("*") if path.is_symlink() or not path.is_dir())
    strange = sorted({path.relative_to(out).as_posix() for path in found} - _own_files(out))
    if strange:
        raise UsageError(
            f"{out} holds files that no export wrote, such as {strange[0]}", hint="move them, or name another folder"
        )


def _own_files(folder: Path) -> set[str]:
    """The files that the record of an export lists."""
    try:
        return {RECORD, *(str(each["path"]) for each in json.loads((folder / RECORD).read_bytes())["files"])}
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        return {RECORD}


def _take_place(new: Path, out: Path, old: Path) -> None:
    if os.path.lexists(out):
        out.rename(old)
    try:
        new.rename(out)
    except BaseException:  # an interrupt, too
        if os.path.lexists(old):
            old.rename(out)
        raise
