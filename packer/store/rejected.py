"""``rejected.jsonl``: every row that is not in the cache, every part of a document that is in no block, and why.

One JSON object per line, in the order of the inputs and of their rows, so that the same build writes the same bytes.
It contains no content of the rows.

Its name is the same for every build, so the old manifest's file and the new one's cannot both have it. A build
therefore *stages* the file in `.packer/`, under a name that contains its digest; replaces the manifest, which commits;
and then *publishes* the file by renaming it. If the build is killed before the commit, the old file is untouched; if it
is killed after the commit, readers find the new file where it was staged, and the next build publishes it. Readers only
accept the file whose digest is in the manifest.
"""

import hashlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from packer.errors import StorageError
from packer.host.limits import storage_errors
from packer.store.entries import Count
from packer.store.files import CacheFiles, damage
from packer.store.folder import PRIVATE
from packer.store.manifest import REJECTED_NAME, Manifest, pending_name

_MAX_LINE_BYTES = 16 * 2**20
"""Lines name a file and a reason; some hundred bytes."""


class Rejected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line."""

    source: str
    """Path of the input, as in the manifest."""

    row: Count
    """Row number from 0 within the input; blank lines do not count."""

    line: Count | None = None
    """Line of the input, from 1, if the whole row is rejected and rows are lines."""

    code: str
    reason: str
    document: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    """doc_id of the document of which a part was left out; None if the whole row is rejected."""

    split: str | None = None
    start: Count | None = None
    """First token of the part within its document."""

    tokens: Count | None = None


def stage_rejected(folder: Path, lines: Iterable[Rejected]) -> tuple[str, str]:
    """Write the file for a manifest that is about to be written; return its sha256 and `rejected_content`."""
    content = hashlib.sha256()
    with CacheFiles(folder).new_file(PRIVATE, lambda digest: pending_name(digest.sha256)) as file:
        for line in lines:
            file.write(msgspec.json.encode(line) + b"\n")
            content.update(content_of(line))
    return file.digest.sha256, content.hexdigest()


def is_pending(folder: Path, manifest: Manifest) -> bool:
    """Whether the build that wrote this manifest did not finish its commit on this machine."""
    return (folder / manifest.pending_rejected).is_file()


def publish_rejected(folder: Path, manifest: Manifest) -> None:
    """Rename the staged file into place, after the manifest was written; a no-op if that has been done."""
    if is_pending(folder, manifest):
        # In a bucket, readers use the staged object, which concurrent builds cannot mix up; the other is for users.
        CacheFiles(folder).rename(manifest.pending_rejected, REJECTED_NAME)


def content_of(line: Rejected) -> bytes:
    """Return what a line adds to `rejected_content`: all but the input's name, and the reason's words."""
    values = (line.row, line.line, line.code, line.document, line.split, line.start, line.tokens)
    return msgspec.json.encode(values) + b"\n"


def rejected_path(folder: Path, manifest: Manifest) -> str:
    """Return the path of a manifest's file, relative to the cache."""
    is_staged = CacheFiles(folder).size(manifest.pending_rejected) is not None
    return manifest.pending_rejected if is_staged else REJECTED_NAME


def read_rejected(folder: Path, manifest: Manifest) -> Iterator[Rejected]:
    """Yield the lines; the file's digest is checked before the first."""
    decoder = msgspec.json.Decoder(Rejected)
    name = rejected_path(folder, manifest)
    with storage_errors("read", folder / name), _open(folder, manifest) as file:
        # Open the file once, so that the bytes hashed are the bytes read even if a build replaces it meanwhile.
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != manifest.rejected_sha256:
            raise damage(folder, name, f"is damaged: expected sha256 {manifest.rejected_sha256}, found {found}")
        file.seek(0)
        for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE_BYTES + 1), b""), 1):
            if len(line) > _MAX_LINE_BYTES:
                raise damage(folder, name, f"line {number}: expected at most {_MAX_LINE_BYTES:,} bytes")
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise damage(folder, name, f"line {number}: {error}") from None


def rejected_rows(folder: Path, manifest: Manifest) -> list[list[Rejected]]:
    """Return the lines about whole rows, for each document shard those of its partition.

    Lines and shards are both in the order of inputs and rows, so each shard takes the next lines. Paths cannot be
    matched instead, as a file may be listed once per split.
    """
    lines = (line for line in read_rejected(folder, manifest) if line.document is None)
    return [list(islice(lines, shard.num_rejected)) for shard in manifest.document_shards]


def _open(folder: Path, manifest: Manifest) -> BufferedReader:
    """Open the staged file, or else the published one; files only ever move in that direction."""
    for name in (manifest.pending_rejected, REJECTED_NAME):
        try:
            return CacheFiles(folder).open(name)
        except StorageError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
    raise damage(folder, REJECTED_NAME, "is missing")
