"""Reads the bytes of a file in chunks of a megabyte, decompressed if necessary.

The compression is detected from the first bytes, not from the name. A compressed file can only be read from its start.
"""

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeAlias

import pyarrow as pa

from packer.errors import InputError, PackerError
from packer.host.files import open_regular, out_of

READ_BYTES = 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANK = b" \t\r\n"
_DELIMITERS = b",;\t|"

PIPED = "standard-input"
"""Name of the file that keeps what was piped in. It is removed when the process ends."""

Format = Literal["jsonl", "json", "csv", "tsv", "parquet", "arrow"]
CSV_FORMATS = ("csv", "tsv")
TABLE_FORMATS = ("parquet", "arrow")

Codec = Literal["gzip", "zstd"]

_SIGNATURES: tuple[tuple[bytes, Codec], ...] = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    """Size, modification time and inode of a file: if these are unchanged, so are its bytes."""

    num_bytes: int
    modified_ns: int
    inode: int

    @classmethod
    def of(cls, path: FilePath) -> Self:
        """Return the status of a file."""
        if not isinstance(path, Path):
            return cls(num_bytes=path.num_bytes, modified_ns=0, inode=0)  # another version of it is not read
        try:
            found = path.stat()
        except OSError as error:
            raise unreadable_error(path, error) from error
        return cls(num_bytes=found.st_size, modified_ns=found.st_mtime_ns, inode=found.st_ino)


def read_chunks(path: FilePath, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Yield the bytes `start` … `stop` of a file, or all from `start` on if `stop` is None. No chunk is empty."""
    if not isinstance(path, Path):
        yield from path.chunks(start, stop)
        return
    try:
        with open_regular(path) as file:
            file.seek(start)
            position = start
            while stop is None or position < stop:
                chunk = file.read(READ_BYTES if stop is None else min(READ_BYTES, stop - position))
                if not chunk:
                    break
                position += len(chunk)
                yield chunk
    except OSError as error:
        raise unreadable_error(path, error) from error
    if stop is not None and position < stop:
        raise changed_error(path, f"expected {stop} bytes, found {position}")


def file_sha256(path: FilePath) -> str:
    """Return the sha256 of a whole file, in hexadecimal."""
    digest = hashlib.sha256()
    for chunk in read_chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def tee_chunks(chunks: Iterator[bytes], *updates: Callable[[bytes], object]) -> Iterator[bytes]:
    """Pass the chunks through, calling each of `updates`, which hash or count them, with every chunk."""

    def passed(chunk: bytes) -> bytes:
        for update in updates:
            update(chunk)
        return chunk

    # Not a generator: a consumer that stops early would close it, and the rest could no longer be read.
    return map(passed, chunks)


def codec_of(path: FilePath) -> Codec | None:
    """Return how a file is compressed; None if it is not."""
    head = next(read_chunks(path, 0, None), b"")
    return next((codec for signature, codec in _SIGNATURES if head.startswith(signature)), None)


def is_plain_text(path: Path) -> bool:
    """Whether a file begins as text that is no JSON."""
    head = next(read_chunks(path, 0, 256), b"").lstrip()
    return bool(head) and head[:1] not in (b"{", b"[") and b"\0" not in head and bool(head.decode(errors="ignore"))


def delimiter_of(head: bytes) -> str:
    """Return the delimiter that is most frequent in the first line outside of quotes."""
    first = head.lstrip(BLANK).split(b"\n", 1)[0]
    plain = b"".join(first.split(b'"')[::2])
    return max((chr(each) for each in _DELIMITERS), key=lambda each: plain.count(each.encode()))


def text_stream(
    path: FilePath, chunks: Iterable[bytes], codec: Codec | None, *, at_start: bool = True
) -> io.BufferedReader:
    """Return the text of a file as a stream, decompressed and without the byte order mark."""
    raw: Any = _Chunks(decompressed(path, chunks, codec))
    stream = io.BufferedReader(raw, READ_BYTES)
    if at_start and stream.peek(len(BYTE_ORDER_MARK)).startswith(BYTE_ORDER_MARK):
        stream.read(len(BYTE_ORDER_MARK))
    return stream


def skip_blank_lines(stream: io.BufferedReader, blank: bytes = BLANK) -> int:
    """Skip blank lines in the buffer of a stream, and return their number.

    Done in bulk, because a few compressed bytes may expand to gigabytes of blank lines.
    """
    ahead = stream.peek()
    size = ahead.rfind(b"\n") + 1
    if not size or ahead[:size].strip(blank):
        return 0
    return stream.read(size).count(b"\n")


def decompressed(path: FilePath, chunks: Iterable[bytes], codec: Codec | None) -> Iterator[bytes]:
    """Yield the decompressed text, about a megabyte at a time, however much a few bytes expand to.

    All of `chunks` is consumed, or the file is refused: several members or frames may follow one another, but nothing
    else, except for the zeros that pad gzip data on tapes and disks.
    """
    if codec is None:
        yield from chunks
        return
    num_bytes = 0
    try:
        for text in _texts(chunks, codec):
            num_bytes += len(text)
            yield text
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        if said.startswith("Not a gzipped file"):
            said = "something else follows it"
        refused = InputError(
            f"{path}: {codec} data is damaged or cut off: {said}; "
            f"at least {num_bytes:,} bytes of text could be read before",
            hint="is the file complete? If not, fetch it again",
        )
        raise out_of(error, f"{path}: cannot be read") or refused from error


def _texts(chunks: Iterable[bytes], codec: Codec) -> Iterator[bytes]:
    stream: Any = io.BufferedReader(_Chunks(chunks), READ_BYTES)
    # Arrow's gzip does not accept zeros after a member.
    is_gzip = codec == "gzip"
    with gzip.GzipFile(fileobj=stream) if is_gzip else pa.CompressedInputStream(pa.PythonFile(stream), codec) as opened:
        while text := opened.read(READ_BYTES):
            yield text


class _Chunks(io.RawIOBase):
    """Chunks as a raw stream."""

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
    """A file is empty, or contains only blank lines."""


def no_rows_error(path: FilePath) -> NoRowsError:
    return NoRowsError(f"{path}: holds no rows", hint="remove the file from the sources, or write rows to it")


def unreadable_error(path: FilePath, error: OSError) -> PackerError:
    hint = "the path must be a file this user can read" if isinstance(error, PermissionError) else None
    refused = InputError(f"{path}: cannot be read: {error.strerror or error}", hint=hint)
    return out_of(error, f"{path}: cannot be read") or refused


def changed_error(path: FilePath | str, detail: str) -> InputError:
    return InputError(f"{path}: changed while being read: {detail}", hint="build again when nothing writes to the file")


def quoted(text: str, length: int = 40) -> str:
    """Return a text of a file for a message: quoted, truncated, and without anything that could affect a terminal."""
    printable = (each if each.isprintable() else each.encode("unicode_escape").decode() for each in text[:length])
    return f"`{''.join(printable)}`"
