"""The content fingerprint: the same data, whoever wrote it and however it is cut into partitions and shards."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from packer.store.block_shards import BlockShards
from packer.store.document_shards import DocumentShards
from packer.store.manifest import Shard


def content_fingerprint(folder: Path, shards: Sequence[Shard]) -> str:
    """sha256 over each kind and split, in row order.

    Of a document its doc_id (a digest of ids, labels and weights) and the row of the file it comes from; of a block its
    row digest. The row within a partition, which also stands in a document's row digest, does not enter: another
    `partition_bytes` is no other content.

    Raises:
        CheckError: a shard's size or structure is not what the manifest says; digests are not checked here.

    """
    whole = hashlib.sha256()
    for kind, split in sorted({(shard.kind, shard.split) for shard in shards}):
        own = [shard for shard in shards if (shard.kind, shard.split) == (kind, split)]
        rows = _document_content(folder, own) if kind == "documents" else _block_content(folder, own)
        whole.update(f"{kind}/{split} {rows.hexdigest()}\n".encode())
    return whole.hexdigest()


def _document_content(folder: Path, shards: Sequence[Shard]) -> "hashlib._Hash":
    documents = DocumentShards(folder, shards)
    pairs = np.stack([documents.doc_ids(), documents.file_rows()], axis=1)
    return hashlib.sha256(np.ascontiguousarray(pairs, "<i8").tobytes())


def _block_content(folder: Path, shards: Sequence[Shard]) -> "hashlib._Hash":
    return hashlib.sha256(BlockShards(folder, shards).digests().astype("<u8").tobytes())
