"""Resolve the name of a cache to a folder: a local one, or a copy of a cache in a bucket or on the Hub."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from packer.errors import CheckError, InputError, UsageError, show_as_url
from packer.host.cache_dir import cache_dir
from packer.host.limits import hint_at_disk, path_errors, storage_errors
from packer.hub import SCHEME, HubName, data_name, pin, snapshot
from packer.names import bucket_url, refuse_address, shown
from packer.store.files import CacheFiles
from packer.store.folder import PRIVATE
from packer.store.manifest import MANIFEST_NAME, decode_manifest, read_manifest
from packer.store.mirror import OTHER_DISK, Mirror, is_shard, make_mirror, mirror_of

_MOST_NAME_BYTES = 200
"""Disks take names of up to 255 bytes."""


def cache_place(name: Path | str, *, keep_in: Path | str | None = None) -> Path:
    """Return the folder of a cache.

    For a cache in a bucket, ``s3://BUCKET/FOLDER``, that is a local mirror with the current manifest, in `keep_in` or
    packer's folder in the user's cache; shards are downloaded on first access. For one on the Hub,
    ``hf://datasets/ORG/NAME[@REVISION][/FOLDER]``, all files that its manifest names and the Hub's client has not
    cached are downloaded and checked against the manifest.
    """
    url = bucket_url(name)
    if url is not None:
        with hint_at_disk(OTHER_DISK):
            mirror = make_mirror(folder_of(url, "caches", keep_in), url)
            _refresh(mirror)
        return mirror.folder
    if keep_in is not None:
        raise UsageError(f"{name} is not a cache in a bucket: cache_dir is for caches in buckets")
    text = re.sub(r"\Ahf:/(?!/)", SCHEME, os.fspath(name))  # a Path has lost one of the two slashes
    hub = data_name(text)
    return Path(name) if hub is None else _fetched(pin(hub)[0])


@contextmanager
def checked_place(name: Path | str) -> Iterator[Path]:
    """Provide the folder of a cache that is to be verified; for a cache in a bucket, without any earlier downloads."""
    with fresh_place(name) as folder:
        if (mirror := mirror_of(folder)) is not None:
            _refresh(mirror)
        yield folder


@contextmanager
def fresh_place(name: Path | str) -> Iterator[Path]:
    """Provide the folder of a cache; for a cache in a bucket, an empty mirror that is removed with the context."""
    url = bucket_url(name)
    if url is None:
        yield cache_place(name)
        return
    root = cache_dir()
    with storage_errors("write into", root):
        root.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="verify-", dir=root))
    try:
        make_mirror(folder, url)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        show_as_url(folder, None)


def build_place(name: Path | str, *, is_dry: bool = False) -> Path:
    """Return the folder to build in, of a cache or empty: of a bucket, a mirror with the current manifest."""
    url = bucket_url(shown(Path(name)))
    if url is None:
        refuse_address(os.fspath(name), place="cache")
        _refuse_other_files(Path(name))
        return Path(name)
    mirror = make_mirror(folder_of(url, "builds"), url)
    if mirror.refresh(MANIFEST_NAME) is None:
        # A build that was interrupted at its start has put shards there, and no note yet that they are finished.
        other = next((name for name, _, _ in mirror.bucket.listed() if not is_shard(name)), None)
        is_foreign = other is not None and not any(mirror.bucket.listed(PRIVATE))
        if is_foreign and mirror.refresh(MANIFEST_NAME) is None:  # else another build has committed meanwhile
            raise UsageError(
                f"{url} contains other objects and is not a cache: {other}", hint="choose a new or empty one with -o"
            )
    if not is_dry:
        mirror.bucket.refuse_unconditional()
    return mirror.folder


def _refuse_other_files(folder: Path) -> None:
    with path_errors():
        if not folder.is_dir() and (folder.exists() or folder.is_symlink()):
            what = "a file" if folder.exists() else "a link to nothing"
            raise UsageError(f"{folder} is {what}", hint="-o takes a folder")
        is_cache = (folder / MANIFEST_NAME).exists() or (folder / PRIVATE).exists()
        if folder.is_dir() and not is_cache and any(folder.iterdir()):
            raise UsageError(f"{folder} contains other files and is not a cache", hint="choose another folder with -o")


def _refresh(mirror: Mirror) -> None:
    """Download the current manifest, and remove downloaded shards that it does not name."""
    before = mirror.kept(MANIFEST_NAME)
    content = mirror.refresh(MANIFEST_NAME)
    if content is None:
        next(mirror.bucket.listed(), None)  # says so if there is no such bucket
        raise InputError(
            f"{mirror.bucket.url} is not a cache, or its build did not finish: it has no {MANIFEST_NAME}",
            hint=f"packer build SOURCE... -o {mirror.bucket.url} makes one",
        )
    if before not in (None, content):
        mirror.remove_shards(but=decode_manifest(mirror.folder, content).named_files)


def folder_of(url: str, kind: str, keep_in: Path | str | None = None) -> Path:
    """Return a folder for a URL, made of the URL's parts: `caches/s3/bucket/runs/cache`."""
    scheme, _, rest = url.partition("://")
    parts = rest.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise UsageError(f"{url}: expected names between its slashes", hint="such as s3://BUCKET/FOLDER")
    return cache_dir(keep_in).joinpath(kind, scheme, *map(_folder_name, parts))


def _folder_name(part: str) -> str:
    """Return a part of a URL as the name of a folder; of one that is too long, its beginning and a digest."""
    name = quote(part, safe=" +@")
    if len(name) <= _MOST_NAME_BYTES:
        return name
    beginning = re.sub(r"%[0-9A-F]?\Z", "", name[: _MOST_NAME_BYTES // 2])  # no part of an escape at its end
    return f"{beginning}-{sha256(part.encode()).hexdigest()[:32]}"


def _fetched(name: HubName) -> Path:
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
