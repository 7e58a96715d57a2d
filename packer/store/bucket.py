"""Objects of a bucket at an `s3://`, `gs://` or `az://` URL.

obstore is imported only here, and only when a URL is used. Requirements on the store: create an object only if there is
none of that name, and replace one only if it is still the version that was read (If-None-Match and If-Match). Nothing
is renamed, and no commit depends on a listing.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple, TypeVar

from packer.display import shown_cause
from packer.errors import CheckError, PackerError, StorageError, UsageError
from packer.host.files import is_panic
from packer.names import credentials_hint

T = TypeVar("T")

_URL_HINT = "expected s3://BUCKET/FOLDER, gs:// or az://"

CONNECTIONS = 32
"""Number of concurrent requests for many objects; most of each request is latency."""

MAX_READ_BYTES = 2**30
"""Limit for an object that is read whole; a manifest may have as many bytes."""

_CHUNK_BYTES = 4 * 2**20
_PART_BYTES = 16 * 2**20
"""Size of the parts of a large upload, of which four are in memory. S3 allows 10,000 parts, so 160 GB."""

_TIMEOUT = "600s"
"""Timeout of a whole request. obstore's default of 30 s is too short for a shard of 256 MiB at 8 MB per second."""

_RETRIES: Any = {"max_retries": 100, "retry_timeout": timedelta(minutes=1)}
"""Restarting a store takes some 20 seconds; obstore's default of 10 retries may be used up after 2 seconds."""

_REPEATED_S = 60
"""How long a request is repeated once its connection has broken."""

_MOST_PAUSE_S = 5.0

_owner: int | None = None
"""Id of the process that uses obstore. In a process forked from it, obstore's threads do not exist, and a request would
hang forever."""


class GoneError(Exception):
    """An object does not exist, or not in the version that was asked for."""


class FoundObject(NamedTuple):
    """One version of an object, without its content."""

    name: str
    num_bytes: int
    etag: str
    """Identifies the version, as in headers of HTTP."""


_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound")

_METADATA = "169.254.169.254"
"""The address that gives machines of a cloud their credentials; it is asked if the environment has none."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Objects by their names below a URL.

    Raises:
        UsageError: from any method, if obstore is not installed or the URL is not one that it supports.
        StorageError: from any method, if the store denies a request or cannot be reached. Requests are retried for one
            to three minutes first.
    """

    url: str

    def read(self, name: str) -> bytes | None:
        """Read a whole object; None if it does not exist."""
        return self._with_version(name)[0]

    def _with_version(self, name: str) -> tuple[bytes | None, str]:
        def request(obstore: Any, store: Any) -> tuple[bytes | None, str]:
            try:
                result = obstore.get(store, name)
            except FileNotFoundError as error:
                if _NO_BUCKET.search(str(error)):
                    raise
                return None, ""
            if (num_bytes := result.meta["size"]) > MAX_READ_BYTES:
                raise CheckError(f"{self.url}/{name}: expected at most {MAX_READ_BYTES} bytes, found {num_bytes}")
            return bytes(result.bytes()), result.meta["e_tag"]

        return self._asked("read", name, request)

    def stream(self, name: str, *, etag: str | None = None, within: tuple[int, int] | None = None) -> Iterator[bytes]:
        """Yield the content of an object in chunks: of the version `etag`, the bytes from one up to another.

        Raises:
            GoneError: there is no such object, or not in this version, which may be said after some chunks.
        """
        options: dict[str, Any] = {key: value for key, value in (("if_match", etag), ("range", within)) if value}
        answer: tuple[Any, Iterator[Any]] | None = None

        def request(obstore: Any, store: Any) -> tuple[bytes, int]:
            nonlocal answer
            if answer is None:
                try:
                    result = obstore.get(store, name, options=options)
                except (FileNotFoundError, obstore.exceptions.PreconditionError):
                    raise GoneError from None
                answer = result, iter(result.stream(min_chunk_size=_CHUNK_BYTES))
            (result, chunks), answer = answer, None
            chunk, (start, _) = bytes(next(chunks, b"")), options.get("range", (0, 0))
            answer = result, chunks  # not after an error: what is left is asked for in another request
            read_up_to, stop = start + len(chunk), result.range[1]
            options.update({"if_match": result.meta["e_tag"], "range": (read_up_to, stop)})
            return chunk, stop - read_up_to

        num_left = 1
        while num_left:
            chunk, num_left = self._asked("read", name, request)
            if not chunk:
                return
            yield chunk

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ranges of an object, each an offset and a length in bytes; neighboring ranges share a request."""
        starts, lengths = [start for start, _ in ranges], [length for _, length in ranges]

        def request(obstore: Any, store: Any) -> list[bytes]:
            try:
                return [bytes(each) for each in obstore.get_ranges(store, name, starts=starts, lengths=lengths)]
            except FileNotFoundError:
                return []

        found = self._asked("read", name, request)
        if [len(each) for each in found] != lengths:
            raise CheckError(f"{self.url}/{name} is missing or truncated")
        return found

    def size(self, name: str) -> int | None:
        """Return the size of an object in bytes; None if it does not exist."""
        found = self.find(name)
        return None if found is None else found.num_bytes

    def find(self, name: str) -> FoundObject | None:
        """Return the current version of an object; None if it does not exist."""

        def request(obstore: Any, store: Any) -> FoundObject | None:
            try:
                meta = obstore.head(store, name)
            except FileNotFoundError:
                return None
            return FoundObject(name, int(meta["size"]), str(meta["e_tag"]))

        return self._asked("read", name, request)

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the size in bytes of every object below a folder, by name; a request lists a thousand."""
        return {found.name: found.num_bytes for found in self.listed(folder)}

    def listed(self, folder: str = "") -> Iterator[FoundObject]:
        """Yield every object below a folder, in no particular order."""
        seen: set[str] = set()
        batches: Iterator[Any] | None = None

        def request(obstore: Any, store: Any) -> Any:
            nonlocal batches
            batches, asked = None, batches or iter(obstore.list(store, prefix=folder or None))
            batch = next(asked, None)
            batches = asked  # not after an error, which ends the listing: the next one begins again
            return batch

        while (batch := self._asked("list", folder, request)) is not None:
            found = [FoundObject(meta["path"], meta["size"], _quoted(meta["e_tag"])) for meta in batch]
            yield from (each for each in found if each.name not in seen)
            seen.update(each.name for each in found)

    def upload(self, name: str, path: Path) -> None:
        """Write an object from a file unless one of this name exists; the name must identify the content."""
        if self.size(name) is None:
            self.replace(name, path)

    def replace(self, name: str, content: bytes | Path) -> None:
        """Write an object, replacing any existing one; a large file in parts, of which a few are in memory."""
        parts: Any = {"chunk_size": _PART_BYTES, "max_concurrency": 4}
        self._asked("write", name, lambda obstore, store: obstore.put(store, name, content, **parts))

    def swap(self, name: str, before: bytes | None, content: bytes) -> bool:
        """Replace an object of the content `before`, or none, by compare-and-swap; return False if it has another.

        True also if it already has the new content, as after a request whose response was lost.
        """
        found, etag = self._with_version(name)
        if found == content or found != before:
            return found == content
        return self._put_if(name, content, "create" if found is None else {"e_tag": etag}) or self.read(name) == content

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; names that do not exist are ignored."""
        self._asked("remove", "", lambda obstore, store: obstore.delete(store, list(names)))

    def refuse_unconditional(self) -> None:
        """Test that the store honors conditional writes; without them, concurrent builds overwrite each other."""
        name = f".packer/probe-{token_hex(8)}"
        try:
            self._put_if(name, b"1", "create")
            is_safe = not any(self._put_if(name, b"2", each) for each in ("create", {"e_tag": '"of-no-object"'}))
        except NotImplementedError:  # obstore's error for stores without conditional writes
            is_safe = False
        finally:
            with suppress(PackerError):
                self.remove([name])
        if not is_safe:
            raise StorageError(
                f"{self.url}: this store ignores conditions on writes (If-None-Match, If-Match)",
                hint="packer cannot tell there whether another build committed: build into a folder, and copy it",
            )

    def _put_if(self, name: str, content: bytes | Path, condition: Any) -> bool:
        """Write an object under a condition; return False if the condition is not met.

        A request whose connection broke may have been carried out. When it is repeated, the condition is not met then,
        and the caller accepts an object that is as it should be.
        """

        def request(obstore: Any, store: Any) -> bool:
            try:
                obstore.put(store, name, content, mode=condition)
            except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
                return False
            return True

        return self._asked("write", name, request)

    def _asked(self, action: str, name: str, request: Callable[[Any, Any], T]) -> T:
        """Send a request, and repeat it while its connection breaks.

        obstore repeats most requests, but no conditional write whose connection was reset, no listing that breaks off,
        and no other answer that breaks off twice.
        """
        if _owner not in (None, os.getpid()):
            raise StorageError(
                f"{self.url}: this process was forked from one that had asked the store",
                hint='a DataLoader takes multiprocessing_context="spawn"; without workers, rows are fetched ahead, too',
            )
        obstore, store = _opened(self.url)
        of_store = (obstore.exceptions.BaseError, OSError, ValueError, NotImplementedError)
        end, pause = None, 0.1
        while True:
            try:
                return request(obstore, store)
            except BaseException as error:
                end = end or time.monotonic() + _REPEATED_S
                is_answer = "Server returned" in str(error) or _METADATA in str(error)
                is_broken = isinstance(error, obstore.exceptions.GenericError) and not is_answer
                if not is_broken or time.monotonic() > end:
                    if isinstance(error, of_store) or is_panic(error):
                        raise self._error(f"cannot {action} {self.url}/{name}", error, obstore) from shown_cause(error)
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _MOST_PAUSE_S)

    def _error(self, what: str, error: BaseException, obstore: Any) -> StorageError:
        scheme, _, rest = self.url.partition("://")
        denied = (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError)
        if _NO_BUCKET.search(str(error)):
            why, hint = f"there is no bucket '{rest.partition('/')[0]}'", "check its name, and which store is asked"
        elif _METADATA in str(error) or isinstance(error, denied):
            why, hint = _first_line(error), credentials_hint(scheme)
        else:
            why = _first_line(error)
            hint = "check the network, the name and the store; the same command again keeps what was finished"
        return StorageError(f"{what}: {why}", hint=hint)


def _quoted(etag: str) -> str:
    """Return a version in the form that headers have: Azure's listings leave out its quotation marks."""
    return etag if etag.endswith('"') else f'"{etag}"'


def _first_line(error: BaseException) -> str:
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
    if re.search("[#?%]", bucket):
        raise UsageError(f"{url}: '{bucket}' is not the name of a bucket", hint=_URL_HINT)
    try:
        # In a folder's name #, ? and % are characters like any other; from_url takes them for parts of a web address.
        store: Any = from_url(f"{scheme}://{bucket}", **options)
        return obstore, type(store)(config=store.config, prefix=folder or None, **options)
    except (obstore.exceptions.BaseError, ValueError) as error:
        raise UsageError(f"{url}: {_first_line(error)}", hint=_URL_HINT) from shown_cause(error)
