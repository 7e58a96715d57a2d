"""Inputs in a bucket: list objects, and download them to local copies keyed by URL and object version."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from glob import has_magic
from hashlib import sha256
from pathlib import Path

from packer.errors import InputError, stands_for
from packer.names import fits
from packer.source.file_bytes import changed
from packer.source.partition import Partition
from packer.store.bucket import CONNECTIONS, Bucket, bucket_url
from packer.store.folder import AtomicFile
from packer.store.place import folder_of


def fetch_inputs(source: str) -> list[tuple[str, Path]]:
    """Return URL and local copy of each object that a URL or a pattern such as ``s3://BUCKET/FOLDER/*.jsonl`` names.

    Sorted by URL. An object that has not changed since it was last downloaded is not downloaded again.

    Raises:
        InputError: no object matches, or one changed while it was downloaded.
        UsageError: obstore is not installed.
        StorageError: the bucket or the disk cannot be used.

    """
    found = sorted(_named(source))
    if not found:
        raise InputError(f"{source}: no object in the bucket has this name", hint="names are told apart by case")
    with ThreadPoolExecutor(CONNECTIONS // 4, thread_name_prefix="packer-inputs") as pool:
        return list(zip((url for url, _ in found), pool.map(lambda each: _fetched(*each), found), strict=True))


def fetch_copy(name: str, copy: Path) -> None:
    """Download an input whose copy is on another machine; do nothing if the copy is here or the input is in no bucket.

    Raises:
        InputError: the object has changed or was removed.
        UsageError, StorageError: as :func:`fetch_inputs`.

    """
    if bucket_url(name) is None:
        return
    stands_for(copy, name)
    if not copy.exists() and dict(fetch_inputs(name)).get(name) != copy:
        raise changed(name, "the object in the bucket is another one now")


@contextmanager
def local_rows(name: str, partition: Partition) -> Iterator[Partition]:
    """Yield a partition that can be read from the local disk.

    For uncompressed JSON lines in a bucket that have no local copy, only the partition's bytes are downloaded, to a
    temporary file that is removed with the context.

    Raises:
        InputError, UsageError, StorageError: as :func:`fetch_copy`.

    """
    copy = partition.path
    if copy.exists() or bucket_url(name) is None or partition.codec is not None or partition.format != "jsonl":
        fetch_copy(name, copy)
        yield partition
        return
    bucket, key = _parent(name)
    etag = bucket.etag(key)
    # Include the byte before them, as bytes at the start of a file would be checked for a byte order mark.
    first = max(0, partition.start - 1)
    with AtomicFile(copy.parent) as file:
        stands_for(file.path, name)
        is_same = etag is not None and _place(name, etag) == copy
        if not is_same or not bucket.download(key, file.write, etag=etag, within=(first, partition.stop)):
            raise changed(name, "the object in the bucket is another one now")
        file.flush()
        yield replace(partition, path=file.path, start=partition.start - first, stop=partition.stop - first)


def refuse_changed_object(url: str, copy: Path) -> None:
    """Check that an object is still the version of which the copy was made.

    Raises:
        InputError: the object has changed or was removed.

    """
    bucket, name = _parent(url)
    etag = bucket.etag(name)
    if etag is None or _place(url, etag) != copy:
        raise changed(url, "the object in the bucket is another one now" if etag else "it was removed from the bucket")


def _named(source: str) -> Iterator[tuple[str, str]]:
    """Yield the URL and version (ETag) of each object that a source matches."""
    url = bucket_url(source)
    assert url is not None, "asked for a URL"
    if not has_magic(url):
        bucket, name = _parent(url)
        etag = bucket.etag(name)
        yield from [] if etag is None else [(url, etag)]
        return
    parts = url.split("/")
    first = next(number for number, part in enumerate(parts) if has_magic(part))
    root, pattern = "/".join(parts[:first]), "/".join(parts[first:])
    for name, _, etag in Bucket(root).listed():
        if fits(name, pattern):
            yield f"{root}/{name}", etag


def _fetched(url: str, etag: str) -> Path:
    place = _place(url, etag)
    stands_for(place, url)
    if not place.exists():
        bucket, name = _parent(url)
        with AtomicFile(place.parent) as file:
            if not bucket.download(name, file.write, etag=etag):
                raise changed(url, "the object in the bucket is another one now")
            file.commit(place.name)
    return place


def _place(url: str, etag: str) -> Path:
    """Return the path of an object's local copy; its file name is kept, as the suffix tells the format."""
    folder = folder_of(url, "inputs")
    return folder / sha256(etag.encode()).hexdigest()[:16] / folder.name


def _parent(url: str) -> tuple[Bucket, str]:
    root, _, name = url.rpartition("/")
    return Bucket(root), name
