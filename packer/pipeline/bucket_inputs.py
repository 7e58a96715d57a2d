"""Inputs in a bucket: listed, and read in the version that was listed, by ranges or from a copy on this machine.

Text is read from ranges, so that no machine needs a disk for it, and none reads more than it was asked for. Tables are
read from a copy: whoever decodes a piece of a row group decodes what stands before it too.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from glob import has_magic
from hashlib import sha256
from pathlib import Path

from packer.errors import InputError, stands_for
from packer.names import fits
from packer.source.file_bytes import READ_BYTES, FilePath, changed, read_chunks
from packer.store.bucket import CONNECTIONS, Bucket, bucket_url
from packer.store.folder import AtomicFile
from packer.store.place import folder_of

_MOST_REQUESTED = 16 * READ_BYTES
_MOST_AHEAD = 3
"""Requests that are under way while what came before is worked on. One brings some 90 MB/s from Amazon's store."""


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """An object with rows, in one version; as a text it is its URL.

    Raises:
        InputError: from what reads it, where the object is another one now, or gone.
        UsageError: from the same, where obstore is not installed.
        StorageError: from the same, where the store or the disk refuses.

    """

    url: str
    etag: str
    num_bytes: int

    def __str__(self) -> str:
        return self.url

    def __fspath__(self) -> str:
        """The path of a copy, which is made if it is not there."""
        copy = self._copy
        stands_for(copy, self.url)
        if not copy.exists():
            with AtomicFile(copy.parent) as file:
                for chunk in self.chunks(0, None):
                    file.write(chunk)
                file.commit(copy.name)
        return str(copy)

    def chunks(self, start: int, stop: int | None) -> Iterator[bytes]:
        """Bytes `start` … `stop`, a megabyte at a time; to its end where `stop` is None.

        Who knows where to stop gets that much. Requests of who does not grow with what he takes, as many take but the
        first rows.
        """
        if self._copy.exists():
            yield from read_chunks(self._copy, start, stop)
            return
        pool = ThreadPoolExecutor(1 + _MOST_AHEAD, thread_name_prefix="packer-inputs")
        underway: deque[Future[bytes]] = deque()
        num_ahead = 0
        try:
            for first, last in self._requests(start, stop):
                underway.append(pool.submit(self._range, first, last))
                if len(underway) > num_ahead:
                    yield from _cut(underway.popleft().result())
                    num_ahead = min(num_ahead + 1, _MOST_AHEAD)
            while underway:
                yield from _cut(underway.popleft().result())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def refuse_changed(self) -> None:
        """Look whether the bucket has this version still."""
        bucket, name = _parent(self.url)
        etag = bucket.etag(name)
        if etag != self.etag:
            raise _another(self.url) if etag else changed(self.url, "it was removed from the bucket")

    def _requests(self, start: int, stop: int | None) -> Iterator[tuple[int, int]]:
        size = READ_BYTES if stop is None else _MOST_REQUESTED
        stop = self.num_bytes if stop is None else stop
        while start < stop:
            yield start, min(start + size, stop)
            start += size
            size = min(2 * size, _MOST_REQUESTED)

    def _range(self, start: int, stop: int) -> bytes:
        bucket, name = _parent(self.url)
        pieces: list[memoryview] = []
        there = bucket.download(name, pieces.append, etag=self.etag, within=(start, stop))
        content = b"".join(pieces)
        if not there or len(content) != stop - start:
            raise _another(self.url)
        return content

    @property
    def _copy(self) -> Path:
        """Its name is kept, for people."""
        folder = folder_of(self.url, "inputs")
        return folder / sha256(self.etag.encode()).hexdigest()[:16] / folder.name


def objects_of(source: str) -> list[ObjectFile]:
    """The objects that a URL or a pattern such as ``s3://BUCKET/FOLDER/*.jsonl`` names, sorted by URL.

    Raises:
        InputError: there is none.
        UsageError: obstore is not installed.
        StorageError: the store refuses.

    """
    found = sorted(_named(source), key=lambda file: file.url)
    if not found:
        raise InputError(f"{source}: no object in the bucket has this name", hint="names are told apart by case")
    return found


def copy_objects(files: Iterable[FilePath]) -> None:
    """Make copies of those files that are objects; what was copied before and is the same object still, is not again.

    Raises:
        InputError, UsageError, StorageError: as :class:`ObjectFile`.

    """
    objects = [file for file in files if isinstance(file, ObjectFile)]
    with ThreadPoolExecutor(CONNECTIONS // 4, thread_name_prefix="packer-copies") as pool:
        list(pool.map(ObjectFile.__fspath__, objects))


def refuse_changed_objects(files: Iterable[FilePath]) -> None:
    """Look whether those files that are objects are still what they were.

    Raises:
        InputError: one is another object now, or gone.

    """
    objects = [file for file in files if isinstance(file, ObjectFile)]
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="packer-inputs") as pool:
        list(pool.map(ObjectFile.refuse_changed, objects))


def _named(source: str) -> Iterator[ObjectFile]:
    url = bucket_url(source)
    assert url is not None, "asked for a URL"
    if not has_magic(url):
        bucket, name = _parent(url)
        etag, num_bytes = bucket.etag(name), bucket.size(name)
        if etag is not None and num_bytes is not None:
            yield ObjectFile(url, etag, num_bytes)
        return
    parts = url.split("/")
    first = next(number for number, part in enumerate(parts) if has_magic(part))
    root, pattern = "/".join(parts[:first]), "/".join(parts[first:])
    for name, num_bytes, etag in Bucket(root).listed():
        if fits(name, pattern):
            yield ObjectFile(f"{root}/{name}", etag, num_bytes)


def _cut(content: bytes) -> Iterator[bytes]:
    return (content[at : at + READ_BYTES] for at in range(0, len(content), READ_BYTES))


def _another(url: str) -> InputError:
    return changed(url, "the object in the bucket is another one now")


def _parent(url: str) -> tuple[Bucket, str]:
    root, _, name = url.rpartition("/")
    return Bucket(root), name
