"""Objects of a bucket at an `s3://`, `gs://` or `az://` URL.

obstore is imported only here, and only when a URL is used. Requirements on the store: create an object only if there is
none of that name, and replace one only if it is still the version that was read (If-None-Match and If-Match). Nothing
is renamed, and no commit depends on a listing.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from typing import Any

from packer.errors import CheckError, PackerError, StorageError, UsageError
from packer.names import BUCKETS

_URL = re.compile(rf"\A(?P<scheme>{'|'.join(BUCKETS)}):/{{1,2}}(?P<rest>[^/].*)\Z")
"""A `Path` made from a URL has lost one of its two slashes."""

CONNECTIONS = 32
"""Number of concurrent requests for many objects; most of each request is latency."""

_CHUNK_BYTES = 4 * 2**20
_TIMEOUT = "600s"
"""Timeout of a whole request. obstore's default of 30 s is too short for a shard of 256 MiB at 8 MB per second."""

_RETRIES: Any = {"max_retries": 100, "retry_timeout": timedelta(minutes=1)}
"""Restarting a store takes some 20 seconds; obstore's default of 10 retries may be used up after 2 seconds."""

_owner: int | None = None
"""Id of the process that uses obstore. In a process forked from it, obstore's threads do not exist, and a request would
hang forever."""


def bucket_url(place: Path | str) -> str | None:
    """Return the URL of a place in a bucket, without a trailing slash; None for anything else."""
    found = _URL.match(os.fspath(place))
    return None if found is None else f"{found['scheme']}://{found['rest'].rstrip('/')}"


def is_usable_here() -> bool:
    """Whether this process can send requests; False if it was forked from one that did."""
    return _owner in (None, os.getpid())


@dataclass(frozen=True, slots=True)
class VersionedContent:
    """Content and version of a small object."""

    content: bytes
    etag: str


_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and others",
    "gs": "GOOGLE_SERVICE_ACCOUNT and others",
    "az": "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY and others",
}


@dataclass(frozen=True, slots=True)
class Bucket:
    """Objects by their names below a URL.

    Raises:
        UsageError: from any method, if obstore is not installed or the URL is not one that it supports.
        StorageError: from any method, if the store denies a request or cannot be reached. Requests are retried for a
            minute first.

    """

    url: str

    def read(self, name: str) -> VersionedContent | None:
        """Read a whole object and its version; None if it does not exist."""
        with self._errors("read", name) as (obstore, store):
            try:
                result = obstore.get(store, name)
            except FileNotFoundError:
                return None
            return VersionedContent(bytes(result.bytes()), result.meta["e_tag"])

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Read small objects concurrently; yield name and content of those that exist."""
        names = list(names)
        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="packer-bucket") as pool:
            for name, found in zip(names, pool.map(self.read, names), strict=True):
                if found is not None:
                    yield name, found.content

    def download(
        self,
        name: str,
        write: Callable[[memoryview], Any],
        *,
        etag: str | None = None,
        within: tuple[int, int] | None = None,
    ) -> bool:
        """Pass the content of an object to `write` in chunks; return False if it does not exist.

        Args:
            name: of the object.
            write: receives the chunks.
            etag: required version; return False if the object has another one.
            within: range of bytes to download: the first, and one past the last.

        """
        options = {"if_match": etag, "range": within}
        with self._errors("read", name) as (obstore, store):
            try:
                result = obstore.get(store, name, options={key: value for key, value in options.items() if value})
            except (FileNotFoundError, obstore.exceptions.PreconditionError):
                return False
            for chunk in result.stream(min_chunk_size=_CHUNK_BYTES):
                write(memoryview(chunk))
        return True

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ranges of an object, each an offset and a length in bytes; neighbouring ranges share a request.

        Raises:
            CheckError: the object does not exist, or is too short.

        """
        starts, lengths = [start for start, _ in ranges], [length for _, length in ranges]
        with self._errors("read", name) as (obstore, store):
            try:
                found = [bytes(each) for each in obstore.get_ranges(store, name, starts=starts, lengths=lengths)]
            except FileNotFoundError:
                found = []
        if [len(each) for each in found] != lengths:
            raise CheckError(f"{self.url}/{name} is missing or truncated")
        return found

    def opened(self, name: str, num_bytes: int) -> "BucketFile":
        """Return an object of a known size as a file that downloads what is read of it."""
        return BucketFile(self, name, num_bytes)

    def etag(self, name: str) -> str | None:
        """Return the version of an object; None if it does not exist."""
        meta = self._head(name)
        return None if meta is None else str(meta["e_tag"])

    def size(self, name: str) -> int | None:
        """Return the size of an object in bytes; None if it does not exist."""
        meta = self._head(name)
        return None if meta is None else int(meta["size"])

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the size in bytes of every object below a folder, by name; a request lists a thousand."""
        return {name: size for name, size, _ in self.listed(folder)}

    def listed(self, folder: str = "") -> Iterator[tuple[str, int, str]]:
        """Yield name, size in bytes and version of every object below a folder, in no particular order."""
        with self._errors("list", folder) as (obstore, store):
            for batch in obstore.list(store, prefix=folder or None):
                yield from ((meta["path"], meta["size"], _quoted(meta["e_tag"])) for meta in batch)

    def create(self, name: str, content: bytes | Path) -> bool:
        """Create an object unless one of this name exists; return False if one does, and leave it alone."""
        with self._errors("write", name) as (obstore, store):
            try:
                obstore.put(store, name, content, mode="create")
            except obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def replace(self, name: str, content: bytes | Path) -> None:
        """Write an object, replacing any existing one."""
        with self._errors("write", name) as (obstore, store):
            obstore.put(store, name, content)

    def swap(self, name: str, before: bytes | None, content: bytes) -> bool:
        """Replace an object by compare-and-swap.

        Args:
            name: of the object.
            before: the expected current content; None expects no object.
            content: the new content.

        Returns:
            False if the object has other content; True also if it already has the new content, as after a request whose
            response was lost

        """
        found = self.read(name)
        if found is not None and found.content == content:
            return True
        if (None if found is None else found.content) != before:
            return False
        with self._errors("write", name) as (obstore, store):
            try:
                obstore.put(store, name, content, mode="create" if found is None else {"e_tag": found.etag})
            except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
                pass
            else:
                return True
        found = self.read(name)
        return found is not None and found.content == content

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; names that do not exist are ignored."""
        with self._errors("remove", "") as (obstore, store):
            obstore.delete(store, list(names))

    def refuse_unconditional(self) -> None:
        """Test that the store honours conditional writes; without them, concurrent builds overwrite each other.

        Raises:
            StorageError: it does not.

        """
        name = f".packer/probe-{token_hex(8)}"
        try:
            self.create(name, b"1")
            heeds = not self.create(name, b"2")
            with self._errors("write", name) as (obstore, store):
                try:
                    obstore.put(store, name, b"3", mode={"e_tag": '"of-no-object"'})
                except obstore.exceptions.PreconditionError:
                    pass
                else:
                    heeds = False
        except NotImplementedError:  # obstore's error for stores without conditional writes
            heeds = False
        finally:
            with suppress(PackerError):
                self.remove([name])
        if not heeds:
            raise StorageError(
                f"{self.url}: this store ignores conditions on writes (If-None-Match, If-Match)",
                hint="packer cannot tell there whether another build committed: build into a folder, and copy it",
            )

    def _head(self, name: str) -> Any:
        with self._errors("read", name) as (obstore, store):
            try:
                return obstore.head(store, name)
            except FileNotFoundError:
                return None

    @contextmanager
    def _errors(self, action: str, name: str) -> Iterator[tuple[Any, Any]]:
        """Yield obstore and the store, converting their errors to packer's own."""
        if not is_usable_here():
            raise StorageError(f"{self.url}: this process was forked from one that reads it", hint="spawn it instead")
        obstore, store = _opened(self.url)
        try:
            yield obstore, store
        except (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError) as error:
            raise StorageError(
                f"cannot {action} {self.url}/{name}: {_first_line(error)}",
                hint=f"credentials are taken from the environment: {_CREDENTIALS[self.url.partition(':')[0]]}; "
                "see docs/how-to/object-storage.md",
            ) from error
        except (obstore.exceptions.BaseError, OSError) as error:
            raise StorageError(
                f"cannot {action} {self.url}/{name}: {_first_line(error)}",
                hint="run the same command again: what was finished is kept",
            ) from error


class BucketFile:
    """An object as a file, for libraries that read parts of one. Keeps what it downloaded; not thread-safe."""

    _BLOCK_BYTES = 2**17

    def __init__(self, bucket: Bucket, name: str, num_bytes: int) -> None:
        self._bucket, self._name, self._num_bytes = bucket, name, num_bytes
        self._blocks: dict[int, bytes] = {}
        self._place = 0
        self.closed = False

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._num_bytes}[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, or all up to the end.

        Raises:
            CheckError: there is no such object, or it ends before them.

        """
        first, whole = self._place, self._BLOCK_BYTES
        end = self._num_bytes if size < 0 else min(first + size, self._num_bytes)
        numbers = range(first // whole, -(-end // whole)) if first < end else range(0)
        missing = [number for number in numbers if number not in self._blocks]
        if missing:  # neighbours are one request
            ranges = [(number * whole, min(whole, self._num_bytes - number * whole)) for number in missing]
            self._blocks.update(zip(missing, self._bucket.read_ranges(self._name, ranges), strict=True))
        content = b"".join(self._blocks[number] for number in numbers)
        self._place = max(first, end)
        return content[first % whole : first % whole + end - first] if numbers else b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def _quoted(etag: str) -> str:
    """Return a version in the form that headers have: Azure's listings leave out its quotation marks."""
    return etag if etag.endswith('"') else f'"{etag}"'


def _first_line(error: Exception) -> str:
    """Return the first line of the message, which obstore continues with an excerpt of its own source."""
    return str(error).partition("\n")[0]


@lru_cache(maxsize=64)
def _opened(url: str) -> tuple[Any, Any]:
    global _owner  # noqa: PLW0603 - per process, like obstore's threads
    try:
        import obstore  # noqa: PLC0415 - optional dependency
        from obstore.store import from_url  # noqa: PLC0415 - as above
    except ImportError:
        raise UsageError(
            f"{url}: caches and inputs in buckets need obstore, which is not installed",
            hint='pip install "token-packer[cloud]"',
        ) from None
    _owner = os.getpid()
    # These options override the environment; allow_http matters only for endpoints with http:// in their URL.
    options: Any = {"client_options": {"timeout": _TIMEOUT, "allow_http": True}, "retry_config": _RETRIES}
    scheme, _, rest = url.partition("://")
    bucket, _, folder = rest.partition("/")
    try:
        if re.search("[#?%]", bucket):
            raise ValueError(f"'{bucket}' is not the name of a bucket")
        # Within a folder #, ? and % are letters like any other, but from_url would take them for parts of a web address.
        store: Any = from_url(f"{scheme}://{bucket}", **options)
        return obstore, type(store)(config=store.config, prefix=folder or None, **options)
    except (obstore.exceptions.BaseError, ValueError) as error:
        raise UsageError(f"{url}: {_first_line(error)}", hint="expected s3://BUCKET/FOLDER, gs:// or az://") from error
