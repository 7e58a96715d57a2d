"""Compressed files, read as a stream; the first bytes say how they are compressed, not the name.

A compressed file is one partition: it cannot be entered anywhere but at its beginning.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from packer.errors import InputError
from packer.limits import out_of
from packer.source.file_bytes import READ_BYTES, read_chunks

Codec = Literal["gzip", "zstd", "bz2"]

_SIGNATURES: tuple[tuple[bytes, Codec], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bz2"),
)


def codec_of(path: Path) -> Codec | None:
    """How a file is compressed; None where it is not.

    Raises:
        InputError: it cannot be read.

    """
    head = next(read_chunks(path, 0, None), b"")
    return next((codec for signature, codec in _SIGNATURES if head.startswith(signature)), None)


def decompressed(path: Path, chunks: Iterator[bytes], codec: Codec | None) -> Iterator[bytes]:
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
        with _opened(_Stream(chunks), codec) as stream:
            while text := stream.read(READ_BYTES):
                num_bytes += len(text)
                yield text
    except (OSError, EOFError, zlib.error) as error:
        if (limit := out_of(error, f"{path}: cannot be read")) is not None:
            raise limit from error
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        if said.startswith("Not a gzipped file"):
            said = "something else stands behind it"
        raise InputError(
            f"{path}: {codec} data is damaged or cut off: {said}; "
            f"at least {num_bytes:,} bytes of text could be read before",
            hint="is the file whole? Fetch it again",
        ) from error


def _opened(stream: "_Stream", codec: Codec) -> Any:
    # Arrow's gzip takes no zeros behind a member.
    return gzip.GzipFile(fileobj=stream) if codec == "gzip" else pa.CompressedInputStream(pa.PythonFile(stream), codec)


class _Stream(io.RawIOBase):
    """Chunks as a file that can only be read on."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        assert size >= 0, "a decompressor asks for a buffer at a time"
        if not self._left:
            self._left = memoryview(next(self._chunks, b""))
        taken = self._left[:size]
        self._left = self._left[size:]
        return bytes(taken)
