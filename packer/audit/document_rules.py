"""What every document of a shard must satisfy, whatever its digest says: that only proves that nothing changed since.

Each check is a mask over rows; a broken rule names the rows that break it.
"""

from collections.abc import Iterator

import numpy as np

from packer.batches import Bool, Int64
from packer.layout import MASKED
from packer.store.arrow_columns import DocumentRows, Ragged
from packer.store.digest import document_ids
from packer.store.manifest import ModelRecord

Rule = tuple[str, str, Bool]
"""What is compared, what is expected, and the rows that break it.  # bool[R]"""


def document_rules(rows: DocumentRows, model: ModelRecord) -> Iterator[Rule]:
    """Rules of a record batch of documents whose lists Arrow has validated."""
    ids, labels = rows.input_ids, rows.labels
    elsewhere = _lies_elsewhere(labels, ids)
    yield "labels", "as many labels as input_ids", elsewhere
    yield "length", "the number of input_ids", rows.length != ids.lengths()
    if elsewhere.any():
        return
    of_token = np.repeat(np.arange(len(rows.row)), ids.lengths())
    start, end = int(ids.offsets[0]), int(ids.offsets[-1])
    tokens, targets = ids.values[start:end], labels.values[start:end]
    trained = targets != MASKED
    num_rows = len(rows.row)
    yield (
        "input_ids",
        f"ids from 0 to {model.vocab_size - 1}",
        _rows_with((tokens < 0) | (tokens >= model.vocab_size), of_token, num_rows),
    )
    yield "labels", f"{MASKED} or the input id", _rows_with(trained & (targets != tokens), of_token, num_rows)
    filled = np.flatnonzero(ids.lengths() > 0)
    first = np.zeros(num_rows, np.bool_)
    first[filled] = trained[ids.offsets[:-1][filled] - start]
    yield "first token", "masked", first
    yield "num_trained", "the number of labels", rows.num_trained != _count(trained, of_token, num_rows)
    yield "spans", "exactly the trained runs", _spans_differ(rows, trained, of_token, start)
    yield "doc_id", "the digest of ids, labels and weights", _doc_ids(rows) != rows.doc_id
    if rows.loss_weights is None:
        return
    elsewhere = _lies_elsewhere(rows.loss_weights, ids)
    yield "loss_weights", "as many as input_ids", elsewhere
    if not elsewhere.any():
        weights = rows.loss_weights.values[start:end]
        wrong = np.where(trained, ~((weights > 0) & (weights <= 1)), weights != 0)
        yield "loss_weights", "within (0, 1] where trained, 0 elsewhere", _rows_with(wrong, of_token, num_rows)


def _doc_ids(rows: DocumentRows) -> Int64:
    weights = rows.loss_weights
    if weights is not None and not np.array_equal(weights.offsets, rows.input_ids.offsets):
        weights = None  # they have a finding of their own
    return document_ids(
        input_ids=rows.input_ids.values,
        labels=rows.labels.values,
        loss_weights=None if weights is None else weights.values,
        offsets=rows.input_ids.offsets.astype(np.int64),
    )


def _lies_elsewhere(column: Ragged, ids: Ragged) -> Bool:
    """Rows whose values are not as many as their ids, or not in the same places.  # bool[R]"""
    differ = column.offsets != ids.offsets
    found: Bool = differ[1:] | differ[:-1]
    return found


def _rows_with(wrong: Bool, of_token: Int64, num_rows: int) -> Bool:
    """Rows that have a token where `wrong` is True."""
    found = np.zeros(num_rows, np.bool_)
    found[of_token[wrong]] = True
    return found


def _count(trained: Bool, of_token: Int64, num_rows: int) -> Int64:
    return np.bincount(of_token[trained], minlength=num_rows)


def _spans_differ(rows: DocumentRows, trained: Bool, of_token: Int64, start: int) -> Bool:
    """Rows whose spans do not cover exactly their trained tokens.

    Worked example: labels . x x . x and spans [1, 3), [4, 5): adding 1 at 1 and 4, -1 at 3 and 5 and summing up gives
    0 1 1 0 1, which is the mask. Spans that touch ([1, 2), [2, 3)) are fine: they are two messages.
    """
    num_rows = len(rows.row)
    counts = np.diff(rows.span_offsets)
    first, last = int(rows.span_offsets[0]), int(rows.span_offsets[-1])
    of_span = np.repeat(np.arange(num_rows), counts)
    starts, ends = rows.span_start[first:last], rows.span_end[first:last]
    wrong_span = (starts < 1) | (ends <= starts) | (ends > rows.input_ids.lengths()[of_span])
    differ = np.zeros(num_rows, np.bool_)
    differ[of_span[wrong_span]] = True
    base = rows.input_ids.offsets[:-1][of_span] - start
    steps = np.zeros(len(trained) + 1, np.int64)
    np.add.at(steps, (base + starts)[~wrong_span], 1)
    np.add.at(steps, (base + ends)[~wrong_span], -1)
    covered = np.cumsum(steps[:-1])
    differ |= _rows_with(covered != trained, of_token, num_rows)
    return differ
