"""Inputs in a bucket: list objects, and read the listed versions by range requests or from copies on this machine.

Text is read by range requests: no machine needs a disk for it, and each fetches only the bytes of its partitions.
Tables are read from a copy, because decoding a piece of a row group means decoding everything before it too.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from glob import has_magic
from hashlib import sha256
from pathlib import Path

from packer.errors import InputError, show_as_url
from packer.host.limits import hint_at_disk
from packer.names import fits
from packer.source.file_bytes import READ_BYTES, FilePath, changed_error, read_chunks
from packer.store.bucket import CONNECTIONS, Bucket, bucket_url
from packer.store.folder import AtomicFile
from packer.store.mirror import OTHER_DISK
from packer.store.place import folder_of

_MOST_REQUESTED = 16 * READ_BYTES
_MOST_AHEAD = 3
"""Requests in flight while the bytes before them are processed: a single connection is slower than cutting."""


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """One version of an object that contains rows; its text is its URL.

    Raises:
        InputError: from any method, if the object has changed or was removed.
        UsageError: from any method, if obstore is not installed.
        StorageError: from any method, if the bucket or the disk cannot be used.
    """

    url: str
    etag: str
    num_bytes: int

    def __str__(self) -> str:
        return self.url

    def __fspath__(self) -> str:
        """Return the path of a copy on this machine, made if there is none."""
        copy = self._copy
        show_as_url(copy, self.url)
        if not copy.exists():
            with hint_at_disk(OTHER_DISK), AtomicFile(copy.parent) as file:
                for chunk in self.chunks(0, None):
                    file.write(chunk)
                file.commit(copy.name)
        return str(copy)

    def chunks(self, start: int, stop: int | None) -> Iterator[bytes]:
        """Yield bytes `start` … `stop`, a megabyte at a time; to its end if `stop` is None.

        With a `stop`, exactly these bytes are fetched. Without one, requests begin with a megabyte and grow, since many
        callers read the first rows only.
        """
        if self._copy.exists():
            yield from read_chunks(self._copy, start, stop)
            return
        pool = ThreadPoolExecutor(1 + _MOST_AHEAD, thread_name_prefix="packer-inputs")
        underway: deque[Future[bytes]] = deque()
        num_ahead = 0
        try:
            for first, last in self._requests(start, stop):
                is_head = stop is None and not first
                underway.append(pool.submit(_head, self, last) if is_head else pool.submit(self.range, first, last))
                if len(underway) > num_ahead:
                    yield from _cut(underway.popleft().result())
                    num_ahead = min(num_ahead + 1, _MOST_AHEAD)
            while underway:
                yield from _cut(underway.popleft().result())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def refuse_changed(self) -> None:
        """Check that the bucket still has this version."""
        bucket, name = _parent(self.url)
        etag = bucket.etag(name)
        if etag != self.etag:
            raise _another(self.url) if etag else changed_error(self.url, "it was removed from the bucket")

    def _requests(self, start: int, stop: int | None) -> Iterator[tuple[int, int]]:
        size = READ_BYTES if stop is None else _MOST_REQUESTED
        stop = self.num_bytes if stop is None else stop
        while start < stop:
            yield start, min(start + size, stop)
            start += size
            size = min(2 * size, _MOST_REQUESTED)

    def range(self, start: int, stop: int) -> bytes:
        """Fetch bytes `start` … `stop`, with one request."""
        bucket, name = _parent(self.url)
        pieces: list[memoryview] = []
        there = bucket.download(name, pieces.append, etag=self.etag, within=(start, stop))
        content = b"".join(pieces)
        if not there or len(content) != stop - start:
            raise _another(self.url)
        return content

    @property
    def _copy(self) -> Path:
        """The path of the copy, keyed by URL and version (ETag); its file name is kept for people."""
        folder = folder_of(self.url, "inputs")
        return folder / sha256(self.etag.encode()).hexdigest()[:16] / folder.name


def objects_of(source: str) -> list[ObjectFile]:
    """Return the objects that a URL or a pattern such as ``s3://BUCKET/FOLDER/*.jsonl`` names, sorted by URL.

    Raises:
        InputError: no object matches, or it is a folder.
        UsageError: obstore is not installed.
        StorageError: the bucket cannot be used.
    """
    found = sorted(_named(source), key=lambda file: file.url)
    if not found:
        raise InputError(f"{source}: no object in the bucket has this name", hint="names are case-sensitive")
    return found


def copy_objects(files: Iterable[FilePath]) -> None:
    """Copy those files that are objects to this machine; an object that has not changed since is not copied again.

    Raises:
        InputError, UsageError, StorageError: as :class:`ObjectFile`.
    """
    objects = [file for file in files if isinstance(file, ObjectFile)]
    with ThreadPoolExecutor(CONNECTIONS // 4, thread_name_prefix="packer-copies") as pool:
        list(pool.map(ObjectFile.__fspath__, objects))


def refuse_changed_objects(files: Iterable[FilePath]) -> None:
    """Check that those files that are objects still have the versions that were listed.

    Raises:
        InputError: one has changed or was removed.
    """
    objects = [file for file in files if isinstance(file, ObjectFile)]
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="packer-inputs") as pool:
        list(pool.map(ObjectFile.refuse_changed, objects))


def _named(source: str) -> Iterator[ObjectFile]:
    url = bucket_url(source)
    assert url is not None, "asked for a URL"
    if not has_magic(url):
        etag = num_bytes = None
        if url.count("/") > 2:  # else it is a bucket alone
            bucket, name = _parent(url)
            etag, num_bytes = bucket.etag(name), bucket.size(name)
        if etag is not None and num_bytes is not None:
            yield ObjectFile(url, etag, num_bytes)
        elif next(Bucket(url).listed(), None) is not None:
            raise InputError(f"{url} is a folder", hint=f"'{url}/**/*.jsonl' names the files in it")
        return
    parts = url.split("/")
    first = next(number for number, part in enumerate(parts) if has_magic(part))
    root, pattern = "/".join(parts[:first]), "/".join(parts[first:])
    found = [each for each in Bucket(root).listed() if each[0] == pattern or fits(each[0], pattern)]
    exact = [each for each in found if each[0] == pattern]  # as of files: a name is taken before what it may match
    for name, num_bytes, etag in exact or found:
        yield ObjectFile(f"{root}/{name}", etag, num_bytes)


@lru_cache(maxsize=4)
def _head(file: ObjectFile, num_bytes: int) -> bytes:
    """Return the first bytes of an object, which several callers in a row ask for before it is read."""
    return file.range(0, num_bytes)


def _cut(content: bytes) -> Iterator[bytes]:
    return (content[at : at + READ_BYTES] for at in range(0, len(content), READ_BYTES))


def _another(url: str) -> InputError:
    return changed_error(url, "the object in the bucket has been replaced")


def _parent(url: str) -> tuple[Bucket, str]:
    root, _, name = url.rpartition("/")
    return Bucket(root), name
