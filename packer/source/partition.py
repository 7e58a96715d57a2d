"""Cutting an input file into partitions, the pieces that are built one by one.

JSON lines are cut by bytes: nominal cuts lie at fixed places, and a line belongs to the partition in which its first
byte lies. So cuts depend on nothing but the file and `partition_bytes`, and appending to the file changes only its last
partitions.

Nominal partitions grow: eight of an eighth of `partition_bytes`, eight of a quarter, eight of a half, then all of
`partition_bytes`. So a file of a few megabytes keeps many processes busy, and one of a terabyte is no heap of shards.

Worked example, `partition_bytes` = 80: nominal cuts lie at 10, 20, … 80, then at 100, 120, … 240, at 280, … 560, and
then at every 80. Lines of 4, 9, 12 and 2 bytes begin at 0, 4, 13 and 25, so they belong to the nominal partitions 0, 0,
1 and 2, which are the bytes [0, 13), [13, 25) and [25, 27). Had the third line 20 bytes, the fourth would begin at 33,
and there would be no partition for the nominal 2.

A JSON array, CSV, and whatever is compressed is one partition. Parquet and Arrow files are cut by
:mod:`packer.source.groups`.
"""

import hashlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, cast, get_args

import numpy as np
import numpy.typing as npt
import xxhash

from packer.source.chunks import BYTE_ORDER_MARK, READ_BYTES, broken_array, no_rows, read_chunks, without_mark
from packer.source.compression import Codec, codec_of, decompressed
from packer.source.csv_rows import CsvFormat, split_csv
from packer.source.elements import BrokenArray, split_elements
from packer.source.groups import cut_groups, nominal
from packer.source.lines import BLANK, split_lines
from packer.source.table_digest import digest_extents, digest_run, extent_of
from packer.source.tables import TableFormat, open_table

Format = Literal["jsonl", "json", "csv", "tsv", "parquet", "arrow"]

CSV_FORMATS = get_args(CsvFormat)
TABLE_FORMATS = get_args(TableFormat)

_SOLID = np.ones(256, np.bool_)
_SOLID[list(BLANK)] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A piece of an input file that is read, tokenized and kept as one; holds at least one row."""

    path: Path
    format: Format
    start: int  # bytes
    stop: int  # bytes
    first_row: int
    """Rows of the file before this partition."""

    first_line: int
    """Lines of the file before this partition, blank ones too; 0 where its rows are no lines."""

    num_rows: int
    xxh3: str
    """xxh3-128 of bytes `start` … `stop`, in hexadecimal; of groups see :mod:`packer.source.table_digest`."""

    codec: Codec | None = None
    """How the bytes are compressed."""

    first_group: int = 0
    num_groups: int = 0
    """Groups of a Parquet or Arrow file."""

    skip: int = 0
    """Rows of the first group before this partition."""

    @property
    def num_bytes(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePartitions:
    """A file and its partitions, in order; together they hold each of its rows once."""

    sha256: str
    """Of the whole file, rows beyond a limit too."""

    num_bytes: int
    num_rows: int
    """Rows in the partitions: at most the limit."""

    partitions: tuple[Partition, ...]


def partition_file(path: Path, *, format: Format, partition_bytes: int, limit: int | None = None) -> FilePartitions:  # noqa: A002 - the recipe's word
    """Cut a file into partitions in one pass, a megabyte in memory at a time.

    Args:
        path: The file.
        format: As :func:`~packer.source.detect.detect_format` says.
        partition_bytes: Distance of the nominal cuts, but for the first ones.
        limit: Take only this many rows, from the start of the file.

    Raises:
        InputError: the file cannot be read, holds no rows, or is not the array its format says.

    """
    if format in TABLE_FORMATS:
        return _table(path, cast("TableFormat", format), partition_bytes, limit)
    codec = codec_of(path)
    with _Sha256() as sha256:
        chunks = _hashed(read_chunks(path), sha256)
        if format == "jsonl" and codec is None:
            cutter = _LineCutter(path=path, partition_bytes=partition_bytes, limit=limit)
            for chunk in chunks:
                cutter.add(chunk)
            num_bytes, partitions = cutter.position, cutter.finish()
        else:
            num_bytes, partitions = _whole_file(path, chunks, format, codec, limit)
        if not partitions:
            raise no_rows(path)
        digest = sha256.hexdigest()
    return FilePartitions(
        sha256=digest,
        num_bytes=num_bytes,
        num_rows=sum(partition.num_rows for partition in partitions),
        partitions=partitions,
    )


class _Sha256:
    """sha256 of a stream, in a thread of its own once the stream is long: it takes as long as to cut what is hashed."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._num_chunks = 0
        self._thread: ThreadPoolExecutor | None = None
        self._pending: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def update(self, chunk: bytes) -> None:
        self._num_chunks += 1
        if self._num_chunks <= _CHUNKS_AHEAD:
            self._digest.update(chunk)
            return
        self._thread = self._thread or ThreadPoolExecutor(1)
        self._pending.append(self._thread.submit(self._digest.update, chunk))
        if len(self._pending) > _CHUNKS_AHEAD:
            self._pending.popleft().result()

    def hexdigest(self) -> str:
        while self._pending:
            self._pending.popleft().result()
        return self._digest.hexdigest()


_CHUNKS_AHEAD = 8
"""Of a megabyte each, that may wait to be hashed."""


def _hashed(chunks: Iterator[bytes], digest: "_Sha256 | xxhash.xxh3_128") -> Iterator[bytes]:
    for chunk in chunks:
        digest.update(chunk)
        yield chunk


def _whole_file(
    path: Path, chunks: Iterator[bytes], kind: Format, codec: Codec | None, limit: int | None
) -> tuple[int, tuple[Partition, ...]]:
    xxh3 = xxhash.xxh3_128()
    num_bytes = 0

    def counted() -> Iterator[bytes]:
        nonlocal num_bytes
        for chunk in _hashed(chunks, xxh3):
            num_bytes += len(chunk)
            yield chunk

    num_rows = _count_rows(path, counted(), kind, codec)
    if num_rows == 0:
        return num_bytes, ()
    whole = Partition(
        path=path,
        format=kind,
        start=0,
        stop=num_bytes,
        first_row=0,
        first_line=0,
        num_rows=num_rows if limit is None else min(num_rows, limit),
        xxh3=xxh3.hexdigest(),
        codec=codec,
    )
    return num_bytes, (whole,)


def _count_rows(path: Path, chunks: Iterator[bytes], kind: Format, codec: Codec | None) -> int:
    """Rows of a file that is read as a whole. No row is held."""
    first = next(chunks, None)
    if first is None:
        return 0
    text = without_mark(decompressed(path, chain([first], chunks), codec))
    if kind == "jsonl":
        return sum(1 for _ in split_lines(text, max_row_bytes=0))
    if kind in CSV_FORMATS:
        # Of a record of CSV a megabyte, for the header must be read.
        table = split_csv(path, text, cast("CsvFormat", kind), max_row_bytes=READ_BYTES)
        return sum(1 for _ in table.records)
    try:
        # No element is held: every one is larger than no bytes at all.
        return sum(1 for _ in split_elements(text, max_row_bytes=0))
    except BrokenArray as error:
        raise broken_array(path, error) from None


def _table(path: Path, kind: TableFormat, partition_bytes: int, limit: int | None) -> FilePartitions:
    table = open_table(path, kind)
    runs = cut_groups(table.groups, partition_bytes, limit)
    extents = [extent_of(run, table.groups) for run in runs]
    digests = digest_extents(path, extents)
    partitions: list[Partition] = []
    num_rows = 0
    for run, extent in zip(runs, extents, strict=True):
        partitions.append(
            Partition(
                path=path,
                format=kind,
                start=extent.start,
                stop=extent.stop,
                first_row=num_rows,
                first_line=0,
                num_rows=run.num_rows,
                xxh3=digest_run(table.outline, digests.of_extent[extent], run.skip),
                first_group=run.first_group,
                num_groups=run.num_groups,
                skip=run.skip,
            )
        )
        num_rows += run.num_rows
    if not partitions:
        raise no_rows(path)
    return FilePartitions(
        sha256=digests.sha256,
        num_bytes=digests.num_bytes,
        num_rows=num_rows,
        partitions=tuple(partitions),
    )


class _LineCutter:
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
        r"""Deal the chunk's lines, and the rest of the line that was open, to partitions.

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
            self._deal(chunk, begins[:kept], ends, places[:kept], counts[:kept])
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

    def _deal(
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
