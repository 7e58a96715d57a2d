"""Checks of the images of a cache: their files, the digest of each, and that documents name none that is missing."""

from pathlib import Path

import numpy as np

from packer.audit.verify.file_checks import check_kept
from packer.audit.verify.verify_report import Finding, differing, unreadable
from packer.batches import Bool
from packer.errors import PackerError
from packer.store.arrow_columns import DocumentRows
from packer.store.document_shards import DocumentShards
from packer.store.manifest import Manifest, StoredTable
from packer.store.media_shards import MediaShards


def check_media(folder: Path, manifest: Manifest, *, is_whole: bool) -> list[Finding]:
    """Check the shards of images; `is_whole`: whether those of documents are intact, so that they can be read."""
    tables = manifest.media or ()
    findings = [each for table in tables for each in check_kept(folder, table.path, table)]
    if findings:
        return findings
    stored: set[bytes] = set()
    for table in tables:
        found, digests = _images(folder, table)
        findings += found
        stored |= digests
    for shard in manifest.document_shards if is_whole and not findings else ():
        try:
            named = {
                media.sha256[number].tobytes()
                for rows, _ in DocumentShards(folder, (shard,)).chunks()
                if (media := rows.media) is not None
                for number in range(int(media.offsets[0]), int(media.offsets[-1]))
            }
        except PackerError as error:
            findings.append(unreadable(shard.path, error))
            continue
        missing = len(named - stored)
        findings += (
            differing(shard.path, ("images", "images that the cache has", f"{missing} that it lacks"))
            if missing
            else []
        )
    return findings


def _images(folder: Path, table: StoredTable) -> tuple[list[Finding], set[bytes]]:
    shard, digests = MediaShards(folder, [table]), set[bytes]()
    try:
        for digest in shard.digests():
            shard.read(digest)
            digests.add(digest)
    except PackerError as error:
        return [unreadable(table.path, error)], digests
    return differing(table.path, ("images", table.num_rows, len(digests))), digests


def images_are_elsewhere(rows: DocumentRows, image_ids: tuple[int, ...]) -> Bool:
    """Return the documents whose repeated tokens are not exactly those from the ends of their images.  # bool[R]"""
    broken = np.zeros(len(rows.row), np.bool_)
    if rows.media is None:
        return broken
    for number in range(len(rows.row)):
        is_image = np.isin(rows.input_ids[number], image_ids)
        for image in rows.media[number]:
            last = image.start + image.length - 1
            broken[number] |= not (is_image[image.start] and is_image[last])
            is_image[image.start : last + 1] = False
        broken[number] |= bool(is_image.any())
    return broken
