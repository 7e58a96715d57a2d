"""The bytes of a file, a megabyte at a time, unpacked where they are compressed.

The first bytes of a file say how it is compressed, not its name. A compressed file is read from its beginning.
"""

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import pyarrow as pa

from packer.errors import InputError, PackerError
from packer.limits import out_of

READ_BYTES = 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANK = b" \t\r\n"

Codec = Literal["gzip", "zstd", "bz2"]

_SIGNATURES: tuple[tuple[bytes, Codec], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bz2"),
)


class RemoteFile(Protocol):
    """One version of a file on another machine, which str() names."""

    @property
    def num_bytes(self) -> int: ...

    def chunks(self, start: int, stop: int | None) -> Iterator[bytes]:
        """Yield its bytes as :func:`read_chunks` does."""
        ...

    def __fspath__(self) -> str:
        """Return the path of a copy on this machine, made if there is none."""
        ...


FilePath: TypeAlias = Path | RemoteFile


def read_chunks(path: FilePath, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Bytes `start` … `stop` of a file; to its end where `stop` is None. No chunk is empty.

    Raises:
        InputError: the file cannot be read, or ends before `stop`.

    """
    if not isinstance(path, Path):
        yield from path.chunks(start, stop)
        return
    try:
        with path.open("rb") as file:
            file.seek(start)
            position = start
            while stop is None or position < stop:
                chunk = file.read(READ_BYTES if stop is None else min(READ_BYTES, stop - position))
                if not chunk:
                    break
                position += len(chunk)
                yield chunk
    except OSError as error:
        raise unreadable(path, error) from error
    if stop is not None and position < stop:
        raise changed(path, f"expected {stop} bytes, found {position}")


def file_sha256(path: FilePath) -> str:
    """Return the sha256 of a whole file, in hexadecimal.

    Raises:
        InputError: it cannot be read.

    """
    digest = hashlib.sha256()
    for chunk in read_chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def hashed(chunks: Iterator[bytes], *updates: Callable[[bytes], object]) -> Iterator[bytes]:
    """The chunks, each given to what hashes or counts it."""

    def passed(chunk: bytes) -> bytes:
        for update in updates:
            update(chunk)
        return chunk

    return map(passed, chunks)  # no generator: one that is left early would not hand out the rest


def codec_of(path: FilePath) -> Codec | None:
    """How a file is compressed; None where it is not.

    Raises:
        InputError: it cannot be read.

    """
    head = next(read_chunks(path, 0, None), b"")
    return next((codec for signature, codec in _SIGNATURES if head.startswith(signature)), None)


def text_stream(
    path: FilePath, chunks: Iterable[bytes], codec: Codec | None, *, at_start: bool = True
) -> io.BufferedReader:
    """The text in the bytes of a file, without the byte order mark it may begin with."""
    raw: Any = _Chunks(decompressed(path, chunks, codec))
    stream = io.BufferedReader(raw, READ_BYTES)
    if at_start and stream.peek(len(BYTE_ORDER_MARK)).startswith(BYTE_ORDER_MARK):
        stream.read(len(BYTE_ORDER_MARK))
    return stream


def skip_blank_lines(stream: io.BufferedReader, blank: bytes = BLANK) -> int:
    """Pass over the blank lines in the buffer of a stream: a few compressed bytes may stand for gigabytes of them."""
    ahead = stream.peek()
    size = ahead.rfind(b"\n") + 1
    if not size or ahead[:size].strip(blank):
        return 0
    return stream.read(size).count(b"\n")


def decompressed(path: FilePath, chunks: Iterable[bytes], codec: Codec | None) -> Iterator[bytes]:
    """The text in the bytes of a file, about a megabyte at a time, however much a few bytes decode to.

    All of `chunks` is read, or the file is refused: members and frames may follow one another, nothing else may, but
    for the zeros that tapes and disks pad gzip with.

    Raises:
        InputError: the bytes are damaged, or end too early; the message says how far the text could be read.

    """
    if codec is None:
        yield from chunks
        return
    num_bytes = 0
    try:
        with _opened(io.BufferedReader(_Chunks(chunks), READ_BYTES), codec) as stream:
            while text := stream.read(READ_BYTES):
                num_bytes += len(text)
                yield text
    except (OSError, EOFError, zlib.error) as error:
        if (limit := out_of(error, f"{path}: cannot be read")) is not None:
            raise limit from error
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        if said.startswith("Not a gzipped file"):
            said = "something else follows it"
        raise InputError(
            f"{path}: {codec} data is damaged or cut off: {said}; "
            f"at least {num_bytes:,} bytes of text could be read before",
            hint="is the file whole? Fetch it again",
        ) from error


def _opened(stream: io.BufferedReader, codec: Codec) -> Any:
    # Arrow's gzip takes no zeros after a member.
    return gzip.GzipFile(fileobj=stream) if codec == "gzip" else pa.CompressedInputStream(pa.PythonFile(stream), codec)


class _Chunks(io.RawIOBase):
    """Chunks as a file."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        super().__init__()
        self._chunks = iter(chunks)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = memoryview(next(self._chunks, b""))
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


class NoRowsError(InputError):
    """A file holds nothing, or nothing but blank lines."""


def no_rows(path: FilePath) -> NoRowsError:
    return NoRowsError(f"{path}: holds no rows", hint="remove the file from the sources, or write rows to it")


def unreadable(path: FilePath, error: OSError) -> PackerError:
    if (limit := out_of(error, f"{path}: cannot be read")) is not None:
        return limit
    hint = "the path must be a file this user can read" if isinstance(error, PermissionError) else None
    return InputError(f"{path}: cannot be read: {error.strerror or error}", hint=hint)


def changed(path: FilePath | str, detail: str) -> InputError:
    return InputError(f"{path}: changed while being read: {detail}", hint="build again when nothing writes to the file")


def shown(text: str, length: int = 40) -> str:
    """A text of a file, quoted and cut, for a message: nothing in it can do anything to a terminal."""
    printable = (each if each.isprintable() else each.encode("unicode_escape").decode() for each in text[:length])
    return f"`{''.join(printable)}`"
