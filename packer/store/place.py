"""Where on this machine is what a name stands for: the folder of a cache or a copy of it; a file of rows in a bucket.

A folder mirrors a bucket only in a process that was given its URL, and in those that this process hands the URL to.
Nothing in a folder makes it a mirror, since a folder may come from anybody. The folder for copies is the user's own.

An object of rows is read in the version that was listed. A build on one machine makes copies first, as it reads all of
them more than once. The nodes of a cluster fetch the bytes of their partitions alone, except for tables, of which a
piece cannot be decoded without what is before it.
"""

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from glob import has_magic
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Self, TypeVar

from packer.display import show_as, url_of
from packer.errors import CheckError, InputError, UsageError
from packer.host.files import cache_dir, open_regular, storage_errors
from packer.hub import pin, snapshot
from packer.names import SCHEME, HubName, bucket_url, data_name, fits, shown
from packer.store.bucket import CONNECTIONS, Bucket, GoneError
from packer.store.files import MIRRORED, CacheFiles
from packer.store.folder import PRIVATE, AtomicFile, make_folder
from packer.store.manifest import MANIFEST_NAME, decode_manifest, read_manifest

T = TypeVar("T")

_CHUNK_BYTES = 2**20


def cache_place(name: Path | str, *, keep_in: Path | str | None = None) -> Path:
    """Return the folder of a cache.

    For a cache in a bucket, ``s3://BUCKET/FOLDER``, that is a local mirror with the current manifest, in `keep_in` or
    packer's folder in the user's cache; shards are downloaded on first access. For one on the Hub,
    ``hf://datasets/ORG/NAME[@REVISION][/FOLDER]``, all files that its manifest names and the Hub's client has not
    cached are downloaded and checked against the manifest.
    """
    url = bucket_url(name)
    if url is not None:
        mirror = make_mirror(own_folder(url, "caches", keep_in), url)
        _refresh(mirror, url)
        return mirror.folder
    if keep_in is not None:
        raise UsageError(f"{name} is not a cache in a bucket: cache_dir is for caches in buckets")
    on_hub = data_name(re.sub(r"\Ahf:/(?!/)", SCHEME, os.fspath(name)))  # a Path has lost one of the two slashes
    return Path(name) if on_hub is None else _fetched(pin(on_hub)[0])


@contextmanager
def fresh_place(name: Path | str) -> Iterator[Path]:
    """Provide the folder of a cache; for one in a bucket, a new copy that is removed with the context."""
    url = bucket_url(name)
    if url is None:
        yield cache_place(name)
        return
    root = cache_dir()
    with storage_errors("write into", root):
        root.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="verify-", dir=root))
    try:
        _refresh(make_mirror(folder, url), url)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        show_as(folder, None)


def build_place(name: Path | str, *, is_dry: bool = False) -> Path:
    """Return the folder to build in for an address: of a bucket, a mirror with the current manifest."""
    url = bucket_url(shown(Path(name)))
    if url is None:
        return Path(name)
    mirror = make_mirror(own_folder(url, "builds"), url)
    mirror.refresh(MANIFEST_NAME)
    if not is_dry:
        Bucket(url).refuse_unconditional()
    return mirror.folder


def _refresh(mirror: CacheFiles, url: str) -> None:
    """Download the current manifest, and remove downloaded shards that it does not name."""
    before, content = mirror.refresh(MANIFEST_NAME)
    if content is None:
        next(Bucket(url).listed(), None)  # says so if there is no such bucket
        raise InputError(
            f"{url} is not a cache, or its build did not finish: it has no {MANIFEST_NAME}",
            hint=f"packer build SOURCE... -o {url} makes one",
        )
    if before not in (None, content):
        mirror.remove_copies(but=decode_manifest(mirror.folder, content).named_files)


def own_folder(url: str, kind: str, keep_in: Path | str | None = None) -> Path:
    """Return packer's own folder for what a URL names."""
    return cache_dir(keep_in) / kind / sha256(url.encode()).hexdigest()[:32]


def _fetched(name: HubName) -> Path:
    """Return the folder of a cache on the Hub, with all files that its manifest names."""
    inside = PurePosixPath(name.path)
    folder = snapshot(name, [str(inside / MANIFEST_NAME)]) / inside
    files = CacheFiles(folder)
    if files.size(MANIFEST_NAME) is None:
        raise InputError(
            f"{name} is not a cache: it has no {MANIFEST_NAME}",
            hint="hf upload ORG/NAME CACHE --repo-type dataset puts a cache there; rows are what packer build takes",
        )
    digests = read_manifest(folder).digests
    missing = [file for file in digests if files.size(file) is None]
    if missing:
        snapshot(name, [str(inside / file) for file in missing])
    for file in missing:
        if files.size(file) is None:
            raise CheckError(f"{name} has no {file}", hint="hf upload ORG/NAME CACHE --repo-type dataset puts it there")
        found = files.sha256(file)
        if found != digests[file]:
            (folder / file).resolve().unlink()  # or the Hub's client would consider it downloaded
            (folder / file).unlink(missing_ok=True)
            raise CheckError(
                f"{name}: {file} is damaged: expected sha256 {digests[file]}, found {found}",
                hint="it is gone from the client's cache: the same command fetches it again",
            )
    return folder


def make_mirror(folder: Path, url: str) -> CacheFiles:
    """Make a folder the mirror of a URL, for this process."""
    with storage_errors("write into", folder):
        make_folder(folder)
        make_folder(folder / MIRRORED)
    show_as(folder, url)
    return CacheFiles(folder)


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
        url = url_of(folder)
        with AtomicFile(folder / PRIVATE, below=folder) if url is None else nullcontext() as probe:
            yield cls(folder, url, None if probe is None else probe.path)

    def arrive(self) -> Path:
        """Return the folder in this process: a mirror of the same URL, or what the sender sees under this path."""
        if self.url is not None:
            make_mirror(self.folder, self.url)
        if self.probe is not None and not self.probe.exists():
            raise UsageError(
                f"node {socket.gethostname()} does not see {self.folder}",
                hint="the cache must lie on a file system that all nodes have under the same absolute path",
            )
        return self.folder

    def making(self, make: Callable[[], T]) -> T:
        """Make something in the process to which the folder was sent, once the folder has arrived there."""
        self.arrive()
        return make()


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
        show_as(copy, self.url)
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
        """The path of the copy on this machine, another one for each version."""
        return own_folder(f"{self.url} {self.etag}", "inputs")


def objects_of(source: str) -> list[ObjectFile]:
    """Return the objects that a URL or a pattern such as ``s3://BUCKET/FOLDER/*.jsonl`` names, sorted by URL."""
    found = sorted(_named(source), key=lambda file: file.url)
    if not found:
        raise InputError(f"{source}: no object in the bucket has this name", hint="names are case-sensitive")
    return found


def copy_objects(files: Iterable[os.PathLike[str]]) -> None:
    """Copy objects to this machine; one that has not changed since is not copied again."""
    with ThreadPoolExecutor(CONNECTIONS // 4, thread_name_prefix="packer-copies") as pool:
        list(pool.map(os.fspath, files))


def _named(source: str) -> Iterator[ObjectFile]:
    url = bucket_url(source)
    assert url is not None, "asked for a URL"
    if not has_magic(url):
        root, _, name = url.rpartition("/")
        found = Bucket(root).find(name) if url.count("/") > 2 else None  # else it is a bucket alone
        if found is not None:
            yield ObjectFile(url, found.etag, found.num_bytes)
        elif next(Bucket(url).listed(), None) is not None:
            raise InputError(f"{url} is a folder", hint=f"'{url}/**/*.jsonl' names the files in it")
        return
    parts = url.split("/")
    first = next(number for number, part in enumerate(parts) if has_magic(part))
    root, pattern = "/".join(parts[:first]), "/".join(parts[first:])
    matches = [each for each in Bucket(root).listed() if each.name == pattern or fits(each.name, pattern)]
    exact = [each for each in matches if each.name == pattern]  # as of files: a name is taken before what it may match
    for each in exact or matches:
        yield ObjectFile(f"{root}/{each.name}", each.etag, each.num_bytes)
