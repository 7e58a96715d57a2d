"""Partitions, the pieces of an input file that are built one by one, and how a file is cut into them in one pass.

Nominal cuts are at fixed positions, so cuts depend only on the file and on `partition_bytes`. Nominal partitions
grow: eight of an eighth of `partition_bytes`, eight of a quarter, eight of a half, then all of `partition_bytes`. So a
file of a few megabytes keeps many processes busy, and one of a terabyte does not yield too many shards.

JSON lines are cut by bytes: a line belongs to the partition that contains its first byte, so appending to a file
changes only its last partitions. A JSON array, CSV, and any compressed file is one partition. Parquet and Arrow are
cut by row groups; their partitions are identified by the sha256 of the file and the numbers of their groups, so any
change of the file changes all of them.

Worked example, `partition_bytes` = 80: nominal cuts are at 10, 20, … 80, then at 100, 120, … 240, at 280, … 560, and
then at every 80. Lines of 4, 9, 12 and 2 bytes begin at 0, 4, 13 and 25, so they belong to the nominal partitions 0, 0,
1 and 2, which are the bytes [0, 13), [13, 25) and [25, 27). If the third line had 20 bytes, the fourth would begin at
33, and there would be no partition for the nominal 2.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
import xxhash

from packer.source.file_bytes import (
    BLANK,
    BYTE_ORDER_MARK,
    TABLE_FORMATS,
    Codec,
    FilePath,
    FileStatus,
    Format,
    codec_of,
    file_sha256,
    no_rows_error,
    read_chunks,
    tee_chunks,
    text_stream,
)
from packer.source.table_files import Group, GroupRange, row_groups
from packer.source.text_rows import text_rows

MAX_PIECES = 16
"""Maximum number of pieces of a large row group. Reading a piece also decodes the rows before it in its group: for 16
pieces, that is 8.5 times the group in total."""

_NEWLINE = ord("\n")
_IS_BLANK = np.zeros(256, np.bool_)
_IS_BLANK[[*BLANK]] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """The state of a Parquet or Arrow file when it was cut into partitions, and the groups of one of them."""

    status: FileStatus
    sha256: str
    groups: GroupRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A piece of an input file that is read, tokenized and stored as a unit; it has at least one row."""

    path: FilePath
    format: Format
    start: int  # bytes
    stop: int  # bytes; for Parquet, start and stop are offsets in the uncompressed data
    first_row: int = 0
    """Number of rows in the file before this partition."""

    first_line: int = 0
    """Number of lines in the file before this partition, including blank ones; 0 if its rows are not lines."""

    num_rows: int
    xxh3: str
    """xxh3-128 in hexadecimal: of the bytes `start` … `stop`; for a table, of the file's sha256 and which groups."""

    codec: Codec | None = None
    """How the bytes are compressed."""

    table: TableFile | None = None

    @property
    def num_bytes(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePartitions:
    """A file and its partitions, in order; together they contain each of its rows exactly once."""

    sha256: str
    """Digest of the whole file, including rows beyond a limit."""

    num_bytes: int
    partitions: tuple[Partition, ...]

    @property
    def num_rows(self) -> int:
        """Number of rows in the partitions, at most the limit."""
        return sum(partition.num_rows for partition in self.partitions)


def partition_file(path: FilePath, *, format: Format, partition_bytes: int, limit: int | None = None) -> FilePartitions:  # noqa: A002 - the recipe's word
    """Cut a file into partitions in one pass, holding about a megabyte in memory.

    `partition_bytes` is the distance between nominal cuts, except for the first, closer ones. Only the first `limit`
    rows are used.
    """
    if format in TABLE_FORMATS:
        sha256, num_bytes, partitions = _cut_table(path, format, partition_bytes, limit)
    else:
        sha, lengths = hashlib.sha256(), list[int]()
        with _aside(sha.update) as hash_aside:
            chunks = tee_chunks(read_chunks(path), hash_aside, lambda chunk: lengths.append(len(chunk)))
            codec = codec_of(path)
            if format == "jsonl" and codec is None:
                partitions = list(_cut_lines(path, chunks, partition_bytes, limit))
            else:  # one, whose rows are counted without being held in memory
                xxh3 = xxhash.xxh3_128()
                stream = text_stream(path, tee_chunks(chunks, xxh3.update), codec)
                num_rows = sum(1 for _ in text_rows(path, stream, format, columns={}, max_row_bytes=0))
                num_rows = num_rows if limit is None else min(num_rows, limit)
                end, digest = sum(lengths), xxh3.hexdigest()
                whole = Partition(
                    path=path, format=format, start=0, stop=end, num_rows=num_rows, xxh3=digest, codec=codec
                )
                partitions = [whole] if num_rows else []
        sha256, num_bytes = sha.hexdigest(), sum(lengths)
    if not partitions:
        raise no_rows_error(path)
    return FilePartitions(sha256=sha256, num_bytes=num_bytes, partitions=tuple(partitions))


@contextmanager
def _aside(update: Callable[[bytes], None]) -> Iterator[Callable[[bytes], None]]:
    """Yield a function that hashes in a thread what it is given, while the caller cuts it; done after the context."""
    with ThreadPoolExecutor(1, thread_name_prefix="packer-hashing") as thread:
        hashing: list[Future[None]] = []

        def hash_aside(data: bytes) -> None:
            if hashing:
                hashing.pop().result()  # one piece at a time is in memory
            hashing.append(thread.submit(update, data))

        yield hash_aside


def smallest_partition(partition_bytes: int) -> int:
    """Return the size in bytes of the first nominal partition: a larger file has several partitions."""
    return max(1, partition_bytes // 8)


def nominal_end(position: int, partition_bytes: int) -> int:
    """Return where the nominal partition that contains a byte of the file ends."""
    start = 0
    for size in (smallest_partition(partition_bytes) << growth for growth in range(3)):
        if position < start + 8 * size:
            break
        start += 8 * size
    else:
        size = partition_bytes
    return start + ((position - start) // size + 1) * size


def _cut_lines(path: FilePath, chunks: Iterator[bytes], partition_bytes: int, limit: int | None) -> Iterator[Partition]:
    start = first_row = first_line = 0  # of the partition
    position = num_rows = num_lines = 0  # before the chunk
    xxh3 = xxhash.xxh3_128()

    def until(stop: int, num_rows: int) -> Iterator[Partition]:
        if num_rows > first_row:
            yield Partition(
                path=path,
                format="jsonl",
                start=start,
                stop=stop,
                first_row=first_row,
                first_line=first_line,
                num_rows=num_rows - first_row,
                xxh3=xxh3.hexdigest(),
            )

    for chunk, stops, are_rows in _line_ends(chunks):
        rows = num_rows + np.cumsum(are_rows)
        hashed = 0  # bytes of the chunk
        while first_row != limit:
            # The last line of the partition: the next one begins behind the nominal partition, or is not wanted.
            last = int(np.searchsorted(stops, nominal_end(start, partition_bytes)))
            last = last if limit is None else min(last, int(np.searchsorted(rows, limit)))
            if last == len(stops):
                xxh3.update(chunk[hashed:])
                break
            stop, row = int(stops[last]), int(rows[last])
            xxh3.update(chunk[hashed : stop - position])
            yield from until(stop, row)
            start, first_row, first_line, hashed = stop, row, num_lines + last + 1, stop - position
            xxh3 = xxhash.xxh3_128()
        position += len(chunk)
        num_lines += len(stops)
        num_rows += int(np.count_nonzero(are_rows))
    if first_row != limit:
        yield from until(position, num_rows)


def _line_ends(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, npt.NDArray[np.int64], npt.NDArray[np.bool_]]]:
    """Yield each chunk with the lines that end in it: where in the file, and whether they contain a row.

    If the last line has no newline, an empty chunk follows, in which it ends.
    """
    position, is_row = 0, False  # is_row: of the line that the chunk begins in, so far
    is_open = False
    for chunk in chunks:
        begin = len(BYTE_ORDER_MARK) if position == 0 and chunk.startswith(BYTE_ORDER_MARK) else 0
        content = np.frombuffer(chunk, np.uint8)
        newlines = np.flatnonzero(content == _NEWLINE)
        starts = np.concatenate(([begin], newlines + 1))
        # Nearly every line is a row, as its first byte shows; an empty line begins with its newline.
        first = content[starts[:-1]]
        are_rows = ~_IS_BLANK[first]
        for number in np.flatnonzero(_IS_BLANK[first] & (first != _NEWLINE)):
            are_rows[number] = bool(chunk[starts[number] : newlines[number]].strip(BLANK))
        rest_is_row = bool(chunk[starts[-1] :].strip(BLANK))
        if len(newlines):
            are_rows[0] |= is_row
        is_row = rest_is_row or (is_row and not len(newlines))
        is_open = not chunk.endswith(b"\n")
        yield chunk, newlines + (position + 1), are_rows
        position += len(chunk)
    if is_open:
        yield b"", np.array([position]), np.array([is_row])


def _cut_table(
    path: FilePath, kind: Format, partition_bytes: int, limit: int | None
) -> tuple[str, int, list[Partition]]:
    status = FileStatus.of(path)
    groups, sha256 = row_groups(path, kind), file_sha256(path)
    partitions: list[Partition] = []
    num_rows = 0
    for run in cut_groups(groups, partition_bytes, limit):
        key = f"{sha256} {run.first_group} {run.num_groups} {run.skip}"
        partitions.append(
            Partition(
                path=path,
                format=kind,
                start=run.start,
                stop=run.stop,
                first_row=num_rows,
                num_rows=run.num_rows,
                xxh3=xxhash.xxh3_128_hexdigest(key.encode()),
                table=TableFile(status=status, sha256=sha256, groups=run),
            )
        )
        num_rows += run.num_rows
    return sha256, status.num_bytes, partitions


def cut_groups(groups: Sequence[Group], partition_bytes: int, limit: int | None = None) -> list[GroupRange]:
    """Return the partitions of a table, in order, up to `limit` rows; each has at least one row.

    The nominal cuts are applied to the groups' uncompressed sizes. A group of more than `partition_bytes` is cut by
    rows into pieces of about that size, at most `MAX_PIECES`, because many files consist of a single group.

    Worked example, `partition_bytes` = 80, groups of 6, 6, 30 and 200 bytes: they begin at 0, 6, 12 and 42, in the
    nominal partitions 0, 0, 1 and 4. So the first two are one partition, the third is one, and the last is cut into
    three.
    """
    runs: list[GroupRange] = []
    start = end = 0  # start of the group; end of the nominal partition that the last run belongs to
    for number, group in enumerate(groups):
        is_large = group.num_bytes > partition_bytes
        if group.num_rows and start < end and not is_large:
            num_groups, num_rows = number + 1 - runs[-1].first_group, runs[-1].num_rows + group.num_rows
            runs[-1] = runs[-1]._replace(num_groups=num_groups, num_rows=num_rows, stop=group.stop)
        elif group.num_rows:
            num_pieces = min(max(-(-group.num_bytes // partition_bytes), 1), MAX_PIECES, group.num_rows)
            cuts = pairwise(group.num_rows * i // num_pieces for i in range(num_pieces + 1))
            runs += [GroupRange(number, 1, first, stop - first, group.start, group.stop) for first, stop in cuts]
            end = 0 if is_large else nominal_end(start, partition_bytes)
        start += group.num_bytes
    wanted = sum(run.num_rows for run in runs) if limit is None else limit
    with_rows_before = zip(runs, accumulate((run.num_rows for run in runs), initial=0), strict=False)
    return [run._replace(num_rows=min(run.num_rows, wanted - num)) for run, num in with_rows_before if num < wanted]
