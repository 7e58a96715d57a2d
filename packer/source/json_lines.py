"""JSON lines, cut into rows and into partitions.

A row is what stands between two newlines, unless it is blank: nothing but spaces, tabs and carriage returns. The last
row may lack its newline.

Partitions are cut by bytes at the nominal cuts of :mod:`packer.source.partition`; a line belongs to the partition in
which its first byte lies. So appending to a file changes only its last partitions.

Worked example, `partition_bytes` = 80: nominal cuts lie at 10, 20, … 80, then at 100, 120, … 240, at 280, … 560, and
then at every 80. Lines of 4, 9, 12 and 2 bytes begin at 0, 4, 13 and 25, so they belong to the nominal partitions 0, 0,
1 and 2, which are the bytes [0, 13), [13, 25) and [25, 27). Had the third line 20 bytes, the fourth would begin at 33,
and there would be no partition for the nominal 2.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from packer.source.file_bytes import BLANK, BYTE_ORDER_MARK, count_newlines, is_blank
from packer.source.partition import Partition, nominal

_SOLID = np.ones(256, np.bool_)
_SOLID[list(BLANK)] = False


def split_lines(chunks: Iterable[bytes], *, max_row_bytes: int) -> Iterator[tuple[bytes | None, int]]:
    """Cut a stream into rows, each with its line from 1.

    A row of more than `max_row_bytes` comes as None and is never held in memory. Blanks around a row are not part of
    what is handed out, but count towards its size.
    """
    open_line = _OpenLine(max_row_bytes)
    number = 1
    for chunk in chunks:
        num_blank = 0
        if b"\n" in chunk and is_blank(chunk):  # many lines, and none of them is a row
            num_blank = count_newlines(chunk) - 1
            chunk = chunk[: chunk.index(b"\n")] + chunk[chunk.rindex(b"\n") :]  # noqa: PLW2901
        first, *rest = chunk.split(b"\n")
        open_line.add(first)
        if not rest:
            continue
        yield from open_line.take(number)
        *whole, last = rest
        for each, line in enumerate(whole, number + 1):
            row = line.strip(BLANK)
            if row:
                yield row if len(line) <= max_row_bytes else None, each
        number += len(rest) + num_blank
        open_line.add(last)
    yield from open_line.take(number)


@dataclass(slots=True)
class _OpenLine:
    """A line whose newline has not been seen yet."""

    max_row_bytes: int
    num_bytes: int = 0
    blank: bool = True
    pieces: list[bytes] = field(default_factory=list)

    def add(self, piece: bytes) -> None:
        self.num_bytes += len(piece)
        self.blank = self.blank and is_blank(piece)
        if self.num_bytes <= self.max_row_bytes:
            self.pieces.append(piece)
        else:
            self.pieces.clear()

    def take(self, number: int) -> Iterator[tuple[bytes | None, int]]:
        if not self.blank:
            yield b"".join(self.pieces).strip(BLANK) if self.num_bytes <= self.max_row_bytes else None, number
        self.num_bytes, self.blank, self.pieces = 0, True, []


class LineCutter:
    """Cuts a stream of JSON lines; keeps the open partition's digest and counts, never its bytes."""

    def __init__(self, *, path: Path, partition_bytes: int, limit: int | None) -> None:
        self._path = path
        self._partition_bytes = partition_bytes
        self._limit = limit
        self._partitions: list[Partition] = []
        self._num_rows = 0  # of the file, up to here
        self._num_lines = 0  # of the file, those that have ended
        self.position = 0  # bytes of the file, up to here
        self._in_line = False
        self._line_counted = False  # whether the open line is known to be a row
        self._full = False  # the limit is reached, and its last row has ended
        self._open(nominal=0, start=0, first_line=0)

    def _open(self, *, nominal: int, start: int, first_line: int) -> None:
        self._nominal = nominal
        self._start = start
        self._first_row = self._num_rows
        self._first_line = first_line
        self._stop = start
        self._xxh3 = xxhash.xxh3_128()

    def _close(self) -> None:
        if self._num_rows == self._first_row:
            return  # nothing but blank lines
        self._partitions.append(
            Partition(
                path=self._path,
                format="jsonl",
                start=self._start,
                stop=self._stop,
                first_row=self._first_row,
                first_line=self._first_line,
                num_rows=self._num_rows - self._first_row,
                xxh3=self._xxh3.hexdigest(),
            )
        )

    def add(self, chunk: bytes) -> None:
        """Take the next bytes of the file. The first chunk holds at least the byte order mark, if there is one."""
        if not self._full:
            self._cut(chunk)
        self.position += len(chunk)

    def finish(self) -> tuple[Partition, ...]:
        self._close()
        return tuple(self._partitions)

    def _cut(self, chunk: bytes) -> None:
        r"""Assign the chunk's lines, and the rest of the line that was open, to partitions.

        Worked example: a chunk ``d"}\n{"e":1}\n{"f`` met inside a line has pieces at 0, 4 and 12. The piece at 0 is the
        rest of a line that was counted when it began; the one at 12 will be open when the next chunk comes.
        """
        data = np.frombuffer(chunk, np.uint8)
        begins = np.append(0, np.flatnonzero(data == ord("\n")) + 1)
        num_ended = len(begins) - 1
        if begins[-1] == len(chunk):
            begins = begins[:-1]
        counts = self._counts(data, begins)
        places = nominal(self.position + begins, self._partition_bytes)
        if self._in_line:
            places[0] = self._nominal
        kept = self._within_limit(counts)
        ends = np.append(begins[1:], len(chunk))[:kept]
        if kept:
            self._assign(chunk, begins[:kept], ends, places[:kept], counts[:kept])
        self._full = kept < len(begins)
        self._num_lines += num_ended
        self._line_counted = bool(counts[-1]) or (self._line_counted and self._in_line and len(begins) == 1)
        self._in_line = chunk[-1:] != b"\n"

    def _counts(self, data: npt.NDArray[np.uint8], begins: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which pieces make a line count as a row: those that bring its first byte that is not blank."""
        counts: npt.NDArray[np.bool_] = _SOLID[data[begins]]  # the first byte is nearly always enough
        marked = self.position == 0 and data[:3].tobytes() == BYTE_ORDER_MARK
        if marked or not counts.all():
            solid = _SOLID[data]
            solid[: 3 * marked] = False
            counts = np.logical_or.reduceat(solid, begins)
        if self._in_line and self._line_counted:
            counts[0] = False
        return counts

    def _within_limit(self, counts: npt.NDArray[np.bool_]) -> int:
        """How many of the pieces are taken: up to the end of the line that fills the limit."""
        if self._limit is None:
            return len(counts)
        missing = self._limit - self._num_rows
        if missing == 0:
            return int(self._in_line)
        return min(int(np.searchsorted(np.cumsum(counts), missing)) + 1, len(counts))

    def _assign(
        self,
        chunk: bytes,
        begins: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
        counts: npt.NDArray[np.bool_],
    ) -> None:
        view = memoryview(chunk)
        cuts = np.flatnonzero(np.diff(places)) + 1
        bounds = [0, *cuts.tolist(), len(places)]
        for first, last in pairwise(bounds):
            begin, end = int(begins[first]), int(ends[last - 1])
            if places[first] != self._nominal:
                self._close()
                # Every piece but the first follows the end of a line.
                self._open(nominal=int(places[first]), start=self.position + begin, first_line=self._num_lines + first)
            self._xxh3.update(view[begin:end])
            self._num_rows += int(np.count_nonzero(counts[first:last]))
            self._stop = self.position + end
