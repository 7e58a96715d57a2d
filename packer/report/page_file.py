"""The file a page is written to: no input, no file of a cache, nothing but another page is lost to it."""

from pathlib import Path

from packer.errors import UsageError
from packer.limits import storage_errors
from packer.store.folder import AtomicFile

_MARK, _HEAD_BYTES = b'<meta name="generator" content="packer ', 512
"""What stands near the start of every page."""


def check_place(output: Path, *caches: Path | str) -> None:
    """Refuse a place where a page would take that of something else.

    Args:
        output: the file.
        caches: in which it must not be.

    Raises:
        UsageError: it is in a cache, or there is a file that is no page, or a folder.
        StorageError: what is there cannot be read.

    """
    place = output.resolve()
    for cache in caches:
        if place.is_relative_to(Path(cache).resolve()):
            raise UsageError(f"{output} is in the cache {cache}", hint="write the page beside it")
    if not place.exists():
        return
    if not place.is_file():
        raise UsageError(f"{output} is no file", hint="name the file of the page")
    with storage_errors("read", output), place.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head and _MARK not in head:
        raise UsageError(f"{output} is there, and is no page of packer", hint="name another file, or remove it")


def write_page(page: bytes, output: Path) -> None:
    """Write a page, complete or not at all.

    Raises:
        StorageError: the disk refuses.

    """
    with AtomicFile(output.parent) as file:
        file.write(page)
        file.commit(output.name)
