"""Objects of a bucket as inputs of a build: files, each in the version that was listed.

A build on one machine makes copies of them first, as it reads all of them more than once. The nodes of a cluster fetch
the bytes of their partitions alone, except for tables, of which a piece cannot be decoded without what is before it.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path

from packer.errors import InputError, show_as_url
from packer.host.limits import storage_errors
from packer.host.regular_file import open_regular
from packer.names import bucket_url, fits
from packer.store.bucket import CONNECTIONS, Bucket, GoneError
from packer.store.folder import AtomicFile
from packer.store.place import folder_of

_CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """One version of an object that contains rows; its text is its URL. If it has changed, any method says so."""

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
            with AtomicFile(copy.parent) as file:
                for chunk in self.chunks(0, None):
                    file.write(chunk)
                file.commit(copy.name)
        return str(copy)

    def chunks(self, start: int, stop: int | None) -> Iterator[bytes]:
        """Yield bytes `start` … `stop`, or to its end if `stop` is None."""
        left = (self.num_bytes if stop is None else stop) - start
        with suppress(GoneError):
            for chunk in self._chunks(start, start + left) if left else ():
                left -= len(chunk)
                yield chunk
        if left:
            raise InputError(
                f"{self.url}: changed while being read: the object in the bucket has been replaced or removed",
                hint="build again when nothing writes to the file",
            )

    def _chunks(self, start: int, stop: int) -> Iterator[bytes]:
        if self._copy.exists():
            with storage_errors("read", self._copy), open_regular(self._copy) as file:
                file.seek(start)
                yield from iter(lambda: file.read(min(_CHUNK_BYTES, stop - file.tell())), b"")
        else:
            root, _, name = self.url.rpartition("/")
            yield from Bucket(root).stream(name, etag=self.etag, within=(start, stop))

    @property
    def _copy(self) -> Path:
        """The path of the copy, which a URL and a version have."""
        return folder_of(f"{self.url} {self.etag}", "inputs")


def objects_of(source: str) -> list[ObjectFile]:
    """Return the objects that a URL or a pattern such as ``s3://BUCKET/FOLDER/*.jsonl`` names, sorted by URL."""
    found = sorted(_named(source), key=lambda file: file.url)
    if not found:
        raise InputError(f"{source}: no object in the bucket has this name", hint="names are case-sensitive")
    return found


def copy_objects(files: Iterable[object]) -> None:
    """Copy those files that are objects to this machine; an object that has not changed since is not copied again."""
    with ThreadPoolExecutor(CONNECTIONS // 4, thread_name_prefix="packer-copies") as pool:
        list(pool.map(ObjectFile.__fspath__, [file for file in files if isinstance(file, ObjectFile)]))


def _named(source: str) -> Iterator[ObjectFile]:
    url = bucket_url(source)
    assert url is not None, "asked for a URL"
    if not has_magic(url):
        root, _, name = url.rpartition("/")
        version = Bucket(root).version(name) if url.count("/") > 2 else None  # else it is a bucket alone
        if version is not None:
            yield ObjectFile(url, version[1], version[0])
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
