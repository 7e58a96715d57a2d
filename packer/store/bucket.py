"""Objects of a bucket at an `s3://`, `gs://` or `az://` URL. obstore is imported here alone, and only for a URL.

What a store must do for packer: create an object only where there is none, and replace one only where it is still the
one that was read (If-None-Match and If-Match). Nothing is renamed, and no listing decides what is committed.
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
"""A `Path` made of a URL has one of the two slashes left."""

CONNECTIONS = 32
"""Requests at a time where there are many objects: most of each is waiting."""

_CHUNK_BYTES = 4 * 2**20
_TIMEOUT = "600s"
"""For a whole request; the library's 30 s end a shard of 256 MiB behind 8 MB a second."""

_RETRIES: Any = {"max_retries": 100, "retry_timeout": timedelta(minutes=1)}
"""A store that is started again takes some 20 seconds. The library's 10 tries may be over after 2."""

_owner: int | None = None
"""The process that uses the library, whose threads are not there in a process forked from it: that waits forever."""


def bucket_url(place: Path | str) -> str | None:
    """The URL that a place in a bucket has, without a slash at its end; None of anything else."""
    found = _URL.match(os.fspath(place))
    return None if found is None else f"{found['scheme']}://{found['rest'].rstrip('/')}"


def is_usable_here() -> bool:
    """Whether this process can ask a store; False where it was forked from one that did."""
    return _owner in (None, os.getpid())


@dataclass(frozen=True, slots=True)
class Found:
    """A small object as it was read."""

    content: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Bucket:
    """Objects by their names below a URL.

    Raises:
        UsageError: from any method, where obstore is not installed or the URL is none that it knows.
        StorageError: from any method, where the store refuses or cannot be reached. Requests are repeated for a minute
            before.

    """

    url: str

    def read(self, name: str) -> Found | None:
        """A whole object and its version; None where there is none."""
        with self._errors("read", name) as (obstore, store):
            try:
                result = obstore.get(store, name)
            except FileNotFoundError:
                return None
            return Found(bytes(result.bytes()), result.meta["e_tag"])

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Some small objects, many at a time, those that are there."""
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
        """Hand over an object in pieces; False where there is none.

        Args:
            name: of the object.
            write: takes the pieces.
            etag: the version that it must have.
            within: the bytes that are wanted: the first, and one past the last.

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
        """Some ranges of an object, each an offset and a number of bytes; those that lie close are one request.

        Raises:
            CheckError: there is no such object, or it ends before them.

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
        """An object of so many bytes as a file that asks for what is read of it."""
        return BucketFile(self, name, num_bytes)

    def etag(self, name: str) -> str | None:
        """Version of an object; None where there is none."""
        meta = self._head(name)
        return None if meta is None else str(meta["e_tag"])

    def size(self, name: str) -> int | None:
        """Bytes of an object; None where there is none."""
        meta = self._head(name)
        return None if meta is None else int(meta["size"])

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Bytes of every object below a folder, by name; a thousand a request."""
        return {name: size for name, size, _ in self.listed(folder)}

    def listed(self, folder: str = "") -> Iterator[tuple[str, int, str]]:
        """Name, bytes and version of every object below a folder, in no particular order."""
        with self._errors("list", folder) as (obstore, store):
            for batch in obstore.list(store, prefix=folder or None):
                yield from ((meta["path"], meta["size"], meta["e_tag"]) for meta in batch)

    def create(self, name: str, content: bytes | Path) -> bool:
        """Make an object where there is none of this name; False where there is one, which stays as it is."""
        with self._errors("write", name) as (obstore, store):
            try:
                obstore.put(store, name, content, mode="create")
            except obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def replace(self, name: str, content: bytes | Path) -> None:
        """Make an object, whatever is there."""
        with self._errors("write", name) as (obstore, store):
            obstore.put(store, name, content)

    def swap(self, name: str, before: bytes | None, content: bytes) -> bool:
        """Put an object in the place of another, compared with what is there in one step of the store's.

        Args:
            name: of the object.
            before: what must be there now; None: nothing.
            content: what is to be there.

        Returns:
            False where something else is there; True also where `content` already is, as after a request whose answer
            was lost

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
        """Remove some objects, where they are there."""
        with self._errors("remove", "") as (obstore, store):
            obstore.delete(store, list(names))

    def refuse_unconditional(self) -> None:
        """Try whether the store heeds conditions: without them two builds would overwrite each other unseen.

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
        except NotImplementedError:  # the library's own word for a store that has none
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
        """The library and the store; what they raise as packer's own errors."""
        if not is_usable_here():
            raise StorageError(f"{self.url}: this process was forked from one that reads it", hint="spawn it instead")
        obstore, store = _opened(self.url)
        try:
            yield obstore, store
        except (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError) as error:
            raise StorageError(
                f"cannot {action} {self.url}/{name}: {_first_line(error)}",
                hint="credentials are taken from the environment, such as AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
                "AWS_ENDPOINT_URL; see docs/how-to/object-storage.md",
            ) from error
        except (obstore.exceptions.BaseError, OSError) as error:
            raise StorageError(
                f"cannot {action} {self.url}/{name}: {_first_line(error)}",
                hint="run the same command again: what was finished is kept",
            ) from error


class BucketFile:
    """An object as a file, for libraries that read parts of one. What was asked for is kept; not for two threads."""

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
        """So many bytes, or those up to the end.

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


def _first_line(error: Exception) -> str:
    """Without the library's view of its own source."""
    return str(error).partition("\n")[0]


@lru_cache(maxsize=64)
def _opened(url: str) -> tuple[Any, Any]:
    global _owner  # noqa: PLW0603 - of the process, as the library's threads are
    try:
        import obstore  # noqa: PLC0415 - not installed where nobody needs it
        from obstore.store import from_url  # noqa: PLC0415 - as above
    except ImportError:
        raise UsageError(
            f"{url}: caches and inputs in buckets need obstore, which is not installed",
            hint='pip install "token-packer[cloud]"',
        ) from None
    _owner = os.getpid()
    try:
        # Options replace those of the environment; only an endpoint that says http:// is reached without encryption.
        client: Any = {"timeout": _TIMEOUT, "allow_http": True}
        return obstore, from_url(url, client_options=client, retry_config=_RETRIES)
    except (obstore.exceptions.BaseError, ValueError) as error:
        raise UsageError(f"{url}: {_first_line(error)}", hint="expected s3://BUCKET/FOLDER, gs:// or az://") from error
