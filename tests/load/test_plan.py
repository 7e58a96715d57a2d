"""What decides an order, sizes that no step can have, and how few micro-batches a budget takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import UsageError
from packer.load.ordering import EpochOrder
from packer.load.ranks import filled, split_by_tokens
from packer.load.row_source import check_batch_size


def test_content_seed_and_epoch_each_give_another_order():
    keys = [("f00d", 0, 0), ("beef", 0, 0), ("f00d", 1, 0), ("f00d", 0, 1)]
    orders = [
        EpochOrder(fingerprint=fingerprint, seed=seed, num_items=1000, shuffled=True).rows(epoch)
        for fingerprint, seed, epoch in keys
    ]
    assert len({tuple(order.tolist()) for order in orders}) == len(keys)


@pytest.mark.parametrize(
    ("size", "nearest"), [(10, "nearest: 8 or 16"), (3, "nearest: 8"), (0, "nearest: 8"), (-8, "nearest: 8")]
)
def test_a_batch_size_that_cannot_be_dealt_names_the_nearest_that_can(size, nearest):
    with pytest.raises(UsageError, match="not a positive multiple") as caught:
        check_batch_size(size, micro_batch_size=2, world_size=4)
    assert caught.value.hint == nearest


def test_rows_of_just_over_half_a_budget_are_divided_at_once():
    """Attempts with every number of micro-batches from the smallest on would take minutes."""
    for length, each in ((2100, 1), (1400, 2), (820, 4)):
        lengths = np.full(8_000, length)
        groups = split_by_tokens(lengths, None, budget=4096, multiple=1)
        assert len(groups) == 8_000 // each and {len(group) for group in groups} == {each}
    mixed = np.where(np.arange(24_000) % 3, 900, 2500)
    assert len(split_by_tokens(mixed, None, budget=4096, multiple=1)) == 8_000 + 8_000 // 4


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=40),
    budget=st.integers(40, 90),
    multiple=st.integers(1, 4),
)
def test_the_bounds_on_micro_batches_leave_out_only_numbers_that_fail(lengths, budget, multiple):
    lengths = np.array(lengths)
    number = -(-int(lengths.sum()) // budget)
    number += -number % multiple
    while filled(lengths, lengths, room=budget, number=number) is None:
        number += multiple
    assert len(split_by_tokens(lengths, None, budget=budget, multiple=multiple)) == number
