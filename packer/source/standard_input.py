"""Rows from standard input.

A build reads its inputs more than once: for digests and partitions, in several processes, and again before it commits.
So standard input is copied to a temporary file first (in the folder that `TMPDIR` names), which goes when the program
ends. A program that is killed leaves it behind, as any temporary file. A cache names such an input ``-``; the same rows
piped in again are the same input.
"""

import atexit
import functools
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packer.errors import PackerError, StorageError, UsageError
from packer.source.file_bytes import NoRowsError

STANDARD_INPUT = "-"


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


@functools.cache
def _spooled() -> Path:
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        raise UsageError(
            "source '-' is standard input, and nothing is piped in",
            hint="for example: zcat rows.jsonl.gz | packer build - --tokenizer DIR -o CACHE; or name a file",
        )
    folder = Path(tempfile.mkdtemp(prefix="packer-stdin-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "standard-input"
    try:
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file, 2**20)
    except OSError as error:
        raise StorageError(
            f"{path}: standard input cannot be kept: {error.strerror or error}",
            hint="TMPDIR names the folder; or write the rows to a file and name it",
        ) from error
    return path
