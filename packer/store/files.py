"""The files of a cache by their names: everything that is read, written, renamed or linked goes through here.

A reader or writer of a cache sees an ordinary folder. If the folder mirrors a bucket (:mod:`packer.store.place`), what
is missing is downloaded first, and what is finished is uploaded.

A file that is not in the folder is downloaded whole on first access. A shard's name contains the beginning of its
sha256, which is checked during the download. So processes share what one of them has downloaded, a second run downloads
nothing, and rows are accessed through memory maps as usual.

A builder's mirror is its working folder. Each finished shard is uploaded under its own name, unless the object exists,
and then its journal entry, so that another machine finds both. The manifest is uploaded by compare-and-swap with the
one the build started from, or with none. Apart from objects that `--repair` finds damaged, nothing is removed from a
bucket, as a build cannot know whether another one is about to refer to an object.
"""

import hashlib
import os
import re
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import pyarrow as pa

from packer.display import repair_hint, url_of
from packer.errors import BusyError, CheckError, StorageError
from packer.host.files import MAX_SMALL_BYTES, leads_outside, open_regular, regular_path, storage_errors
from packer.store.bucket import CONNECTIONS, MAX_READ_BYTES, Bucket, GoneError
from packer.store.folder import (
    AtomicFile,
    FileDigest,
    digest_file,
    digest_file_xxh3,
    inside,
    locked,
    opened_folder,
    sync,
    sync_folder,
    write_atomically,
)

T = TypeVar("T")

MIRRORED = ".mirror"
"""Folder within a mirror for locks, which are not part of the cache."""

_LOCKS = 1024
"""Number of lock files. A name's hash selects its lock, so all processes together download about this many files at
once."""

_SHARDS = ("documents", "blocks", "rows", "media")
_LISTED = (*_SHARDS, "model")
_DIGEST = re.compile(r"[-/]([0-9a-f]{12,20})\.arrow\Z")


def damage(folder: Path, name: str, what: str) -> CheckError:
    """Return the error for a file of a cache that is not what a build wrote."""
    return CheckError(f"{folder / name} {what}", hint=repair_hint(folder))


@dataclass(frozen=True, slots=True)
class CacheFiles:
    """The files of one cache, each by its POSIX path relative to the folder.

    A link that leads out of the folder is refused: what is there is neither read nor measured.
    """

    folder: Path

    @property
    def bucket(self) -> Bucket | None:
        """What the folder mirrors; None if this process knows of no bucket, whatever the folder contains."""
        url = url_of(self.folder)
        return None if url is None else Bucket(url)

    def size(self, name: str) -> int | None:
        """Return the size of a regular file in bytes; None if it does not exist."""
        self._refuse_outside(name)
        size = self._size_here(name)
        return bucket.size(name) if size is None and (bucket := self.bucket) is not None else size

    def _size_here(self, name: str) -> int | None:
        try:
            status = os.stat(f"{self.folder}/{name}")  # noqa: PTH116 - called for every shard; a Path would double the time
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            with storage_errors("read", self.folder / name):
                raise
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def sizes(self, names: Iterable[str]) -> dict[str, int | None]:
        """Return the sizes of files by name, as :meth:`size`; for a bucket those of its objects, not of copies.

        The names are those of a manifest: decoding it refused links that lead out of the cache.
        """
        if (bucket := self.bucket) is None:
            return {name: self._size_here(name) for name in names}
        names, there = list(names), dict[str, int]()
        for folder in {name.partition("/")[0] for name in names} & {*_LISTED}:  # a request for a thousand objects
            there |= bucket.sizes(folder)
        return {name: there.get(name) if name.partition("/")[0] in _LISTED else bucket.size(name) for name in names}

    def fetch(self, name: str) -> Path:
        """Return a file's local path, downloading it from the bucket if necessary."""
        self._refuse_outside(name)
        path = self.folder / name
        if not path.exists() and (bucket := self.bucket) is not None:
            with self._locked(name, bucket):
                if not path.exists():  # else another process downloaded it meanwhile
                    _download(bucket, name, path)
        return path

    def fetch_all(self, names: Iterable[str]) -> None:
        """Download files that are in the bucket alone, many at a time; a no-op for a local cache."""
        if self.bucket is not None:
            deque(self.read_many(self.fetch, ((name,) for name in names)), maxlen=0)

    def _refuse_outside(self, name: str) -> None:
        """Refuse a path that a link leads out of the cache, before anything of what it leads to is read or shown."""
        if leads_outside(self.folder, name):
            raise CheckError(f"{self.folder / name} is a link that leads out of the cache", hint="copy the file itself")

    def open(self, name: str) -> BufferedReader:
        """Open a file for reading."""
        path = self.fetch(name)
        with storage_errors("read", path):
            return open_regular(path)

    def read(self, name: str, *, max_bytes: int = MAX_SMALL_BYTES) -> bytes:
        """Read a whole file."""
        with self.open(name) as file, storage_errors("read", self.folder / name):
            found = os.fstat(file.fileno()).st_size
            if found > max_bytes:
                raise CheckError(f"{self.folder / name}: expected at most {max_bytes} bytes, found {found}")
            return file.read()

    def read_ranges(self, wanted: Iterable[tuple[str, list[tuple[int, int]]]]) -> Iterator[bytes]:
        """Yield the joined ranges (offset, length in bytes) of each file; from a bucket, they alone are downloaded."""
        bucket = self.bucket

        def read(name: str, ranges: list[tuple[int, int]]) -> bytes:
            if bucket is not None and not (self.folder / name).exists():
                return b"".join(bucket.read_ranges(name, ranges))
            path = self.folder / name
            with self.open(name) as file, storage_errors("read", path):
                return b"".join(_range(file, offset, size, path) for offset, size in ranges)

        yield from self.read_many(read, wanted)

    def read_many(self, read: Callable[..., T], wanted: Iterable[tuple[Any, ...]]) -> Iterator[T]:
        """Yield the results of a function in order; for a cache in a bucket many calls run at a time."""
        if self.bucket is None:
            yield from (read(*each) for each in wanted)
            return
        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="packer-bucket") as pool:
            ahead = deque[Future[T]]()
            try:
                for each in wanted:
                    ahead.append(pool.submit(read, *each))
                    if len(ahead) > 2 * CONNECTIONS:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def map(self, name: str) -> pa.Buffer:
        """Memory-map a file read-only. No descriptor stays open, so a cache may have any number of shards."""
        with pa.memory_map(regular_path(self.fetch(name))) as mapped:
            return mapped.read_buffer()

    def names(self, folder: str, suffix: str) -> list[str]:
        """Return the sorted paths of files directly in a folder with a suffix; none if the folder does not exist."""
        return sorted(f"{folder}/{path.name}" for path in self._listed(folder, f"*{suffix}"))

    def sha256(self, name: str) -> str:
        """Compute the sha256 of a file."""
        return digest_file(self.fetch(name)).sha256

    def xxh3(self, name: str) -> str:
        """Compute the xxh3-128 of a file, several times faster than sha256."""
        return digest_file_xxh3(self.fetch(name))

    def contents(self, folder: str, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of each given small file in a folder that can be read; concurrently in a bucket."""
        here = {path.name for path in self._listed(folder, "*")} & {*names}
        for name in sorted(here):
            with suppress(StorageError, CheckError):
                yield name, self.read(f"{folder}/{name}")
        if len(here) < len(names) and (bucket := self.bucket) is not None:
            there = {path for path, size in bucket.sizes(folder).items() if size <= MAX_SMALL_BYTES}
            wanted = [name for name in names if name not in here and f"{folder}/{name}" in there]
            found = self.read_many(bucket.read, ((f"{folder}/{name}",) for name in wanted))
            yield from ((name, each) for name, each in zip(wanted, found, strict=True) if each is not None)

    def _listed(self, folder: str, pattern: str) -> Iterable[Path]:
        return () if leads_outside(self.folder, folder) else (self.folder / folder).glob(pattern)

    def write(self, name: str, content: bytes | Iterable[bytes]) -> FileDigest:
        """Write a file atomically under a name that no other content has; return the digests of its bytes."""
        digest = self._write_here(name, content)
        self._publish(name)
        return digest

    def _write_here(self, name: str, content: bytes | Iterable[bytes]) -> FileDigest:
        return write_atomically(inside(self.folder, name), content, below=self.folder)

    @contextmanager
    def new_file(self, folder: str, name: Callable[[FileDigest], str]) -> Iterator[AtomicFile]:
        """Write a file within the context; at its end, `name` makes the file's name of its digests."""
        with AtomicFile(self.folder / folder, below=self.folder) as file:
            yield file
            file.commit(inside(file.folder, name(file.digest)).name)
            self._publish(f"{folder}/{file.path.name}")

    def _publish(self, name: str) -> None:
        """Upload a file that is finished and has its name, before anything refers to it, unless the bucket has it."""
        if (bucket := self.bucket) is not None:
            bucket.upload(name, self.folder / name)

    def remove_damaged(self, digests: Mapping[str, str]) -> None:
        """If the folder mirrors a bucket, remove the bucket's objects whose sha256 differs from the given one."""
        if (bucket := self.bucket) is None:
            return

        def check(name: str) -> None:
            found = hashlib.sha256()
            with suppress(GoneError):
                for chunk in bucket.stream(name):
                    found.update(chunk)
                if found.hexdigest() != digests[name]:
                    bucket.remove([name])

        _at_once(check, digests)

    def commit(self, name: str, content: bytes, *, before: bytes | None, named: Iterable[str]) -> FileDigest:
        """Replace the file whose presence is the commit, once everything that it names exists.

        `before` is what :meth:`before_commit` gave when the build began. It is compared in a bucket only, as a lock
        keeps other builds out of a folder. The local copy is not compared, as other commands may have updated it
        meanwhile.
        """
        if (bucket := self.bucket) is not None:
            there = self.sizes(named)
            _at_once(self._publish, [each for each in there if there[each] is None and (self.folder / each).exists()])
            if not bucket.swap(name, before, content):
                raise BusyError(
                    f"{bucket.url}: another build committed a cache there meanwhile; this one did not",
                    hint="what was finished is kept: run the same command again, and it sees the other cache",
                )
        return self._write_here(name, content)

    def before_commit(self, name: str) -> bytes | None:
        """Return what :meth:`commit` is to replace in a bucket; None if there is nothing, or if a lock protects it."""
        is_there = self.bucket is not None and self.size(name) is not None
        return self.read(name, max_bytes=MAX_READ_BYTES) if is_there else None

    def rename(self, old: str, new: str) -> None:
        """Rename a finished file, replacing any file of the new name; in a bucket, write an object of the new name."""
        source, target = inside(self.folder, old), inside(self.folder, new)
        with (
            storage_errors("write", target),
            opened_folder(target.parent, below=self.folder) as there,
            opened_folder(source.parent, below=self.folder) as here,
        ):
            os.replace(source.name, target.name, src_dir_fd=here, dst_dir_fd=there)
            sync(there)
            sync(here)
        if (bucket := self.bucket) is not None:
            bucket.replace(new, target)

    def refresh(self, name: str) -> tuple[bytes | None, bytes | None]:
        """Update the local copy of the manifest; return its bytes before and now, each None if there is none."""
        bucket, path = self.bucket, self.folder / name
        assert bucket is not None, "asked of mirrors"
        with self._locked(name, bucket):
            found, kept = bucket.read(name), None
            with storage_errors("read", path), suppress(FileNotFoundError), open_regular(path) as file:
                kept = file.read()
            if found is None:
                path.unlink(missing_ok=True)
            elif found != kept:
                write_atomically(path, found)
            return kept, found

    def remove_copies(self, *, but: Collection[str]) -> None:
        """Remove all shards of a mirror except those named."""
        for path in (path for kind in _SHARDS for path in (self.folder / kind).glob("*.arrow")):
            name = path.relative_to(self.folder).as_posix()
            if _DIGEST.search(name) and name not in but:
                path.unlink(missing_ok=True)

    @contextmanager
    def _locked(self, name: str, bucket: Bucket) -> Iterator[None]:
        """Keep other processes and threads from downloading a file at the same time."""
        path = self.folder / MIRRORED / f"fetching-{crc32(name.encode()) % _LOCKS}"
        if not path.parent.is_dir():
            raise StorageError(
                f"the local copy of {bucket.url} in {self.folder} was removed while it was in use",
                hint="run the same command again: what it needs is downloaded again",
            )
        with locked(path):
            yield

    def sync(self, folder: str) -> None:
        """Flush a folder and its parent, so that the names in it survive a power failure."""
        with storage_errors("write", self.folder / folder):
            sync_folder(self.folder / folder)
            sync_folder((self.folder / folder).parent)


def _download(bucket: Bucket, name: str, target: Path) -> None:
    """Download a file, if the bucket has it."""
    with suppress(GoneError), AtomicFile(target.parent) as file:
        for chunk in bucket.stream(name):
            file.write(chunk)
        sha256 = _DIGEST.search(name)
        if sha256 is not None and not file.digest.sha256.startswith(sha256[1]):
            raise CheckError(
                f"{bucket.url}/{name} is damaged: its sha256 is {file.digest.sha256}", hint=repair_hint(bucket.url)
            )
        file.commit(target.name)


def _at_once(work: Callable[[str], None], names: Iterable[str]) -> None:
    """Do work on some large objects, a few of them at a time."""
    with ThreadPoolExecutor(CONNECTIONS // 4, thread_name_prefix="packer-bucket") as pool:
        deque(pool.map(work, names), maxlen=0)


def _range(file: BufferedReader, offset: int, size: int, path: Path) -> bytes:
    """Read exactly `size` bytes from an offset."""
    file.seek(offset)
    content = file.read(size)
    if len(content) != size:
        raise CheckError(f"{path} is truncated: expected {size} bytes at {offset}, found {len(content)}")
    return content
