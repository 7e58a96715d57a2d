"""The bounds that the columns of a cache keep, whoever wrote it: checked once, where a record batch is opened.

Digests show that bytes are those that were written, but anybody can write others, with digests of their own. So what a
number refers to is checked before it is used, and nothing after that looks again. The numbers of a manifest are checked
when it is decoded (:mod:`packer.store.manifest`). Token ids are not looked at here, as that would read the whole file.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from packer.batches import SIDES, Bool, Int64
from packer.layout import offsets_of
from packer.media.columns import Media
from packer.store.arrow_columns import BlockRows, DocumentRows, Ragged, flat_values
from packer.store.entries import Shard

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


def check_documents(rows: DocumentRows, shard: Shard) -> None:
    """Check the columns of a record batch of documents, all but the values of its tokens, as :func:`check_column`."""
    for name in ("length", "num_trained", "row", "side"):
        if (values := getattr(rows, name)) is not None:
            check_column(name, values, shard)
    for name in ("input_ids", "labels", "loss_weights"):
        if (column := getattr(rows, name)) is not None:
            _check(_counts(name, column) == rows.length, f"length is not the number of {name}")
    for name, values in rows.values.items():
        if isinstance(values, Ragged):
            _check(_counts(name, values) == rows.length, f"length is not the number of {name}")
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


def check_blocks(rows: BlockRows, shard: Shard) -> None:
    """Check the columns of a record batch of blocks, all but the values of its tokens, as :func:`check_column`."""
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
    _check(_row_sums(rows.seq_lengths) == block_len, f"seq_lengths: expected a sum of {block_len}")


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


def _row_sums(column: Ragged) -> Int64:
    """Return the sum of each row of a list column.  # int64[R]"""
    sums: Int64 = offsets_of(_values(column))[column.offsets - column.offsets[0]]
    return np.diff(sums)


def _check(holds: Bool, rule: str, offsets: npt.NDArray[np.integer] | None = None) -> None:
    """Name the first row of a record batch that breaks a rule, which `holds` for rows or for values with `offsets`."""
    if not holds.all():
        first = int(holds.argmin())
        row = first if offsets is None else int(np.searchsorted(offsets - offsets[0], first, side="right")) - 1
        raise OutOfBounds(rule, row)
