"""Compressed files, read as a stream; the first bytes say how they are compressed, not the name.

A compressed file is one partition: it cannot be entered anywhere but at its beginning.
"""

import io
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pyarrow as pa

from packer.errors import InputError
from packer.limits import out_of
from packer.source.chunks import READ_BYTES, read_chunks

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
    """The text in the bytes of a file, about a megabyte at a time, however much a few bytes unfold to.

    All of `chunks` is read, or the file is refused: members and frames may follow one another, nothing else may, but
    for the zeros that tapes and disks pad gzip with.

    Raises:
        InputError: the bytes are damaged, or end too early; the message says how far the text could be read.

    """
    if codec is None:
        yield from chunks
    elif codec == "gzip":
        yield from _filled(_gunzipped(path, chunks))
    else:
        yield from _by_arrow(path, chunks, codec)


def _gunzipped(path: Path, chunks: Iterator[bytes]) -> Iterator[bytes]:
    member = zlib.decompressobj(_GZIP)
    is_first = True
    place = num_text = 0
    for chunk in chunks:
        left = chunk
        while left:
            if member.eof:
                left = left.lstrip(b"\0")
                if not left:
                    break
                member, is_first = zlib.decompressobj(_GZIP), False
            before = member.copy()
            try:
                text = member.decompress(left, READ_BYTES)
            except zlib.error as error:
                told = str(error).rpartition(": ")[2]
                if told == _NO_HEADER and not is_first:
                    raise _followed(path, place + len(chunk) - len(left)) from error
                num_text += _num_readable(before, left)
                raise _damaged(path, "gzip", told, f"{num_text:,}") from error
            num_text += len(text)
            yield text
            left = member.unused_data if member.eof else member.unconsumed_tail
        place += len(chunk)
    if not member.eof:
        raise _damaged(path, "gzip", "it ends too early", f"{num_text:,}")


_GZIP = 31
"""Window bits of zlib, the largest, and a header of gzip."""

_NO_HEADER = "incorrect header check"


def _num_readable(member: "zlib._Decompress", left: bytes) -> int:
    """Bytes of text before the damage in `left`: what is decoded in the call that meets it is lost."""
    num_text = 0
    with suppress(zlib.error):
        for i in range(len(left)):
            num_text += len(member.decompress(left[i : i + 1]))
    return num_text


def _filled(texts: Iterator[bytes]) -> Iterator[bytes]:
    """The texts in pieces of a megabyte at least, but for the last; members may be small, and some are empty."""
    pieces: list[bytes] = []
    num_bytes = 0
    for text in texts:
        pieces.append(text)
        num_bytes += len(text)
        if num_bytes >= READ_BYTES:
            yield b"".join(pieces)
            pieces, num_bytes = [], 0
    if num_bytes:
        yield b"".join(pieces)


def _by_arrow(path: Path, chunks: Iterator[bytes], codec: Codec) -> Iterator[bytes]:
    position = 0
    try:
        with pa.CompressedInputStream(pa.PythonFile(_Stream(chunks), mode="r"), codec) as stream:
            while text := stream.read(READ_BYTES):
                position += len(text)
                yield text
    except OSError as error:
        if (limit := out_of(error, f"{path}: cannot be read")) is not None:
            raise limit from error
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _damaged(path, codec, told, f"at least {position:,}") from error


def _damaged(path: Path, codec: Codec, told: str, num_text: str) -> InputError:
    return InputError(
        f"{path}: {codec} data is damaged or cut off: {told}; {num_text} bytes of text could be read before",
        hint="is the file whole? Fetch it again",
    )


def _followed(path: Path, place: int) -> InputError:
    return InputError(
        f"{path}: holds something else behind its gzip data, from byte {place:,} on",
        hint=f"if it is not needed, cut it off: head -c {place} {path}",
    )


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
