"""Cutting an input file into partitions, in one pass over its bytes.

JSON lines are cut by bytes (:mod:`packer.source.json_lines`), Parquet and Arrow by row groups
(:mod:`packer.source.row_groups`). A JSON array, CSV, and whatever is compressed is one partition.

A partition of a table is known by the sha256 of its file and by the numbers of its groups, so a change of the file
changes all its partitions.
"""

import hashlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import cast

import xxhash

from packer.source.compression import Codec, codec_of, decompressed
from packer.source.file_bytes import broken_array, no_rows, read_chunks, without_mark
from packer.source.json_array import BrokenArray
from packer.source.json_lines import LineCutter
from packer.source.partition import (
    TABLE_FORMATS,
    FilePartitions,
    FileStatus,
    Format,
    Partition,
    TableFile,
    TableFormat,
)
from packer.source.row_groups import cut_groups
from packer.source.rows import text_rows
from packer.source.tables import row_groups, table_sha256


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
        sha256, num_bytes, partitions = _table(path, cast("TableFormat", format), partition_bytes, limit)
    else:
        codec = codec_of(path)
        with _sha256() as digest:
            chunks = _hashed(read_chunks(path), digest)
            if format == "jsonl" and codec is None:
                cutter = LineCutter(path=path, partition_bytes=partition_bytes, limit=limit)
                for chunk in chunks:
                    cutter.add(chunk)
                num_bytes, partitions = cutter.position, cutter.finish()
            else:
                num_bytes, partitions = _whole_file(path, chunks, format, codec, limit)
            sha256 = digest.hexdigest()
    if not partitions:
        raise no_rows(path)
    num_rows = sum(partition.num_rows for partition in partitions)
    return FilePartitions(sha256=sha256, num_bytes=num_bytes, num_rows=num_rows, partitions=partitions)


class _Sha256:
    """sha256 of a stream, in a thread of its own: it takes as long as to cut what is hashed."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._digest = hashlib.sha256()
        self._thread = thread
        self._pending: deque[Future[None]] = deque()

    def update(self, chunk: bytes) -> None:
        self._pending.append(self._thread.submit(self._digest.update, chunk))
        if len(self._pending) > _CHUNKS_AHEAD:
            self._pending.popleft().result()

    def hexdigest(self) -> str:
        while self._pending:
            self._pending.popleft().result()
        return self._digest.hexdigest()


_CHUNKS_AHEAD = 8
"""Of a megabyte each, that may wait to be hashed."""


@contextmanager
def _sha256() -> Iterator[_Sha256]:
    thread = ThreadPoolExecutor(1)
    try:
        yield _Sha256(thread)
    finally:
        thread.shutdown(cancel_futures=True)


def _hashed(chunks: Iterator[bytes], digest: _Sha256 | xxhash.xxh3_128) -> Iterator[bytes]:
    for chunk in chunks:
        digest.update(chunk)
        yield chunk


def _whole_file(
    path: Path, chunks: Iterator[bytes], kind: Format, codec: Codec | None, limit: int | None
) -> tuple[int, tuple[Partition, ...]]:
    """Number of bytes, and the partition; none where there are no rows. No row is held, but for records of CSV."""
    xxh3 = xxhash.xxh3_128()
    num_bytes = 0

    def counted() -> Iterator[bytes]:
        nonlocal num_bytes
        for chunk in _hashed(chunks, xxh3):
            num_bytes += len(chunk)
            yield chunk

    first = next(chunks, None)
    if first is None:
        return 0, ()
    chunks = chain([first], chunks)
    text = without_mark(decompressed(path, counted(), codec))
    try:
        num_rows = sum(1 for _ in text_rows(path, text, kind, columns={}, max_row_bytes=0))
    except BrokenArray as error:
        raise broken_array(path, error) from None
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


def _table(
    path: Path, kind: TableFormat, partition_bytes: int, limit: int | None
) -> tuple[str, int, tuple[Partition, ...]]:
    status = FileStatus.of(path)
    groups = row_groups(path, kind)
    file = TableFile(status=status, sha256=table_sha256(path))
    partitions: list[Partition] = []
    num_rows = 0
    for run in cut_groups(groups, partition_bytes, limit):
        own = [group for group in groups[run.first_group : run.first_group + run.num_groups] if group.num_rows]
        key = f"{file.sha256} {run.first_group} {run.num_groups} {run.skip}"
        partitions.append(
            Partition(
                path=path,
                format=kind,
                start=own[0].start,
                stop=own[-1].stop,
                first_row=num_rows,
                first_line=0,
                num_rows=run.num_rows,
                xxh3=xxhash.xxh3_128_hexdigest(key.encode()),
                table=file,
                first_group=run.first_group,
                num_groups=run.num_groups,
                skip=run.skip,
            )
        )
        num_rows += run.num_rows
    return file.sha256, status.num_bytes, tuple(partitions)
