"""``rejected.jsonl``: every row that is not in the cache, every part of a document that is in no block, and why.

One JSON object a line, in the order of the inputs and of their rows, so that the same build writes the same bytes.
It holds no content of the rows.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from packer.errors import CheckError
from packer.store.failures import storage_errors
from packer.store.folder import write_atomically

REJECTED_NAME = "rejected.jsonl"


class Rejected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line."""

    source: str
    """The input's path, as the manifest names it."""

    row: int
    """Row number from 0 within the input."""

    code: str
    """One of :data:`packer.rejections.CODES`."""

    reason: str
    document: int | None = None
    """doc_id of the document that a part was left out of at packing; None where the whole row is not in the cache."""

    split: str | None = None
    """Split of the document."""

    start: int | None = None
    """First token of the part within its document."""

    tokens: int | None = None
    """Tokens of the part."""


def write_rejected(folder: Path, lines: Iterable[Rejected]) -> str:
    """Write the file whole, and return its sha256.

    Raises:
        StorageError: the disk refuses.

    """
    digest = write_atomically(folder / REJECTED_NAME, (msgspec.json.encode(line) + b"\n" for line in lines))
    return digest.sha256


def rejected_digest(lines: Iterable[Rejected]) -> str:
    """sha256 of the file these lines would make."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(msgspec.json.encode(line) + b"\n")
    return digest.hexdigest()


def read_rejected(folder: Path) -> Iterator[Rejected]:
    """The lines, one at a time.

    Raises:
        CheckError: the file is missing, or a line is not what was written.
        StorageError: the file cannot be read.

    """
    path = folder / REJECTED_NAME
    decoder = msgspec.json.Decoder(Rejected)
    if not path.is_file():
        raise CheckError(f"{path} is missing", hint=f"packer build -o {folder} --repair makes it again")
    with storage_errors("read", path), path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise CheckError(
                    f"{path} line {number}: {error}", hint=f"packer build -o {folder} --repair makes it again"
                ) from None
