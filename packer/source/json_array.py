"""Rows of a JSON file: the elements of its top-level array, or the one object it is.

The file is cut without being decoded and without being held: only quotes, escapes, brackets and commas decide where an
element ends, so an element that is not JSON is one bad row and not a bad file.

Worked example, chunk by chunk of ``[{"a": [1, 2]}, 7]``: the depth of brackets outside of strings is 1 between the
elements. An element ends at a comma at depth 1, or at the bracket that brings the depth from 1 to 0. The comma
between 1 and 2 stands at depth 3 and ends nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt

from packer.source.file_bytes import BLANK, is_blank

_QUOTE, _BACKSLASH, _COMMA = b'"\\,'

_STEP = np.zeros(256, np.int64)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1

_STRUCTURAL = np.zeros(256, np.bool_)
_STRUCTURAL[list(b"[]{},")] = True


class BrokenArray(Exception):  # noqa: N818 - becomes an InputError where the file's name is known
    """The brackets of a file do not add up; holds one sentence that says how."""


def split_elements(chunks: Iterable[bytes], *, max_row_bytes: int) -> Iterator[bytes | None]:
    """Cut a stream into the elements of its array; one of more than `max_row_bytes` comes as None, never held.

    A stream that begins with ``{`` is a single element. What stands between two commas is an element even if blank.

    Raises:
        BrokenArray: no array and no object, brackets left open, or something after the end.

    """
    stream = _without_leading_blanks(chunks)
    opening = next(stream, b"")
    if opening[:1] not in (b"[", b"{"):
        raise BrokenArray("it begins neither with [ nor with {")
    single = opening[:1] == b"{"
    scanner, element = Scanner(), _OpenElement(max_row_bytes)
    start = 0 if single else 1  # the array's own bracket belongs to no element, the single object's brackets do
    empty = True
    for chunk in chain([opening], stream):
        for end, closes in scanner.ends(chunk, single=single):
            element.add(chunk[start : end + single])
            start = end + 1
            if not (closes and empty and element.num_bytes == 0):
                yield element.take()
            empty = False
            if closes:
                _expect_blank(chain([chunk[start:]], stream))
                return
        element.add(chunk[start:])
        start = 0
    raise BrokenArray("it ends inside its array or object")


def _without_leading_blanks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    chunks = iter(chunks)
    for chunk in chunks:
        if not is_blank(chunk):
            yield chunk.lstrip(BLANK)
            break
    yield from chunks


def _expect_blank(chunks: Iterable[bytes]) -> None:
    if not all(map(is_blank, chunks)):
        raise BrokenArray("something follows the end of its array or object")


@dataclass(slots=True)
class Scanner:
    """How deep brackets are nested in a chunk, and what the next chunk must know of this one."""

    depth: int = 0
    in_string: bool = False
    escaped: bool = False

    def deepest(self, chunk: bytes) -> int:
        """The depth of the deepest bracket of the chunk."""
        before = self.depth
        return int(self._structure(chunk)[2].max(initial=before))

    def ends(self, chunk: bytes, *, single: bool) -> list[tuple[int, bool]]:
        """Positions in the chunk at which an element ends, each with whether the whole array ends there."""
        if not self.escaped and is_blank(chunk):
            return []
        places, kinds, depths = self._structure(chunk)
        closes = (depths <= 0) & (_STEP[kinds] < 0)
        separates = (kinds == _COMMA) & (depths == 1) & (not single)
        chosen = np.flatnonzero(closes | separates)
        return list(zip(places[chosen].tolist(), closes[chosen].tolist(), strict=True))

    def _structure(self, chunk: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Brackets and commas outside of strings: where they stand, which they are, and the depth from each on."""
        data = np.frombuffer(chunk, np.uint8)
        places = np.flatnonzero(_STRUCTURAL[data] & ~self._string_mask(data))
        kinds = data[places]
        depths = self.depth + np.cumsum(_STEP[kinds])
        if len(depths):
            self.depth = int(depths[-1])
        return places, kinds, depths

    def _string_mask(self, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """True inside strings: after an odd number of quotes that are not escaped."""
        quotes = data == _QUOTE
        quotes[self._escaped_bytes(data)] = False
        inside: npt.NDArray[np.bool_] = (np.cumsum(quotes, dtype=np.int32) + self.in_string) % 2 == 1
        self.in_string = bool(inside[-1])
        return inside

    def _escaped_bytes(self, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        r"""Positions of the bytes that follow an odd run of backslashes.

        Worked example: in ``\\\"`` the run is 3 backslashes at 0 … 2 and the quote at 3 is escaped; in ``\\"``
        the run is 2 and the quote at 2 is not. A run may begin at the end of the chunk before.
        """
        slashes = np.flatnonzero(data == _BACKSLASH)
        if self.escaped:
            slashes = slashes[slashes != 0]  # byte 0 is escaped itself, so it does not begin a run
        first = np.ones(len(slashes), np.bool_)
        first[1:] = np.diff(slashes) != 1
        starts = np.flatnonzero(first)
        lengths = np.diff(np.append(starts, len(slashes)))
        after = slashes[starts] + lengths
        odd = after[lengths % 2 == 1]
        found = np.append(odd, 0) if self.escaped else odd
        self.escaped = bool(len(odd) and odd[-1] == len(data))
        return found[found < len(data)]


@dataclass(slots=True)
class _OpenElement:
    """An element whose end has not been seen yet."""

    max_row_bytes: int
    num_bytes: int = 0
    pieces: list[bytes] = field(default_factory=list)

    def add(self, piece: bytes) -> None:
        if not self.num_bytes:
            piece = b"" if is_blank(piece) else piece.lstrip(BLANK)
        self.num_bytes += len(piece)
        if self.num_bytes <= self.max_row_bytes:
            self.pieces.append(piece)
        else:
            self.pieces.clear()

    def take(self) -> bytes | None:
        element = b"".join(self.pieces).strip(BLANK) if self.num_bytes <= self.max_row_bytes else None
        self.num_bytes, self.pieces = 0, []
        return element
