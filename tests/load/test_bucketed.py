"""Orders of neighbors of one length: every document once, little padding, and no pattern in the order of the steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.load.ordering import BUCKET, WINDOW, BucketedOrder, EpochOrder


def order_of(num_items, seed=0):
    """An order, and the lengths of its documents."""
    lengths = np.random.default_rng(0).lognormal(4, 1, num_items).astype(np.int32) + 1
    random = EpochOrder(fingerprint="f00d", seed=seed, num_items=num_items, shuffled=True)
    return BucketedOrder(random, lengths, fingerprint="f00d", seed=seed), lengths


def whole(order, epoch=0):
    return order.rows(epoch, 0, order.num_items)


@pytest.mark.parametrize("num_items", [1, 2, BUCKET, BUCKET + 1, 1000, WINDOW, WINDOW + 1, 3 * WINDOW + 77])
def test_every_document_comes_once_an_epoch(num_items):
    order, _ = order_of(num_items)
    for epoch in range(2):
        assert np.array_equal(np.sort(whole(order, epoch)), np.arange(num_items))


@given(
    slices=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 20_000), st.integers(0, 20_000)), min_size=1, max_size=4
    )
)
def test_a_slice_equals_that_slice_of_the_whole_whatever_was_asked_before(slices):
    order, _ = order_of(20_000)
    for epoch, *bounds in slices:
        start, stop = sorted(bounds)
        expected = whole(order_of(20_000)[0], epoch)[start:stop]
        assert np.array_equal(order.rows(epoch, start, stop), expected)


def test_windows_hold_what_the_random_order_holds_there():
    order, _ = order_of(3 * WINDOW)
    random = EpochOrder(fingerprint="f00d", seed=0, num_items=3 * WINDOW, shuffled=True)
    for window in range(3):
        place = {"epoch": 1, "start": window * WINDOW, "stop": (window + 1) * WINDOW}
        assert sorted(order.rows(**place).tolist()) == sorted(random.rows(**place).tolist())


def test_runs_hold_neighbors_of_the_sorted_window_and_come_in_no_order():
    order, lengths = order_of(WINDOW)
    runs = lengths[whole(order)].reshape(-1, BUCKET)
    by_length = np.lexsort((runs[:, -1], runs[:, 0]))
    assert (np.diff(runs, axis=1) >= 0).all()
    assert (runs[by_length][1:, 0] >= runs[by_length][:-1, -1]).all()
    ranks = np.argsort(by_length)
    assert abs(np.corrcoef(np.arange(len(ranks)), ranks)[0, 1]) < 0.3  # 128 runs: deviation 0.09


def test_padding_of_batches_no_larger_than_a_run_falls_to_a_few_percent():
    order, all_lengths = order_of(4 * WINDOW)

    def padding(numbers):
        lengths = all_lengths[numbers].reshape(-1, 16)
        return 1 - lengths.sum() / (lengths.max(axis=1) * 16).sum()

    random = EpochOrder(fingerprint="f00d", seed=0, num_items=4 * WINDOW, shuffled=True)
    assert padding(whole(random)) > 0.5
    assert padding(whole(order)) < 0.05


def test_golden_order():
    order, _ = order_of(300, seed=7)
    assert whole(order, 2)[[0, 1, 63, 64, 128, 256, 299]].tolist() == GOLDEN


GOLDEN = [23, 35, 271, 194, 148, 135, 219]
