"""What every row of a shard must satisfy, whatever its digest says: a digest only proves that nothing changed since.

Each check is a mask over rows; a broken rule names the rows that break it.
"""

from collections.abc import Iterator

import numpy as np

from packer.batches import Bool, Int64
from packer.layout import MASKED, concatenated_ranges, positions
from packer.pipeline.blocks import BlockForm
from packer.store.arrow_columns import BlockRows, DocumentRows, Ragged
from packer.store.manifest import ModelRecord
from packer.store.schema import BLOCK_PIECES

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
    if rows.loss_weights is None:
        return
    elsewhere = _lies_elsewhere(rows.loss_weights, ids)
    yield "loss_weights", "as many as input_ids", elsewhere
    if not elsewhere.any():
        weights = rows.loss_weights.values[start:end]
        wrong = np.where(trained, ~((weights > 0) & (weights <= 1)), weights != 0)
        yield "loss_weights", "within (0, 1] where trained, 0 elsewhere", _rows_with(wrong, of_token, num_rows)


def block_rules(rows: BlockRows, model: ModelRecord, form: BlockForm) -> Iterator[Rule]:
    """Rules of a record batch of blocks."""
    num_rows, L = rows.input_ids.shape
    ids, labels = rows.input_ids, rows.labels
    trained = labels != MASKED
    yield "length", f"from 1 to {L}", (rows.length < 1) | (rows.length > L)
    yield "input_ids", f"ids from 0 to {model.vocab_size - 1}", _any((ids < 0) | (ids >= model.vocab_size))
    yield "labels", f"{MASKED} or the input id", _any(trained & (labels != ids))
    yield "num_trained", "the number of labels", rows.num_trained != trained.sum(axis=1)
    if rows.loss_weights is not None:
        weights = rows.loss_weights
        wrong = np.where(trained, ~((weights > 0) & (weights <= 1)), weights != 0)
        yield "loss_weights", "within (0, 1] where trained, 0 elsewhere", _any(wrong)
    yield "seq_lengths", f"positive, with the sum {L}", ~_adds_up(rows.seq_lengths, L)
    for name in BLOCK_PIECES[1:]:
        column: Ragged = getattr(rows, name)
        yield name, "one for each piece", column.lengths() != rows.doc_ids.lengths()
    whole = _has_pieces(rows, L)
    yield "doc_lengths", f"from 1 to {L}", ~whole
    broken = {what: np.zeros(num_rows, np.bool_) for what in _LAYOUT}
    for row in np.flatnonzero(whole).tolist():
        for what in _wrong_layout(rows, row, form, model.stop_ids):
            broken[what][row] = True
    yield from ((what, expected, broken[what]) for what, expected in _LAYOUT.items())


_LAYOUT = {
    "length": "the tokens of the pieces",
    "doc_places": "one piece behind the other, as the packing mode has them",
    "runs": "seq_lengths as the packing mode has them, a padding run the last",
    "position_ids": "from 0 in each run",
    "first token of a piece": "masked",
    "between pieces": f"the id the packing mode puts there, label {MASKED}",
    "padding": f"the pad id, label {MASKED}",
}
"""What the pieces of a block and the mode of packing say about the rest of it."""


def _wrong_layout(rows: BlockRows, row: int, form: BlockForm, stop_ids: tuple[int, ...]) -> Iterator[str]:
    """Keys of :data:`_LAYOUT` that a block breaks; its pieces are positive and not longer than it."""
    ids, labels, L = rows.input_ids[row], rows.labels[row], form.block_len
    lengths, places = rows.doc_lengths.row(row).astype(np.int64), rows.doc_places.row(row).astype(np.int64)
    if int(rows.length[row]) != int(lengths.sum()):
        yield "length"
    if int(places.min()) < 0 or int((places + lengths).max()) > L:
        yield "doc_places"
        return
    slots = -(-lengths // form.align) * form.align
    if form.separator_id is not None:
        ends_open = ~np.isin(ids[places + lengths - 1], stop_ids)
        slots = np.minimum(lengths + ends_open, L)
    filled = int(slots.sum())
    if filled > L or not np.array_equal(places, np.cumsum(slots) - slots):
        yield "doc_places"
        return
    runs = np.append([filled] if form.one_run else slots, [L - filled] * (filled < L)).astype(np.int64)
    if not np.array_equal(rows.seq_lengths.row(row), runs):
        yield "runs"
    if not np.array_equal(rows.position_ids[row], positions(runs)):
        yield "position_ids"
    if (labels[places] != MASKED).any():
        yield "first token of a piece"
    between, padding = concatenated_ranges(places + lengths, slots - lengths), np.arange(filled, L)
    filler = form.pad_id if form.separator_id is None else form.separator_id
    for what, empty, expected in (("between pieces", between, filler), ("padding", padding, form.pad_id)):
        if (ids[empty] != expected).any() or (labels[empty] != MASKED).any():
            yield what


def _has_pieces(rows: BlockRows, L: int) -> Bool:
    """Rows with pieces, each of a length that a block can hold, and a place for each."""
    counts = rows.doc_ids.lengths()
    good: Bool = (counts > 0) & (rows.doc_lengths.lengths() == counts) & (rows.doc_places.lengths() == counts)
    for row in np.flatnonzero(good).tolist():
        lengths = rows.doc_lengths.row(row)
        good[row] = len(lengths) == counts[row] and int(lengths.min()) > 0 and int(lengths.max()) <= L
    return good


def _lies_elsewhere(column: Ragged, ids: Ragged) -> Bool:
    """Rows whose values are not as many as their ids, or not in the same places.  # bool[R]"""
    differ = column.offsets != ids.offsets
    found: Bool = differ[1:] | differ[:-1]
    return found


def _adds_up(runs: Ragged, L: int) -> Bool:
    good = np.zeros(len(runs.offsets) - 1, np.bool_)
    for row in range(len(good)):
        lengths = runs.row(row)
        good[row] = len(lengths) > 0 and int(lengths.min()) > 0 and int(lengths.sum(dtype=np.int64)) == L
    return good


def _any(wrong: Bool) -> Bool:
    """Rows of a table that have a True.  # bool[R]"""
    found: Bool = np.asarray(wrong.any(axis=1))
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
