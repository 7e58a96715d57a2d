"""``rejected.jsonl``: every row that is not in the cache, every part of a document that is in no block, and why.

One JSON object a line, in the order of the inputs and of their rows, so that the same build writes the same bytes.
It holds no content of the rows.

Its name is the same for every build, so it cannot be there for the old manifest and the new one at once. A build
therefore *stages* it under a name that holds its digest, in `.packer/`; replaces the manifest, which commits; and then
*publishes* it, which is a rename. Killed before the manifest was replaced, the old one's file is untouched; killed
after it, the new one's file is found where it was staged, and the next build publishes it. Whoever reads, reads the
file whose digest the manifest names, or none.
"""

import hashlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path

import msgspec

from packer.errors import CheckError, StorageError
from packer.limits import storage_errors
from packer.store.files import CacheFiles
from packer.store.folder import is_inside
from packer.store.manifest import REJECTED_NAME, Manifest
from packer.store.mirror import mirror_of


class Rejected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line."""

    source: str
    """The input's path, as the manifest names it."""

    row: int
    """Row number from 0 within the input; blank lines are no rows."""

    line: int | None = None
    """Line of the input, from 1, where the whole row is not in the cache and rows are lines."""

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


def stage_rejected(folder: Path, lines: Iterable[Rejected], manifest: Manifest) -> None:
    """Write the file of a manifest that is about to be written; what is there stays.

    Raises:
        StorageError: the disk refuses.

    """
    digest = CacheFiles(folder).write(manifest.pending_rejected, _encoded(lines))
    assert digest.sha256 == manifest.rejected_sha256, "the manifest names the digest of these lines"


def is_pending(folder: Path, manifest: Manifest) -> bool:
    """Whether the build that wrote this manifest did not finish its commit on this machine."""
    return (folder / manifest.pending_rejected).is_file()


def publish_rejected(folder: Path, manifest: Manifest) -> None:
    """Give the file its name, now that the manifest is there; nothing where it has it already.

    Raises:
        StorageError: the disk refuses; the file is still found where it was staged.

    """
    if is_pending(folder, manifest):
        CacheFiles(folder).rename(manifest.pending_rejected, REJECTED_NAME)
        if (mirror := mirror_of(folder)) is not None:
            # For people who look for the name. Readers take the staged one: two builds that end together cannot mix it.
            mirror.bucket.replace(REJECTED_NAME, folder / REJECTED_NAME)


def rejected_digest(lines: Iterable[Rejected]) -> str:
    """sha256 of the file these lines would make."""
    digest = hashlib.sha256()
    for line in _encoded(lines):
        digest.update(line)
    return digest.hexdigest()


def rejected_path(folder: Path, manifest: Manifest) -> str:
    """Where the file of a manifest lies, relative to the cache."""
    is_staged = CacheFiles(folder).size(manifest.pending_rejected) is not None
    return manifest.pending_rejected if is_staged else REJECTED_NAME


def read_rejected(folder: Path, manifest: Manifest) -> Iterator[Rejected]:
    """The lines, one at a time; the file's digest is compared before the first.

    Raises:
        CheckError: the file is missing, is not the manifest's, or a line makes no sense.
        StorageError: the file cannot be read.

    """
    decoder = msgspec.json.Decoder(Rejected)
    path, hint = folder / rejected_path(folder, manifest), f"packer build -o {folder} --repair makes it again"
    with storage_errors("read", path), _open(folder, manifest) as file:
        # Opened once: what is hashed is what is read, though a build may rename or replace it meanwhile.
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != manifest.rejected_sha256:
            raise CheckError(f"{path} is damaged: expected sha256 {manifest.rejected_sha256}, found {found}", hint=hint)
        file.seek(0)
        for number, line in enumerate(file, 1):
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise CheckError(f"{path} line {number}: {error}", hint=hint) from None


def _open(folder: Path, manifest: Manifest) -> BufferedReader:
    """The file where it was staged, or else under its name: it goes from the one to the other, never back."""
    root = folder.resolve()
    for name in (manifest.pending_rejected, REJECTED_NAME):
        path = folder / name
        if not is_inside(root, name):
            raise CheckError(f"{path} is a link that leads out of the cache", hint="copy the file itself")
        try:
            return CacheFiles(folder).open(name)
        except StorageError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
    raise CheckError(f"{path} is missing", hint=f"packer build -o {folder} --repair makes it again")


def _encoded(lines: Iterable[Rejected]) -> Iterator[bytes]:
    return (msgspec.json.encode(line) + b"\n" for line in lines)
