"""Images as they were given: written once for a partition while its rows are read, found by digest afterwards.

A shard has a row for each image, in the order in which rows first show it, and one without bytes for each further file
that the rows name and that holds the same image. The names say which files a partition's documents depend on.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Self

import pyarrow as pa

from packer.display import repair_hint
from packer.errors import CheckError
from packer.media.decoder import Image
from packer.store.digest import FileDigest
from packer.store.files import CacheFiles
from packer.store.folder import AtomicFile
from packer.store.manifest import StoredTable
from packer.store.shard_file import IPC_OPTIONS, shard_name

FOLDER = "media"
_SCHEMA = pa.schema(
    [
        pa.field("sha256", pa.binary(32), nullable=False),
        pa.field("name", pa.string()),
        pa.field("data", pa.large_binary()),
    ]
)


class MediaWriter:
    """Writes the images of one partition; makes no file if it has none."""

    def __init__(self, cache: Path, *, key: str) -> None:
        self._cache, self._key = cache, key
        self._file: AtomicFile | None = None
        self._unnamed = ExitStack()
        self._digests: set[bytes] = set()
        self._named: set[tuple[bytes, str | None]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._unnamed.__exit__(*raised)  # type: ignore[arg-type]

    def add(self, images: Iterable[Image]) -> None:
        """Write those images that are new."""
        rows: list[tuple[bytes, str | None, bytes | None]] = []
        for image in images:
            if image.sha256 in self._digests and (image.name is None or (image.sha256, image.name) in self._named):
                continue
            rows.append((image.sha256, image.name, None if image.sha256 in self._digests else image.data))
            self._digests.add(image.sha256)
            self._named.add((image.sha256, image.name))
        if not rows:
            return
        if self._file is None:
            self._file = self._unnamed.enter_context(CacheFiles(self._cache).new_file(FOLDER, _name))
            self._writer = pa.ipc.new_file(self._file, _SCHEMA, options=IPC_OPTIONS)
        arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))

    def commit(self) -> StoredTable | None:
        """Give the file its name; return its entry, or None if no row has an image."""
        if self._file is None:
            return None
        self._writer.close()
        self._unnamed.close()
        digest = self._file.digest
        return StoredTable(
            path=f"{FOLDER}/{_name(digest)}",
            key=self._key,
            num_rows=len(self._digests),
            num_bytes=digest.num_bytes,
            xxh3=digest.xxh3,
            sha256=digest.sha256,
        )


def _name(digest: FileDigest) -> str:
    return shard_name(digest.sha256, split="", index=None)


class MediaShards:
    """The images of a cache, by digest."""

    def __init__(self, folder: Path, tables: Sequence[StoredTable]) -> None:
        self._folder = folder
        self._tables = tuple(tables)

    def __reduce__(self) -> tuple[type[Self], tuple[Path, tuple[StoredTable, ...]]]:
        return type(self), (self._folder, self._tables)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._places

    def read(self, digest: bytes) -> bytes:
        """Return the bytes of an image."""
        place = self._places.get(digest)
        data = None if place is None else place[0].column("data")[place[1]].as_py()
        if data is None or sha256(data).digest() != digest:
            where = self._folder / FOLDER
            state = "is missing" if data is None else "is damaged: its bytes have another sha256"
            raise CheckError(f"{where}: the image {digest.hex()} {state}", hint=repair_hint(self._folder))
        return bytes(data)

    def digests(self) -> Iterator[bytes]:
        """Yield the digests of all images."""
        yield from self._places

    def names(self) -> Iterator[tuple[str, bytes]]:
        """Yield the files that rows name, and the digest of each."""
        for batch in self._batches():
            for digest, name in zip(*(batch.column(each).to_pylist() for each in ("sha256", "name")), strict=True):
                if name is not None:
                    yield name, digest

    @cached_property
    def _places(self) -> dict[bytes, tuple[pa.RecordBatch, int]]:
        found: dict[bytes, tuple[pa.RecordBatch, int]] = {}
        for batch in self._batches():
            has_data = batch.column("data").is_valid().to_pylist()
            for row, digest in enumerate(batch.column("sha256").to_pylist()):
                if has_data[row]:
                    found.setdefault(digest, (batch, row))
        return found

    def _batches(self) -> Iterator[pa.RecordBatch]:
        files = CacheFiles(self._folder)
        for table in self._tables:
            path = self._folder / table.path
            try:
                files.fetch(table.path)
                reader = pa.ipc.open_file(pa.BufferReader(files.map(table.path)))
                _check_schema(reader.schema)
                for number in range(reader.num_record_batches):
                    batch = reader.get_batch(number)
                    batch.validate(full=True)
                    yield batch
            except (pa.ArrowException, ValueError, OSError) as error:
                raise CheckError(f"{path} is damaged: {error}", hint=repair_hint(self._folder)) from error


def _check_schema(schema: pa.Schema) -> None:
    if not schema.equals(_SCHEMA):
        raise ValueError("it has other columns than shards of images")
