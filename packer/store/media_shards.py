"""Images as they were given: written once for a partition while its rows are read, found by digest afterwards.

A shard has a row for each image, in the order in which rows first show it, and one without bytes for each further file
that the rows name and that holds the same image. The names say which files a partition's documents depend on. With
`media.keep: reference`, an image that a row names has a row without bytes, too: its file is opened when it is read.

A cache may come from anybody, so such a file is opened only below a folder that the reader named, as a build opens it,
and what it holds is shown to nobody before its digest was compared.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Literal, Self

import pyarrow as pa

from packer.errors import CheckError, UsageError
from packer.media.images import Image, ImageFiles, UnusableImageError
from packer.store.files import CacheFiles, damage
from packer.store.folder import AtomicFile
from packer.store.manifest import Manifest, StoredTable
from packer.store.mapping import as_damage
from packer.store.writing import IPC_OPTIONS, shard_name

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

    def __init__(self, cache: Path, *, key: str, keep: Literal["bytes", "reference"]) -> None:
        self._cache, self._key, self._keep = cache, key, keep
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
            is_bare = image.sha256 in self._digests or (self._keep == "reference" and image.name is not None)
            rows.append((image.sha256, image.name, None if is_bare else image.data))
            self._digests.add(image.sha256)
            self._named.add((image.sha256, image.name))
        if not rows:
            return
        if self._file is None:
            new_file = CacheFiles(self._cache).new_file(FOLDER, lambda digest: shard_name(digest.sha256))
            self._file = self._unnamed.enter_context(new_file)
            self._writer = pa.ipc.new_file(self._file, _SCHEMA, options=IPC_OPTIONS)
        arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))

    def commit(self) -> StoredTable | None:
        """Give the file its name; return its entry, or None if no row has an image."""
        if self._file is None:
            return None
        self._writer.close()
        self._unnamed.close()
        path = f"{FOLDER}/{self._file.path.name}"
        return StoredTable(path=path, key=self._key, num_rows=len(self._digests), **self._file.digest.recorded)


class MediaShards:
    """The images of a cache, by digest; `files` open those that it only names."""

    def __init__(self, folder: Path, tables: Sequence[StoredTable], files: Sequence[ImageFiles] = ()) -> None:
        self._folder = folder
        self._tables = tuple(tables)
        self._files = tuple(files)

    @classmethod
    def of(cls, folder: Path, manifest: Manifest, sources: Iterable[str | Path] = ()) -> Self:
        """The images of a cache; those that it only names are read below `sources`."""
        named = manifest.recipe.get("media", {}).get("root")
        roots = {str(Path(entry.path).parent) for entry in manifest.inputs} if named is None else {named}
        return cls(folder, manifest.media or (), ImageFiles.below(sources, sorted(roots)))

    def __reduce__(self) -> tuple[type[Self], tuple[Path, tuple[StoredTable, ...], tuple[ImageFiles, ...]]]:
        return type(self), (self._folder, self._tables, self._files)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._places

    def read(self, digest: bytes) -> bytes:
        """Return the bytes of an image; UsageError if it is in files, and the reader named no folder."""
        place = self._places.get(digest)
        data = None if place is None else place[0].column("data")[place[1]].as_py()
        if data is None and (names := self._names.get(digest)):
            said = []
            for name in names:  # one of them is enough
                content = self.named(name, digest)
                if isinstance(content, bytes):
                    return content
                said.append(content)
            raise CheckError(
                f"{self._folder} names the image {names[0]}: {said[0]}",
                hint="put it back, name the folder where it is now as sources, or build again",
            )
        if data is None or sha256(data).digest() != digest:
            state = "is missing" if data is None else "has another sha256"
            raise damage(self._folder, FOLDER, f"is damaged: the image {digest.hex()} {state}")
        return bytes(data)

    def named(self, name: str, digest: bytes) -> bytes | str:
        """Return the bytes of an image that the cache only names, or why they cannot be had.

        Raises:
            UsageError: the reader named no folder.
        """
        if not self._files:
            raise UsageError(
                f"{self._folder} has only the name of the image {name}: not read",
                hint="name the folder that holds its images now: sources=DIR of Cache.open, --sources DIR",
            )
        found = []
        for files in () if Path(name).is_absolute() or ".." in Path(name).parts else self._files:
            try:
                data = files.read(name)
            except UnusableImageError as error:
                found.append(error.reason.removeprefix(f"{name}: "))
                continue
            if (own := sha256(data)).digest() == digest:
                return data
            found.insert(0, f"sha256 {own.hexdigest()}, which is not that of the build")
        return found[0] if found else "no build names one so"

    def references(self) -> Iterator[tuple[str, bytes]]:
        """Yield the files that hold images of which no bytes are stored, and the digest of each."""
        for name, digest in self.names():
            if self.only_names(digest):
                yield name, digest

    def only_names(self, digest: bytes) -> bool:
        """Whether the cache has the name of an image, and not its bytes."""
        place = self._places.get(digest)
        return place is not None and digest in self._names and not place[0].column("data")[place[1]].is_valid

    def name(self, digest: bytes) -> str:
        """Return how rows name an image, or its digest if they hold it."""
        return self._names.get(digest, [digest.hex()])[0]

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
        """Where each image is stored, or else named."""
        found: dict[bytes, tuple[pa.RecordBatch, int]] = {}
        for batch in self._batches():
            is_stored = batch.column("data").is_valid().to_pylist()
            for row, digest in enumerate(batch.column("sha256").to_pylist()):
                if is_stored[row] or digest not in found:
                    found[digest] = (batch, row)
        return found

    @cached_property
    def _names(self) -> dict[bytes, list[str]]:
        found: dict[bytes, list[str]] = {}
        for name, digest in self.names():
            found.setdefault(digest, []).append(name)
        return found

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for table in self._tables:
            with as_damage(self._folder, table):
                reader = pa.ipc.open_file(pa.BufferReader(CacheFiles(self._folder).map(table.path)))
                if not reader.schema.equals(_SCHEMA):
                    raise ValueError("it has other columns than shards of images")
                for number in range(reader.num_record_batches):
                    batch = reader.get_batch(number)
                    batch.validate(full=True)
                    yield batch
