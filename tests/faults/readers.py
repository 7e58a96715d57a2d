"""What a training job would be handed: everything a cache holds, read and checked, or the error it ends with."""

from pathlib import Path
from typing import Any

import numpy as np
from single_documents import read_document

from packer.errors import CheckError
from packer.store.cache import Cache
from packer.store.manifest import Shard
from packer.store.shards import BlockShards, DocumentShards


def read_shard(folder: Path, shard: Shard) -> list[Any]:
    """Every value of a shard as a reader hands it out.

    Raises:
        CheckError: a row is not what was written.

    """
    if shard.kind == "blocks":
        batch = BlockShards(folder, [shard]).read(np.arange(shard.num_rows))
        return [_bytes(getattr(batch, name)) for name in batch.__slots__]
    documents = DocumentShards(folder, [shard])
    documents.lengths()
    rows = [read_document(documents, number) for number in range(len(documents))]
    return [_bytes(getattr(row, name)) for row in rows for name in row.__slots__]


def read_cache(folder: Path) -> tuple[str, list[Any]]:
    """Fingerprint, and every value of every shard.

    Raises:
        CheckError: something is not what was written.

    """
    with Cache.open(folder) as cache:
        return cache.fingerprint, [read_shard(folder, shard) for shard in cache.manifest.shards]


def refusal(folder: Path, shard: Shard) -> str | None:
    """What a reader of a shard is told; None where it is handed rows."""
    try:
        read_shard(folder, shard)
    except CheckError as error:
        return error.message
    return None


def _bytes(value: Any) -> Any:
    return value.tobytes() if isinstance(value, np.ndarray) else value
