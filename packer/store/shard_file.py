"""One Arrow file of a cache, from its temporary name to its content-addressed name.

The bytes are a function of the record batches alone: Arrow IPC *file* format, metadata version 5, uncompressed, no
dictionaries, no time, no host. The name ends in the first 12 digits of the file's sha256.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
from xxhash import xxh3_128

from packer.store.files import CacheFiles
from packer.store.folder import AtomicFile, inside
from packer.store.manifest import Place, Shard
from packer.store.schema import Kind, fixed_columns
from packer.store.views import flat_view

_OPTIONS = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V5, compression=None, use_threads=False)


def shard_name(*, split: str, index: int, sha256: str) -> str:
    """File name of a shard: ``train-00000-0123456789ab.arrow``."""
    return f"{split}-{index:05d}-{sha256[:12]}.arrow"


class ShardFile:
    """An Arrow file being written: :meth:`commit` gives it its name, :meth:`abort` removes it.

    Raises:
        StorageError: from any method, where the disk refuses.

    """

    def __init__(self, folder: Path, *, schema: pa.Schema) -> None:
        self.schema = schema
        self.num_rows = 0
        self._file = AtomicFile(folder)
        try:
            self._writer = pa.ipc.new_file(self._file, schema, options=_OPTIONS)
        except BaseException:
            self._file.abort()
            raise

    @property
    def path(self) -> Path:
        """Where the bytes are until `commit`."""
        return self._file.path

    def write(self, batch: pa.RecordBatch) -> None:
        assert batch.num_rows > 0, "a record batch without rows has no places"
        self._writer.write_batch(batch)
        self.num_rows += batch.num_rows

    def close(self) -> None:
        """Write the footer: from here on the temporary file is a whole Arrow file."""
        self._writer.close()
        self._file.flush()

    def commit(
        self, *, kind: Kind, split: str, index: int, num_tokens: int, num_trained: int, num_last_tokens: int = 0
    ) -> Shard:
        """Finish the file under its content-addressed name.

        Returns:
            The manifest's entry, as far as the file's own bytes say; the rest is empty.

        """
        self.close()
        places, rows_xxh3 = find_places(self._file.path)
        digest = self._file.digest
        name = shard_name(split=split, index=index, sha256=digest.sha256)
        self._file.commit(inside(self._file.folder, name).name)
        return Shard(
            path=f"{self._file.folder.name}/{name}",
            kind=kind,
            split=split,
            source=None,
            key=None,
            first_row=0,
            num_rows=self.num_rows,
            num_kept=0,
            num_input_rows=0,
            num_rejected=0,
            num_tokens=num_tokens,
            num_trained=num_trained,
            num_merged=0,
            num_last_tokens=num_last_tokens,
            num_bytes=digest.num_bytes,
            xxh3=digest.xxh3,
            sha256=digest.sha256,
            rows_xxh3=rows_xxh3,
            places=places,
        )

    def abort(self) -> None:
        self._file.abort()


def find_places(path: Path) -> tuple[tuple[Place, ...], str]:
    """Where each record batch of an Arrow file keeps its fixed-width columns, and the xxh3-128 of its row digests."""
    mapped = CacheFiles(path.parent).map(path.name)
    reader = pa.ipc.open_file(pa.BufferReader(mapped))
    places: list[Place] = []
    first_row = 0
    batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
    for batch in batches:
        places.append(place_of(batch, base=mapped.address, first_row=first_row))
        first_row += batch.num_rows
    return tuple(places), digest_of_rows(batches)


def digest_of_rows(batches: Iterable[pa.RecordBatch]) -> str:
    """xxh3-128 of the column `digest` of all record batches, one after another; ValueError where one has none."""
    digest = xxh3_128()
    for batch in batches:
        digest.update(flat_view(batch, "digest", np.uint64, batch.num_rows).data)
    return digest.hexdigest()


def place_of(batch: pa.RecordBatch, *, base: int, first_row: int) -> Place:
    """Place of one record batch of a file mapped at address ``base``; ValueError where it has none.

    The values of a column are its last buffer: buffers are [validity, values], and for a fixed-size list
    [validity of the list, validity of the values, values].
    """
    values = {name: batch.column(name).buffers()[-1] for name in fixed_columns(batch.schema)}
    if batch.num_rows < 1 or any(buffer is None for buffer in values.values()):
        raise ValueError("a record batch holds no values")
    columns = {name: buffer.address - base for name, buffer in values.items()}
    return Place(first_row=first_row, num_rows=batch.num_rows, columns=columns)


def relink(cache: Path, shard: Shard, *, index: int, source: Path | None = None) -> str:
    """Give a shard's bytes the name of another index, and return its relative path; the old name stays.

    Args:
        cache: the cache that gets the new name.
        shard: the shard as it is named now.
        index: its new number within its split.
        source: the cache that has the shard, where that is another one.

    Raises:
        CheckError, StorageError: as :meth:`packer.store.files.CacheFiles.take`.

    """
    name = f"{shard.kind}/{shard_name(split=shard.split, index=index, sha256=shard.sha256)}"
    CacheFiles(cache).take(name, CacheFiles(source or cache), shard.path, sha256=shard.sha256)
    return name
