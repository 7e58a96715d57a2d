"""A shard mapped read-only, with its structure checked before use; or single columns, read from their places.

Three things are checked before any row is mapped: the file's size (accessing a page beyond the end of a truncated file
would kill the process), the schema, and that every record batch is where the manifest says. Values are checked by the
row digests.

Digests show that bytes are those that were written, but anybody can write others, with digests of their own. So what a
number refers to is checked once, where a record batch is opened (`check_rows`), and nothing after that looks again. The
numbers of a manifest are checked when it is decoded (:mod:`packer.store.manifest`). Token ids are not looked at here,
as that would read the whole file.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_128

from packer.batches import SIDES, Bool, Int64, UInt64
from packer.display import repair_hint
from packer.errors import CheckError, StorageError
from packer.host.files import out_of, storage_errors
from packer.layout import offsets_of
from packer.media.carried import Media
from packer.store.arrow_columns import BlockRows, DocumentRows, Ragged, digest_values, flat_values, numbers, shard_rows
from packer.store.entries import blocks_schema, documents_schema, place_of, value_fields
from packer.store.files import CacheFiles, damage
from packer.store.manifest import Place, Shard, StoredTable


class MappedShard:
    """A memory-mapped Arrow file; record batches are parsed, and their rows checked, on demand."""

    def __init__(self, folder: Path, shard: Shard, mapped: pa.Buffer) -> None:
        self._folder = folder
        self.shard = shard
        self._mapped = mapped
        self._reader = pa.ipc.open_file(pa.BufferReader(mapped))
        self.block_len = check_schema(shard, self._reader.schema)
        """Block length of a block shard; 0 for documents."""

        if self._reader.num_record_batches != len(shard.places):
            raise ValueError(f"expected {len(shard.places)} record batches, found {self._reader.num_record_batches}")
        self._opened: list[tuple[Any, UInt64] | None] = [None] * len(shard.places)
        self._is_verified = False

    def batch(self, number: int) -> pa.RecordBatch:
        """Return a record batch, after checking that it is where the manifest says."""
        expected = self.shard.places[number]
        with as_damage(self._folder, self.shard):
            batch = self._reader.get_batch(number)
            batch.validate()
            if place_of(batch, base=self._mapped.address, first_row=expected.first_row) != expected:
                raise ValueError(f"record batch {number} is not where the manifest says")
        return batch

    def rows(self, number: int) -> tuple[Any, UInt64]:
        """Return the rows of a record batch, whose numbers are within their bounds, and their stored digests."""
        if (opened := self._opened[number]) is None:
            batch = self.batch(number)
            try:
                opened = shard_rows(batch, self.shard.kind), numbers(batch.column("digest"))
                check_rows(opened[0], self.shard)
            except ValueError as error:
                first_row = self.shard.places[number].first_row
                row = f"row {first_row + error.row}: " if isinstance(error, OutOfBounds) else ""
                raise damage(self._folder, self.shard.path, f"is damaged: {row}{error}") from None
            self._opened[number] = opened
        return opened

    def verify_row_digests(self) -> None:
        """Check, once, that the row digests are those of the manifest: intact rows may be those of another file."""
        if self._is_verified:
            return
        digest = xxh3_128()
        with as_damage(self._folder, self.shard):
            for place in self.shard.places:
                offset = place.columns["digest"]
                digest.update(np.frombuffer(self._mapped, np.uint64, place.num_rows, offset).data)
        self._compare(self.shard.rows_xxh3, digest.hexdigest())
        self._is_verified = True

    def verify_values(self) -> None:
        """Check the sha256 of all values, as :func:`packer.store.arrow_columns.digest_values` defines it."""
        digest = hashlib.sha256()
        with as_damage(self._folder, self.shard):
            for number in range(len(self.shard.places)):
                digest_values(digest, shard_rows(self.batch(number), self.shard.kind))
        self._compare(self.shard.rows_sha256, digest.hexdigest())

    def _compare(self, expected: str, found: str) -> None:
        if found != expected:
            raise damage(self._folder, self.shard.path, "is damaged: its rows are not those the manifest names")


def check_size(folder: Path, file: Shard | StoredTable) -> None:
    """Compare a file's size with the manifest."""
    if (size := CacheFiles(folder).size(file.path)) != file.num_bytes:
        raise _other_size(folder, file, size)


def check_sizes(folder: Path, files: Sequence[Shard | StoredTable]) -> None:
    """Compare the sizes of many files with the manifest, as :func:`check_size`."""
    sizes = CacheFiles(folder).sizes(file.path for file in files)
    for file in files:
        if sizes[file.path] != file.num_bytes:
            raise _other_size(folder, file, sizes[file.path])


def _other_size(folder: Path, file: Shard | StoredTable, size: int | None) -> CheckError:
    if size is None:
        return damage(folder, file.path, f"is missing: expected {file.num_bytes} bytes")
    state = "truncated" if size < file.num_bytes else "too long"
    return damage(folder, file.path, f"is {state}: expected {file.num_bytes} bytes, found {size}")


def map_shard(folder: Path, shard: Shard) -> MappedShard:
    """Map a shard and check its structure."""
    with as_damage(folder, shard):
        with as_missing(folder, shard):
            CacheFiles(folder).fetch(shard.path)
            check_size(folder, shard)
            mapped = CacheFiles(folder).map(shard.path)
        return MappedShard(folder, shard, mapped)


@contextmanager
def as_missing(folder: Path, shard: Shard | StoredTable) -> Iterator[None]:
    """Report a file that does not exist as missing, even if it was just there: a build may have removed it."""
    try:
        with storage_errors("read", folder / shard.path):
            yield
    except StorageError as error:
        if not isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise
        raise _other_size(folder, shard, None) from None


@contextmanager
def as_damage(folder: Path, shard: Shard | StoredTable) -> Iterator[None]:
    """Convert the errors that Arrow raises for a damaged file to a CheckError."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, MemoryError, KeyError, IndexError) as error:
        if (limit := out_of(error, f"cannot read {folder / shard.path}")) is not None:
            raise limit from error
        raise damage(folder, shard.path, f"is damaged: {error}") from None


def check_schema(shard: Shard, schema: pa.Schema) -> int:
    """Check that a schema is one that packer writes; return its block length."""
    block_len = 0
    if shard.kind == "documents":
        expected = documents_schema(schema.names, value_fields(schema))
    else:
        kind = schema.field("input_ids").type
        block_len = kind.list_size if pa.types.is_fixed_size_list(kind) else 0
        expected = blocks_schema(block_len)
    if not schema.equals(expected, check_metadata=True) or len({*schema.names}) < len(schema.names):
        raise ValueError(f"its schema is not the one of {shard.kind}")
    return block_len


def read_columns(
    folder: Path, wanted: Sequence[tuple[Shard, Sequence[Place]]], columns: Mapping[str, type[np.generic]]
) -> Iterator[list[npt.NDArray[Any]]]:
    """Yield fixed-width columns of some record batches, shard by shard; digests are not checked.

    Only a few shards' columns are in memory at a time. Columns that are stored close together, as ``length`` and
    ``num_trained`` are, take one request to a bucket per record batch. `columns` are names and stored types.

    Yields:
        The columns of each shard.  # [rows of its record batches] each
    """
    sizes = [np.dtype(kind).itemsize for kind in columns.values()]

    def ranges(shard: Shard, places: Sequence[Place]) -> list[tuple[int, int]]:
        try:
            return [
                (place.columns[name], size * place.num_rows)
                for name, size in zip(columns, sizes, strict=True)
                for place in places
            ]
        except KeyError as error:
            raise damage(folder, shard.path, f"is damaged: not all its rows have a {error.args[0]}") from None

    contents = CacheFiles(folder).read_ranges((shard.path, ranges(shard, places)) for shard, places in wanted)
    for shard, places in wanted:
        with as_missing(folder, shard):
            try:
                content = next(contents)
            except CheckError as error:
                raise CheckError(error.message, hint=error.hint or repair_hint(folder)) from None
        num_rows = sum(place.num_rows for place in places)
        starts = offsets_of([size * num_rows for size in sizes]).tolist()
        found = [
            np.frombuffer(content, kind, num_rows, start) for kind, start in zip(columns.values(), starts, strict=False)
        ]
        with as_damage(folder, shard):
            for name, values in zip(columns, found, strict=True):
                check_column(name, values, shard)
        yield found


MAX_INT32 = 2**31 - 1


class OutOfBounds(ValueError):  # noqa: N818 - a value, not the program
    """A row breaks a rule; `row` is its index in the record batch."""

    def __init__(self, rule: str, row: int) -> None:
        super().__init__(rule)
        self.row = row


def check_column(name: str, values: npt.NDArray[Any], shard: Shard) -> None:
    """Check a fixed-width column of some rows of a shard; ValueError if a value is out of its bounds."""
    bounds = {
        "length": (1, shard.num_tokens),
        "num_trained": (0, shard.num_trained),
        "row": (0, MAX_INT32 if shard.source is None else shard.num_input_rows - 1),
        "side": (0, len(SIDES) - 1),
    }
    if name in bounds and len(values):
        least, most = bounds[name]
        if int(values.min()) < least or int(values.max()) > most:
            row = int(np.argmax((values < least) | (values > most)))
            raise OutOfBounds(f"{name}: expected {least} to {most}, found {values[row]}", row)


def check_rows(rows: DocumentRows | BlockRows, shard: Shard) -> None:
    """Check the columns of a record batch, all but the values of its tokens, as :func:`check_column`."""
    if isinstance(rows, DocumentRows):
        _check_documents(rows, shard)
    else:
        _check_blocks(rows, shard)


def _check_documents(rows: DocumentRows, shard: Shard) -> None:
    for name in ("length", "num_trained", "row", "side"):
        if (values := getattr(rows, name)) is not None:
            check_column(name, values, shard)
    lists = {"input_ids": rows.input_ids, "labels": rows.labels, **rows.values}
    for name, column in lists.items():
        if isinstance(column, Ragged):
            _check(_counts(name, column) == rows.length, f"length is not the number of {name}")
    _counts("sample_id", rows.sample_id)
    _check_spans(rows)
    if rows.media is not None:
        _check_media(rows.media, rows)
    _check((np.diff(rows.span_offsets) > 0) | (rows.num_trained == 0), "tokens are trained, and there are no spans")


def _check_spans(rows: DocumentRows) -> None:
    spans = (rows.span_message, rows.span_start, rows.span_end)
    columns = [Ragged(values=each, offsets=rows.span_offsets) for each in spans]
    counts = [_counts("spans", column) for column in columns]
    message, start, end = map(_values, columns)
    is_within = (message >= 0) & (start >= 0) & (start < end) & (end <= np.repeat(rows.length, counts[0]))
    _check(is_within, "a span is not within its document", rows.span_offsets)


def _check_media(media: Media, rows: DocumentRows) -> None:
    counts = _counts("media", Ragged(values=media.places, offsets=media.offsets))
    places = media.places[int(media.offsets[0]) : int(media.offsets[-1])].astype(np.int64)
    is_within = (places[:, 0] >= 0) & (places[:, 0] + places[:, 1] <= np.repeat(rows.length, counts))
    _check(is_within & (places[:, 1:] > 0).all(axis=1), "an image is not within its document", media.offsets)


def _check_blocks(rows: BlockRows, shard: Shard) -> None:
    block_len = rows.input_ids.shape[1]
    for name in ("length", "num_trained"):
        check_column(name, getattr(rows, name), shard)
    _check(rows.length <= block_len, f"length: expected at most {block_len}")
    num_pieces = _counts("doc_ids", rows.doc_ids)
    for name in ("doc_starts", "doc_lengths", "doc_places"):
        _check(_counts(name, getattr(rows, name)) == num_pieces, f"doc_ids and {name} differ in length")
    start, length, place = (_values(each) for each in (rows.doc_starts, rows.doc_lengths, rows.doc_places))
    is_piece = (start >= 0) & (length > 0) & (start <= MAX_INT32 - length)
    _check(is_piece, "a piece that is not inside its document", rows.doc_ids.offsets)
    _check((place >= 0) & (place <= block_len - length), "a piece is not within the block", rows.doc_ids.offsets)
    _counts("seq_lengths", rows.seq_lengths)
    _check(_values(rows.seq_lengths) > 0, "seq_lengths: expected at least 1", rows.seq_lengths.offsets)
    before = offsets_of(_values(rows.seq_lengths))[rows.seq_lengths.offsets - rows.seq_lengths.offsets[0]]
    _check(np.diff(before) == block_len, f"seq_lengths: expected a sum of {block_len}")


def _counts(name: str, column: Ragged) -> npt.NDArray[np.integer]:
    """Return the number of values of each row of a list column, whose offsets ascend within it.  # [R]"""
    offsets = column.offsets
    if int(offsets[0]) < 0 or int(offsets[-1]) > len(column.values) or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"{name} lie outside their column")
    return offsets[1:] - offsets[:-1]


def _values(column: Ragged) -> Int64:
    """Return all values of the rows of a list column.  # int64[K]"""
    values: Int64 = flat_values(column).astype(np.int64)
    return values


def _check(holds: Bool, rule: str, offsets: npt.NDArray[np.integer] | None = None) -> None:
    """Name the first row of a record batch that breaks a rule, which `holds` for rows or for values with `offsets`."""
    if not holds.all():
        first = int(holds.argmin())
        row = first if offsets is None else int(np.searchsorted(offsets - offsets[0], first, side="right")) - 1
        raise OutOfBounds(rule, row)
