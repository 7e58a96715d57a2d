"""Rows from standard input.

A build reads its inputs more than once: for digests and partitions, in several processes, and again before it commits.
So standard input is copied to a temporary file first (in the folder that `TMPDIR` names), which goes when the program
ends. A cache names such an input ``-``; the same rows piped in again are the same input.
"""

import atexit
import functools
import shutil
import sys
import tempfile
from pathlib import Path

from packer.errors import StorageError, UsageError

STANDARD_INPUT = "-"


def place_of(name: str) -> Path:
    """The file that holds an input, by the name a recipe or a manifest gives it.

    Raises:
        UsageError: it is standard input, and nothing is piped in.
        StorageError: there is no room for what is piped in.

    """
    return _spooled() if name == STANDARD_INPUT else Path(name)


@functools.cache
def _spooled() -> Path:
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        raise UsageError(
            "source '-' is standard input, and nothing is piped in",
            hint="for example: zcat rows.jsonl.gz | packer build - --tokenizer DIR -o CACHE; or name a file",
        )
    folder = Path(tempfile.mkdtemp(prefix="packer-"))
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
