"""Rows from standard input.

A build reads its inputs more than once: for digests and partitions, in several processes, and again before it commits.
So standard input is copied to a temporary file first (in the folder that `TMPDIR` names), which goes when the program
ends. A program that is killed leaves it behind; the next that reads standard input removes it, since nobody locks it.
A cache names such an input ``-``; the same rows piped in again are the same input.
"""

import atexit
import fcntl
import functools
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packer.errors import PackerError, StorageError, UsageError
from packer.source.chunks import NoRowsError

STANDARD_INPUT = "-"

_PREFIX = "packer-stdin-"
_NAME = "standard-input"
_SETTLED_S = 60
"""A younger folder may be another program's that has not locked its file yet."""


def place_of(name: str) -> Path:
    """The file that holds an input, by the name a recipe or a manifest gives it.

    Raises:
        UsageError: it is standard input, and nothing is piped in.
        StorageError: there is no room for what is piped in.

    """
    return _spooled() if name == STANDARD_INPUT else Path(name)


@contextmanager
def naming_standard_input() -> Iterator[None]:
    """Errors name standard input, where they would name the file it is kept in. Also a decorator.

    Raises:
        PackerError: as it was raised within, under the name that people know.

    """
    try:
        yield
    except PackerError as error:
        place = str(_spooled()) if _spooled.cache_info().currsize else None
        if place is None or place not in f"{error.message}{error.hint}":
            raise
        hint = error.hint and error.hint.replace(place, STANDARD_INPUT)
        if isinstance(error, NoRowsError):
            piped = "what was piped in holds no rows" if Path(place).stat().st_size else "nothing was piped in"
            hint = f"{piped}: look at what the command before the pipe writes"
        raise type(error)(error.message.replace(place, "standard input"), hint=hint) from error


def _sweep(folder: Path) -> None:
    """Remove what programs that were killed have left."""
    for left in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, locked, or gone
            if time.time() - left.stat().st_mtime < _SETTLED_S:
                continue
            with (left / _NAME).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left)


@functools.cache
def _spooled() -> Path:
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        raise UsageError(
            "source '-' is standard input, and nothing is piped in",
            hint="for example: zcat rows.jsonl.gz | packer build - --tokenizer DIR -o CACHE; or name a file",
        )
    _sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / _NAME
    try:
        file = path.open("wb")
        atexit.register(file.close)
        fcntl.flock(file, fcntl.LOCK_SH)  # as long as the program lives
        shutil.copyfileobj(sys.stdin.buffer, file, 2**20)
        file.flush()
    except OSError as error:
        raise StorageError(
            f"{path}: standard input cannot be kept: {error.strerror or error}",
            hint="TMPDIR names the folder; or write the rows to a file and name it",
        ) from error
    return path
