"""A folder of this machine that stands for a cache in a bucket: the rest of packer sees a folder.

`.mirror/origin` in it names the URL. A file that is not in the folder is fetched when it is first asked for, whole; a
shard's name holds the beginning of its sha256, which is compared on the way. So processes share what one of them
fetched, a second run fetches nothing, and rows are reached through maps of files as ever.

A reader's mirror holds at most so many bytes of shards if it was told to, those that are being fetched counted from
their first byte on. The shard that was wanted first leaves first. Only shards are removed, by their names, whatever
else lies there. Removing a file that is mapped takes nothing from who maps it. A builder's mirror is where it works:
each finished shard is put into the bucket under its own name, if none is there yet, and then its journal entry, so that
another machine finds both; the manifest takes the place of the one that the build began from, or of none. Nothing is
removed from a bucket: whether somebody else is about to name an object cannot be known.
"""

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import msgspec

from packer.errors import BusyError, CheckError, PackerError, StorageError, stands_for
from packer.limits import storage_errors
from packer.store.bucket import CONNECTIONS, Bucket, bucket_url, is_usable_here
from packer.store.folder import PRIVATE, TEMPORARY_PREFIX, AtomicFile, inside, make_folder, write_atomically

_OWN = ".mirror"
"""Folder within a mirror for what is not part of the cache."""

_ORIGIN = f"{_OWN}/origin"
_LOCKS = 1024
"""Files that are locked while one is fetched: as many are fetched at a time by all processes, or a few less."""

_LOOK_S = 0.05
"""Between two looks whether others have made room."""

_EVICTED = ("documents", "blocks", "rows")
_LISTED = (*_EVICTED, "model")
_DIGEST = re.compile(r"-([0-9a-f]{12})\.arrow\Z")


class _Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    most_bytes: int | None


class _UnwantedError(Exception):
    """Ends a fetch that nobody waits for any more."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """A folder that stands for a bucket.

    Raises:
        StorageError: from any method, where the store or the disk refuses.

    """

    folder: Path
    bucket: Bucket
    most_bytes: int | None
    """Of fetched shards; None: any number."""

    def fetch(self, name: str) -> None:
        """Fetch a file that is not here, if the bucket has it; where somebody else fetches it, wait for that.

        Raises:
            CheckError: its bytes are not those its name was made from.

        """
        target = inside(self.folder, name) if not name.startswith(f"{PRIVATE}/") else self.folder / name
        if not is_usable_here():
            _fetch_in_another_process(self.folder, name)
            return
        with self._locked(_lock_of(name)):
            if not target.exists():
                self._download(name, target, lambda: True)

    def fetch_ahead(self, name: str, is_wanted: Callable[[], bool]) -> bool:
        """Fetch a shard that will be asked for, unless it is here; False where somebody else seems to be fetching it.

        Args:
            name: of the shard.
            is_wanted: asked all the while; once it says no, nothing is left of what was fetched.

        Raises:
            CheckError: as :meth:`fetch`.

        """
        target = inside(self.folder, name)
        if not is_usable_here():
            _fetch_in_another_process(self.folder, name)
            return True
        with self._locked(_lock_of(name), wait=False) as is_alone, suppress(_UnwantedError):
            if is_alone and not target.exists():
                self._download(name, target, is_wanted)
        return is_alone or target.exists()

    def keep(self, names: Iterable[str]) -> list[str]:
        """Let these shards leave after all others, the first of them first; returns those that are not here."""
        now, missing = time.time_ns(), []
        for number, name in enumerate(names):
            try:
                os.utime(self.folder / name, ns=(now + number, now + number))
            except FileNotFoundError:
                missing.append(name)
        return missing

    def remove_shards(self, *, but: Collection[str]) -> None:
        """Remove the shards that are here, but for some names."""
        for path, _ in self._shards():
            if path.relative_to(self.folder).as_posix() not in but:
                path.unlink(missing_ok=True)

    def publish(self, names: Iterable[str]) -> None:
        """Put finished files of this folder into the bucket, in their order; what is there stays."""
        for name in names:
            self.bucket.create(name, self.folder / name)

    def publish_missing(self, names: Iterable[str]) -> None:
        """Put those finished files of this folder into the bucket that it does not have."""
        names = list(names)
        there = self.sizes(names)
        missing = [name for name in names if there[name] is None and (self.folder / name).exists()]
        with ThreadPoolExecutor(CONNECTIONS // 4, thread_name_prefix="packer-bucket") as pool:
            list(pool.map(lambda name: self.publish([name]), missing))

    def sizes(self, names: Iterable[str]) -> dict[str, int | None]:
        """Bytes of objects in the bucket, whatever is here: of each folder one listing, a thousand a request."""
        names = list(names)
        there: dict[str, int] = {}
        for folder in {name.partition("/")[0] for name in names} & {*_LISTED}:
            there |= self.bucket.sizes(folder)
        return {
            name: there.get(name) if name.partition("/")[0] in _LISTED else self.bucket.size(name) for name in names
        }

    def remove_damaged(self, digests: Mapping[str, str]) -> None:
        """Remove objects from the bucket whose sha256 is not the one that is known of them.

        Args:
            digests: sha256 of each file by its name.

        """

        def check(name: str) -> None:
            found = hashlib.sha256()
            if self.bucket.download(name, found.update) and found.hexdigest() != digests[name]:
                self.bucket.remove([name])

        with ThreadPoolExecutor(CONNECTIONS // 4, thread_name_prefix="packer-bucket") as pool:
            list(pool.map(check, digests))

    def commit(self, name: str, content: bytes) -> None:
        """Put the manifest in the place of the one that this folder holds; the folder's own is written after it.

        Raises:
            BusyError: another build put one there meanwhile.

        """
        path = self.folder / name
        before = path.read_bytes() if path.exists() else None
        self._noted(name).unlink(missing_ok=True)
        if not self.bucket.swap(name, before, content):
            raise BusyError(
                f"{self.bucket.url}: another build committed a cache there meanwhile; this one did not",
                hint="what was finished is kept: the same command finds it, and sees the other cache",
            )

    def refresh(self, name: str) -> bytes | None:
        """Make a small file as it is in the bucket now, and return its bytes; None where there is none."""
        path, noted = self.folder / name, self._noted(name)
        with self._locked(_lock_of(name)):
            etag = self.bucket.etag(name)
            if etag is None:
                path.unlink(missing_ok=True)
                noted.unlink(missing_ok=True)
                return None
            if path.exists() and noted.exists() and noted.read_text("utf-8") == etag:
                return path.read_bytes()
            found = self.bucket.read(name)
            if found is None:
                return None
            noted.unlink(missing_ok=True)
            write_atomically(path, found.content)
            write_atomically(noted, found.etag.encode())
            return found.content

    def _noted(self, name: str) -> Path:
        """Where the version is noted that a file has in the bucket."""
        return self.folder / _OWN / f"{name}.etag"

    def _download(self, name: str, target: Path, is_wanted: Callable[[], bool]) -> None:
        """Fetch a file, if the bucket has it; under its lock."""
        with self._opened(name, target.parent, is_wanted) as file:

            def write(chunk: memoryview) -> None:
                if not is_wanted():
                    raise _UnwantedError
                file.write(chunk)

            if not self.bucket.download(name, write):
                return
            sha256 = _DIGEST.search(name)
            if sha256 is not None and not file.digest.sha256.startswith(sha256[1]):
                raise CheckError(
                    f"{self.bucket.url}/{name} is damaged: its sha256 is {file.digest.sha256}",
                    hint=f"packer build -o {self.bucket.url} --repair makes it again",
                )
            file.commit(target.name)
            self.keep([name])  # now, as the kernel's own times are of some milliseconds

    def _opened(self, name: str, folder: Path, is_wanted: Callable[[], bool]) -> AtomicFile:
        """A file to fetch into; of a shard, where their bytes are bounded, once there is room for it."""
        if name.partition("/")[0] not in _EVICTED:
            return AtomicFile(folder)
        num_bytes = 0 if self.most_bytes is None else self.bucket.size(name) or 0
        while True:
            with self._locked("room"):
                if self.most_bytes is None or self._make_room(self.most_bytes, num_bytes):
                    file = AtomicFile(folder)
                    file.reserve(num_bytes)
                    return file
            if not is_wanted():
                raise _UnwantedError
            time.sleep(_LOOK_S)

    def _make_room(self, most_bytes: int, num_bytes: int) -> bool:
        """Remove the shards that were wanted first until so many bytes more have room.

        Returns:
            False where only those that are being fetched are in the way: nothing is removed then

        Raises:
            StorageError: so many never have room.

        """
        if num_bytes > most_bytes:
            raise StorageError(
                f"{self.bucket.url}: a shard of {num_bytes:,} bytes has no room in the {most_bytes:,} bytes that its "
                f"shards may take in {self.folder}",
                hint="a larger cache_bytes, or PACKER_CACHE_BYTES",
            )
        underway = self._underway()
        free = most_bytes - num_bytes - sum(underway.values())
        if free < 0:
            return False
        # What got its name since it was counted is not counted twice.
        shards = [(path, status) for path, status in self._shards() if status.st_ino not in underway]
        too_many = sum(status.st_size for _, status in shards) - free
        for path, status in sorted(shards, key=lambda shard: shard[1].st_mtime_ns):
            if too_many <= 0:
                break
            path.unlink(missing_ok=True)
            too_many -= status.st_size
        return True

    def _shards(self) -> Iterator[tuple[Path, os.stat_result]]:
        """The shards that are here."""
        for path in (path for kind in _EVICTED for path in (self.folder / kind).glob("*.arrow")):
            with suppress(FileNotFoundError):
                if _DIGEST.search(path.name):
                    yield path, path.stat()

    def _underway(self) -> dict[int, int]:
        """Inode and bytes of the shards that are being fetched; what processes left that were killed is removed."""
        found = {}
        for path in (path for kind in _EVICTED for path in (self.folder / kind).glob(f"{TEMPORARY_PREFIX}*")):
            with suppress(FileNotFoundError), path.open("rb") as file:
                if _flock(file.fileno(), wait=False):
                    path.unlink()
                else:
                    status = os.fstat(file.fileno())
                    found[status.st_ino] = status.st_size
        return found

    @contextmanager
    def _locked(self, name: str, *, wait: bool = True) -> Iterator[bool]:
        """Keep other processes and threads out; without `wait` say whether none is in, and go on in any case."""
        path = self.folder / _OWN / name
        with storage_errors("lock", path):
            make_folder(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with storage_errors("lock", path):
                is_alone = _flock(descriptor, wait=wait)
            yield is_alone
        finally:
            # Not only by closing it: a process that was forked meanwhile has it open too, and would keep the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _lock_of(name: str) -> str:
    return f"fetching-{crc32(name.encode()) % _LOCKS}"


def _flock(descriptor: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def mirror_of(folder: Path) -> Mirror | None:
    """The mirror that a folder is; None of a folder that stands for nothing else."""
    try:
        origin = msgspec.json.decode((folder / _ORIGIN).read_bytes(), type=_Origin)
    except (OSError, msgspec.MsgspecError):
        return None
    stands_for(folder, origin.url)
    return Mirror(folder, Bucket(origin.url), origin.most_bytes)


def make_mirror(folder: Path, url: str, *, most_bytes: int | None = None) -> Mirror:
    """Let a folder stand for a URL.

    Raises:
        StorageError: the disk refuses.

    """
    content = msgspec.json.encode(_Origin(url, most_bytes))
    if not (folder / _ORIGIN).exists() or (folder / _ORIGIN).read_bytes() != content:
        write_atomically(folder / _ORIGIN, content)
    stands_for(folder, url)
    return Mirror(folder, Bucket(url), most_bytes)


def shown(folder: Path) -> str:
    """The name of a cache for people: its URL, or that of the bucket that a folder stands for, or the folder."""
    mirror = mirror_of(folder)
    return bucket_url(folder) or str(folder) if mirror is None else mirror.bucket.url


class _Asked(msgspec.Struct, frozen=True):
    """What a process that was forked from one that reads buckets, as the workers of torch's DataLoader are, asks of
    another one.
    """

    folder: str
    fetch: str | None = None
    ranges: Sequence[tuple[str, list[tuple[int, int]]]] = ()


def _fetch_in_another_process(folder: Path, name: str) -> None:
    _in_another_process(_Asked(os.fspath(folder), fetch=name))


def ranges_in_another_process(folder: Path, wanted: Sequence[tuple[str, list[tuple[int, int]]]]) -> Iterator[bytes]:
    """Of each object of a mirror's bucket its ranges, joined, where this process cannot ask a bucket.

    Raises:
        StorageError: an object is not there, ends before them or cannot be read.

    """
    content, start = _in_another_process(_Asked(os.fspath(folder), ranges=wanted)) if wanted else b"", 0
    for _, ranges in wanted:
        end = start + sum(size for _, size in ranges)
        yield content[start:end]
        start = end


def _in_another_process(asked: _Asked) -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "packer.store.mirror"],
        input=msgspec.json.encode(asked),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise StorageError(f"cannot read {asked.folder}: {done.stderr.decode('utf-8', 'replace').strip()[-2000:]}")
    return done.stdout


def _answer(asked: _Asked) -> None:
    mirror = mirror_of(Path(asked.folder))
    assert mirror is not None, "asked by one"
    if asked.fetch is not None:
        mirror.fetch(asked.fetch)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for parts in pool.map(lambda each: mirror.bucket.read_ranges(*each), asked.ranges):
            sys.stdout.buffer.writelines(parts)


if __name__ == "__main__":
    try:
        _answer(msgspec.json.decode(sys.stdin.buffer.read(), type=_Asked))
    except PackerError as error:
        sys.exit(error.message)
