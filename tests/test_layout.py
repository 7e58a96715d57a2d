"""Each function of packer.layout against its definition, written out item by item."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from packer.batches import DocumentBatch
from packer.layout import (
    concatenated_ranges,
    document_labels,
    offsets_of,
    positions,
    taken_ranges,
    trained_tokens,
)

seq_lengths = st.lists(st.integers(0, 9), max_size=12)


@st.composite
def documents(draw):
    """A batch of documents whose trained runs do not overlap, and the same as plain lists."""
    plain = []
    for number in range(draw(st.integers(0, 5))):
        length = draw(st.integers(1, 12))
        borders = sorted(draw(st.sets(st.integers(1, length), max_size=6)))
        if len(borders) % 2:
            borders.pop()
        runs = [*zip(borders[::2], borders[1::2], strict=True)]
        plain.append(([100 * number + t for t in range(length)], runs))
    runs = [run for _, document_runs in plain for run in document_runs]
    batch = DocumentBatch(
        input_ids=np.array([token for ids, _ in plain for token in ids], np.int32),
        offsets=np.cumsum([0, *(len(ids) for ids, _ in plain)]),
        sample=np.zeros(len(plain), np.int32),
        sample_id=(None,) * len(plain),
        run_offsets=np.cumsum([0, *(len(document_runs) for _, document_runs in plain)]),
        run_start=np.array([run[0] for run in runs], np.int32),
        run_end=np.array([run[1] for run in runs], np.int32),
        run_message=np.zeros(len(runs), np.int32),
    )
    return batch, plain


def run_of(runs, t):
    return next((run for run in runs if run[0] <= t < run[1]), None)


@given(seq_lengths)
def test_offsets_bound_every_piece(lengths):
    expected = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
    for with_reasoning_as in (lengths, np.array(lengths, np.int32), np.array(lengths, np.uint64)):
        result = offsets_of(with_reasoning_as)
        assert result.dtype == np.int64
        assert result.tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 9)), max_size=12))
def test_concatenated_ranges_are_the_ranges_one_after_another(ranges):
    starts, lengths = np.array([r[0] for r in ranges], np.int64), np.array([r[1] for r in ranges], np.int32)
    result = concatenated_ranges(starts, lengths)
    assert result.dtype == np.int64
    assert result.tolist() == [t for start, length in ranges for t in range(start, start + length)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=12))
def test_taken_ranges_are_the_values_of_these_ranges(gaps):
    values, place, starts = np.arange(200), 0, []
    for gap, length in gaps:
        starts.append(place + gap)
        place += gap + length
    lengths = np.array([length for _, length in gaps], np.int64)
    starts = np.array(starts, np.int64)
    assert taken_ranges(values, starts, lengths).tolist() == values[concatenated_ranges(starts, lengths)].tolist()


def test_offsets_and_ranges_reach_beyond_32_bits():
    assert offsets_of(np.full(3, 2**30, np.int32)).tolist() == [0, 2**30, 2**31, 3 * 2**30]
    assert concatenated_ranges(np.array([2**40]), np.array([2], np.int32)).tolist() == [2**40, 2**40 + 1]


@given(seq_lengths)
def test_positions_count_from_zero_in_every_sequence(lengths):
    result = positions(np.array(lengths, np.int32))
    assert result.dtype == np.int32
    assert result.tolist() == [t for length in lengths for t in range(length)]


@given(documents())
def test_labels_are_the_ids_of_the_trained_runs(case):
    batch, plain = case
    expected = [token if run_of(runs, t) else -100 for ids, runs in plain for t, token in enumerate(ids)]
    result = document_labels(batch)
    assert result.dtype == np.int32
    assert result.tolist() == expected
    assert trained_tokens(batch).tolist() == [label != -100 for label in expected]
