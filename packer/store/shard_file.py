"""Write one Arrow file of a cache, from its temporary name to its content-addressed name.

The bytes are a function of the record batches and of Arrow's version: IPC *file* format, metadata version 5,
uncompressed, no dictionaries, no time, no host. The name has the first digits of the file's sha256.
"""

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
from xxhash import xxh3_128

from packer.arrow_arrays import numbers_of
from packer.store.arrow_columns import digest_values, shard_rows
from packer.store.digest import FileDigest
from packer.store.files import CacheFiles
from packer.store.manifest import Place, Shard
from packer.store.schema import Kind, place_of

IPC_OPTIONS = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V5, compression=None, use_threads=False)


def shard_name(sha256: str, *, split: str, index: int | None) -> str:
    """Return the file name of a shard: of documents by its bytes alone, of blocks ``train-00000-0123456789ab.arrow``.

    A partition's shard keeps its name wherever the partition stands in a later build; two that are equal are one file.
    """
    return f"{sha256[:20]}.arrow" if index is None else f"{split}-{index:05d}-{sha256[:12]}.arrow"


def write_shard(
    cache: Path, batches: Iterable[pa.RecordBatch], *, schema: pa.Schema, kind: Kind, split: str, index: int | None
) -> Shard:
    """Write record batches, none of them empty, as one atomic file.

    Return the manifest's entry, with the values that follow from the file itself; the others are left empty.
    """
    num_rows = num_tokens = num_trained = 0
    row_digests, values = xxh3_128(), hashlib.sha256()

    def name(digest: FileDigest) -> str:
        return shard_name(digest.sha256, split=split, index=index)

    with CacheFiles(cache).new_file(kind, name) as file:
        with pa.ipc.new_file(file, schema, options=IPC_OPTIONS) as writer, ThreadPoolExecutor(1) as aside:
            for batch in batches:
                hashing = aside.submit(digest_values, values, shard_rows(batch, kind))  # while its bytes are hashed
                writer.write_batch(batch)
                num_rows += batch.num_rows
                num_tokens += int(numbers_of(batch.column("length")).sum(dtype=np.int64))
                num_trained += int(numbers_of(batch.column("num_trained")).sum(dtype=np.int64))
                row_digests.update(numbers_of(batch.column("digest")).data)
                hashing.result()
        file.flush()
        places = find_places(file.path)
    digest = file.digest
    return Shard(
        path=f"{kind}/{name(digest)}",
        kind=kind,
        split=split,
        source=None,
        key=None,
        first_row=0,
        num_rows=num_rows,
        num_kept=0,
        num_input_rows=0,
        num_rejected=0,
        num_tokens=num_tokens,
        num_trained=num_trained,
        num_merged=0,
        num_last_tokens=0,
        num_bytes=digest.num_bytes,
        xxh3=digest.xxh3,
        sha256=digest.sha256,
        rows_xxh3=row_digests.hexdigest(),
        rows_sha256=values.hexdigest(),
        places=places,
    )


def find_places(path: Path) -> tuple[Place, ...]:
    """Return where each record batch of an Arrow file keeps its fixed-width columns and loss weights."""
    mapped = CacheFiles(path.parent).map(path.name)
    reader = pa.ipc.open_file(pa.BufferReader(mapped))
    places: list[Place] = []
    first_row = 0
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        places.append(place_of(batch, base=mapped.address, first_row=first_row))
        first_row += batch.num_rows
    return tuple(places)
