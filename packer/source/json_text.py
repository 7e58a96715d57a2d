"""Rows of JSON text: the lines of JSON lines, or the elements of the array that a file is.

A line is a row unless it is blank: nothing but spaces, tabs and carriage returns. The last one may lack its newline.

An array is cut without being decoded and without being held: only quotes, escapes, brackets and commas decide where an
element ends, so an element that is not JSON is one bad row and not a bad file. Worked example, ``[{"a": [1, 2]}, 7]``:
the depth of brackets outside of strings is 1 between the elements. An element ends at a comma at depth 1, or at the
bracket that brings the depth from 1 to 0. The comma between 1 and 2 stands at depth 3 and ends nothing.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from packer.errors import InputError
from packer.source.file_bytes import BLANK, READ_BYTES, skip_blank_lines

_QUOTE, _COMMA = b'",'

_STEP = np.zeros(256, np.int64)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1

_STRUCTURAL = np.zeros(256, np.bool_)
_STRUCTURAL[list(b"[]{},")] = True


def split_lines(stream: io.BufferedReader, *, max_row_bytes: int) -> Iterator[tuple[bytes | None, int]]:
    """Cut a stream into rows, each with its line from 1.

    A row of more than `max_row_bytes` comes as None and is never held in memory. Blanks around a row are not part of
    what is handed out, but count towards its size.
    """
    number = 0
    while line := stream.readline(max_row_bytes + 2):  # a newline, and a byte that tells that there are more
        number += 1
        row: bytes | None = line.strip(BLANK)
        is_row = bool(row)
        ends = line.endswith(b"\n")
        if len(line) - ends > max_row_bytes:
            row = None
            while not ends and (piece := stream.readline(READ_BYTES)):
                is_row = is_row or bool(piece.strip(BLANK))
                ends = piece.endswith(b"\n")
        if is_row:
            yield row, number
        else:
            number += skip_blank_lines(stream)


def split_elements(path: Path, stream: io.BufferedReader, *, max_row_bytes: int) -> Iterator[bytes | None]:
    """Cut a stream into the elements of its array; one of more than `max_row_bytes` comes as None, never held.

    A stream that begins with ``{`` is a single element. What stands between two commas is an element even if blank.

    Raises:
        InputError: no array and no object, brackets left open, or something after the end.

    """
    chunks = iter(partial(stream.read, READ_BYTES), b"")
    opening = next(filter(None, (chunk.lstrip(BLANK) for chunk in chunks)), b"")
    if not opening:
        return
    if opening[:1] not in (b"[", b"{"):
        raise _broken(path, "it begins neither with [ nor with {")
    single = opening[:1] == b"{"
    brackets, element = _Brackets(), _OpenElement(max_row_bytes)
    start = 0 if single else 1  # the array's own bracket belongs to no element, the single object's brackets do
    empty = True
    for chunk in chain([opening], chunks):
        data, ends = brackets.ends(chunk, single=single)
        for end, closes in ends:
            element.add(data[start : end + single])
            start = end + 1
            if not (closes and empty and element.num_bytes == 0):
                yield element.take()
            empty = False
            if closes:
                if any(piece.strip(BLANK) for piece in chain([data[start:], brackets.held], chunks)):
                    raise _broken(path, "something follows the end of its array or object")
                return
        element.add(data[start:])
        start = 0
    raise _broken(path, "it ends inside its array or object")


def _broken(path: Path, what: str) -> InputError:
    return InputError(f"{path}: is not JSON: {what}", hint="for a file of JSON lines, set format: jsonl")


@dataclass(slots=True)
class _Brackets:
    """How deep brackets are nested, and what the next chunk must know of the one before."""

    depth: int = 0
    in_string: bool = False
    held: bytes = b""
    """A backslash at the end of a chunk, which belongs to the byte after it."""

    def ends(self, chunk: bytes, *, single: bool) -> tuple[bytes, list[tuple[int, bool]]]:
        """The chunk without what is held, and where in it an element ends, each with whether the array ends there."""
        data = self.held + chunk
        self.held = b"\\" * ((len(data) - len(data.rstrip(b"\\"))) % 2)
        data = data[: len(data) - len(self.held)]
        if not data:
            return data, []
        # Two bytes for two, from left to right: after this no quote and no backslash is escaped.
        plain = np.frombuffer(data.replace(b"\\\\", b"__").replace(b'\\"', b"__"), np.uint8)
        inside = (np.cumsum(plain == _QUOTE, dtype=np.int32) + self.in_string) % 2 == 1
        self.in_string = bool(inside[-1])
        places: npt.NDArray[np.int64] = np.flatnonzero(_STRUCTURAL[plain] & ~inside)
        kinds = plain[places]
        depths = self.depth + np.cumsum(_STEP[kinds])
        if len(depths):
            self.depth = int(depths[-1])
        closes = (depths <= 0) & (_STEP[kinds] < 0)
        chosen = np.flatnonzero(closes | ((kinds == _COMMA) & (depths == 1) & (not single)))
        return data, list(zip(places[chosen].tolist(), closes[chosen].tolist(), strict=True))


@dataclass(slots=True)
class _OpenElement:
    """An element whose end has not been seen yet."""

    max_row_bytes: int
    num_bytes: int = 0
    pieces: list[bytes] = field(default_factory=list)

    def add(self, piece: bytes) -> None:
        if not self.num_bytes:
            piece = piece.lstrip(BLANK)
        self.num_bytes += len(piece)
        if self.num_bytes <= self.max_row_bytes:
            self.pieces.append(piece)
        else:
            self.pieces.clear()

    def take(self) -> bytes | None:
        element = b"".join(self.pieces).strip(BLANK) if self.num_bytes <= self.max_row_bytes else None
        self.num_bytes, self.pieces = 0, []
        return element
