"""The bytes of a file, a megabyte at a time."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from packer.errors import InputError, PackerError
from packer.limits import out_of

READ_BYTES = 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANK = b" \t\r\n"


def read_chunks(path: Path, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Bytes `start` … `stop` of a file; to its end where `stop` is None. No chunk is empty.

    Raises:
        InputError: the file cannot be read, or ends before `stop`.

    """
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


def without_mark(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Chunks from the start of a file, without the byte order mark it may begin with."""
    for chunk in chunks:
        yield chunk.removeprefix(BYTE_ORDER_MARK)
        break
    yield from chunks


def is_blank(piece: bytes, blank: bytes = BLANK) -> bool:
    """Whether a piece holds nothing but blanks; a compressed file may hold gigabytes of them."""
    return not piece or (piece.isspace() and not piece.translate(None, blank))


def count_newlines(chunk: bytes) -> int:
    """As `chunk.count` says, which takes ten times as long where newlines are all there is."""
    return int(np.count_nonzero(np.frombuffer(chunk, np.uint8) == _NEWLINE))


_NEWLINE = ord("\n")


class NoRowsError(InputError):
    """A file holds nothing, or nothing but blank lines."""


def no_rows(path: Path) -> NoRowsError:
    return NoRowsError(f"{path}: holds no rows", hint="remove the file from the sources, or write rows to it")


def broken_array(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: is not JSON: {error}", hint="for a file of JSON lines, set format: jsonl")


def unreadable(path: Path, error: OSError) -> PackerError:
    if (limit := out_of(error, f"{path}: cannot be read")) is not None:
        return limit
    hint = "the path must be a file this user can read" if isinstance(error, PermissionError) else None
    return InputError(f"{path}: cannot be read: {error.strerror or error}", hint=hint)


def changed(path: Path, detail: str) -> InputError:
    return InputError(f"{path}: changed while being read: {detail}", hint="build again when nothing writes to the file")


def shown(text: str, length: int = 40) -> str:
    """A text of a file, quoted and cut, for a message: nothing in it can do anything to a terminal."""
    printable = (each if each.isprintable() else each.encode("unicode_escape").decode() for each in text[:length])
    return f"`{''.join(printable)}`"
