"""A local folder that mirrors a cache in a bucket: the rest of packer sees an ordinary folder.

A folder is a mirror only in a process that was given its URL, and in those that this process hands the URL to. Nothing
in a folder makes it one, since a folder may come from anybody. The folder for copies is the user's own.

A file that is not in the folder is downloaded whole on first access. A shard's name contains the beginning of its
sha256, which is checked during the download. So processes share what one of them has downloaded, a second run downloads
nothing, and rows are accessed through memory maps as usual.

A builder's mirror is its working folder. Each finished shard is uploaded under its own name, unless the object exists,
and then its journal entry, so that another machine finds both. The manifest is uploaded by compare-and-swap with the
one the build started from, or with none. Apart from objects that `--repair` finds damaged, nothing is removed from a
bucket, as a build cannot know whether another one is about to refer to an object.
"""

import hashlib
import re
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from zlib import crc32

from packer.display import repair_hint
from packer.errors import BusyError, CheckError, StorageError, UsageError, show_as_url, url_of
from packer.host.limits import hint_at_disk, storage_errors
from packer.host.regular_file import open_regular
from packer.store.bucket import CONNECTIONS, Bucket, GoneError
from packer.store.folder import PRIVATE, AtomicFile, write_atomically
from packer.store.own_files import locked, make_folder

_OWN = ".mirror"
"""Folder within a mirror for locks, which are not part of the cache."""

OTHER_DISK = "free some space, or name a folder on another disk: another cache_dir, or PACKER_CACHE_DIR"

_LOCKS = 1024
"""Number of lock files. A name's hash selects its lock, so all processes together download about this many files at
once."""

_SHARDS = ("documents", "blocks", "rows", "media")
_LISTED = (*_SHARDS, "model")
_DIGEST = re.compile(r"[-/]([0-9a-f]{12,20})\.arrow\Z")


def is_shard(name: str) -> bool:
    """Whether an object is named as shards of a cache are."""
    return name.startswith(tuple(f"{kind}/" for kind in _SHARDS)) and _DIGEST.search(name) is not None


@dataclass(frozen=True, slots=True)
class Mirror:
    """A folder that mirrors a bucket."""

    folder: Path
    bucket: Bucket

    def fetch(self, name: str) -> None:
        """Download a missing file, if the bucket has it; if another process is downloading it, wait for that."""
        target = self.folder / name
        with hint_at_disk(OTHER_DISK), self._locked(_lock_of(name)):
            if not target.exists():
                self._download(name, target)

    def remove_shards(self, *, but: Collection[str]) -> None:
        """Remove all local shards except those named."""
        for path in (path for kind in _SHARDS for path in (self.folder / kind).glob("*.arrow")):
            name = path.relative_to(self.folder).as_posix()
            if is_shard(name) and name not in but:
                path.unlink(missing_ok=True)

    def publish(self, name: str) -> None:
        """Upload a finished file of this folder, unless the bucket has it."""
        self.bucket.upload(name, self.folder / name)

    def publish_missing(self, names: Iterable[str]) -> None:
        """Upload those finished files of this folder that the bucket lacks, concurrently."""
        names = list(names)
        there = self.sizes(names)
        missing = [name for name in names if there[name] is None and (self.folder / name).exists()]
        with ThreadPoolExecutor(CONNECTIONS // 4, thread_name_prefix="packer-bucket") as pool:
            list(pool.map(self.publish, missing))

    def sizes(self, names: Iterable[str]) -> dict[str, int | None]:
        """Return the sizes of the bucket's objects, whatever is stored locally, with one listing per folder."""
        names = list(names)
        there: dict[str, int] = {}
        for folder in {name.partition("/")[0] for name in names} & {*_LISTED}:
            there |= self.bucket.sizes(folder)
        return {
            name: there.get(name) if name.partition("/")[0] in _LISTED else self.bucket.size(name) for name in names
        }

    def remove_damaged(self, digests: Mapping[str, str]) -> None:
        """Remove objects from the bucket whose sha256 differs from the one given by name."""

        def check(name: str) -> None:
            found = hashlib.sha256()
            with suppress(GoneError):
                for chunk in self.bucket.stream(name):
                    found.update(chunk)
                if found.hexdigest() != digests[name]:
                    self.bucket.remove([name])

        with ThreadPoolExecutor(CONNECTIONS // 4, thread_name_prefix="packer-bucket") as pool:
            list(pool.map(check, digests))

    def commit(self, name: str, before: bytes | None, content: bytes) -> None:
        """Swap the bucket's manifest `before`, or none, for a new one; the caller then writes the local copy.

        The local copy is not compared with it, as other commands may have updated that meanwhile.
        """
        if not self.bucket.swap(name, before, content):
            raise BusyError(
                f"{self.bucket.url}: another build committed a cache there meanwhile; this one did not",
                hint="what was finished is kept: run the same command again, and it sees the other cache",
            )

    def refresh(self, name: str) -> bytes | None:
        """Update the local copy of the manifest, and return its bytes; None if the bucket has none."""
        path = self.folder / name
        with self._locked(_lock_of(name)):
            found = self.bucket.read(name)
            if found is None:
                path.unlink(missing_ok=True)
                return None
            if self.kept(name) != found:
                write_atomically(path, found)
            return found

    def kept(self, name: str) -> bytes | None:
        """Return the bytes of a local copy; None if there is none."""
        path = self.folder / name
        with storage_errors("read", path), suppress(FileNotFoundError), open_regular(path) as file:
            return file.read()
        return None

    def _download(self, name: str, target: Path) -> None:
        """Download a file, if the bucket has it; call it with the file's lock held."""
        with suppress(GoneError), AtomicFile(target.parent) as file:
            for chunk in self.bucket.stream(name):
                file.write(chunk)
            sha256 = _DIGEST.search(name)
            if sha256 is not None and not file.digest.sha256.startswith(sha256[1]):
                raise CheckError(
                    f"{self.bucket.url}/{name} is damaged: its sha256 is {file.digest.sha256}",
                    hint=repair_hint(self.bucket.url),
                )
            file.commit(target.name)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Lock out other processes and threads."""
        path = self.folder / _OWN / name
        if not path.parent.is_dir():
            raise StorageError(
                f"the local copy of {self.bucket.url} in {self.folder} was removed while it was in use",
                hint="run the same command again: what it needs is downloaded again",
            )
        with locked(path):
            yield


def _lock_of(name: str) -> str:
    return f"fetching-{crc32(name.encode()) % _LOCKS}"


def mirror_of(folder: Path) -> Mirror | None:
    """Return the mirror in a folder; None if this process knows of none there, whatever the folder contains."""
    url = url_of(folder)
    return None if url is None else Mirror(folder, Bucket(url))


def make_mirror(folder: Path, url: str) -> Mirror:
    """Make a folder the mirror of a URL, for this process."""
    mirror = Mirror(folder, Bucket(url))
    with storage_errors("write into", folder):
        make_folder(folder)
        make_folder(folder / _OWN)
    show_as_url(folder, url)
    return mirror


@dataclass(frozen=True, slots=True)
class SentFolder:
    """The folder of a cache, as one process sends it to another, which need not know what it mirrors."""

    folder: Path
    url: str | None
    probe: Path | None = None
    """A file that is in the folder now, which shows on another machine that it is the same one."""

    @classmethod
    def of(cls, folder: Path) -> Self:
        return cls(folder, url_of(folder))

    @classmethod
    @contextmanager
    def to_machines(cls, folder: Path) -> Iterator[Self]:
        """Provide a folder for other machines, which see the same one, or have a copy of the bucket each."""
        with ExitStack() as held:
            url, probe = url_of(folder), None
            if url is None:
                probe = held.enter_context(AtomicFile(folder / PRIVATE, below=folder)).path
            yield cls(folder, url, probe)

    def arrive(self) -> Path:
        """Return the folder, after making it here what it is there."""
        if self.url is not None:
            make_mirror(self.folder, self.url)
        if self.probe is not None and not self.probe.exists():
            raise UsageError(
                f"node {socket.gethostname()} does not see {self.folder}",
                hint="the cache must lie on a file system that all nodes have under the same absolute path",
            )
        return self.folder
