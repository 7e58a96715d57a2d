"""The order of an epoch and the arithmetic of steps, against a literal oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import UsageError
from packer.load.ordering import EpochOrder
from packer.load.ranks import filled, split_by_tokens
from packer.load.row_source import check_batch_size, plan_step, steps_left


def order_of(num_blocks, *, fingerprint="f00d", seed=0, kind="random"):
    return EpochOrder(fingerprint=fingerprint, seed=seed, num_items=num_blocks, shuffled=kind == "random")


def epoch_of(order, epoch=0):
    return order.rows(epoch, 0, order.num_items).tolist()


def oracle_steps(order, sizes, end, num_epochs):
    """Literal: whole epochs as Python lists, eaten from the front. Yields (epoch, block numbers)."""
    sizes = iter(sizes)
    epochs = [epoch_of(order, epoch) for epoch in range(num_epochs + 1)]
    epoch, rest = 0, list(epochs[0])
    while epoch < num_epochs:
        size = next(sizes)
        if not rest or (end == "drop" and len(rest) < size):
            epoch += 1
            rest = list(epochs[epoch])
            continue
        step = []
        while len(step) < size:
            if not rest and end == "short":
                break
            step.append(rest.pop(0) if rest else -1)
        yield epoch, step


def test_content_seed_and_epoch_each_give_another_order():
    orders = [
        epoch_of(order_of(1000)),
        epoch_of(order_of(1000, fingerprint="beef")),
        epoch_of(order_of(1000, seed=1)),
        epoch_of(order_of(1000), epoch=1),
    ]
    assert len({tuple(order) for order in orders}) == len(orders)


def test_sequential_order_is_the_order_of_storage_in_every_epoch():
    order = order_of(7, kind="sequential")
    assert epoch_of(order, 0) == epoch_of(order, 5) == list(range(7))


@given(
    num_blocks=st.integers(1, 30),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    end=st.sampled_from(["pad", "short"]),
)
def test_steps_of_changing_sizes_equal_the_literal_oracle(num_blocks, sizes, end):
    order = order_of(num_blocks)
    schedule = sizes + [1] * (3 * num_blocks + 10)
    expected = list(oracle_steps(order, schedule, end, num_epochs=2))
    actual, epoch, cursor, asked = [], 0, 0, iter(schedule)
    while epoch < 2:
        plan = plan_step(order, epoch=epoch, cursor=cursor, size=next(asked), end=end)
        if plan is None:
            epoch, cursor = epoch + 1, 0
            continue
        actual.append((plan.epoch, plan.rows.tolist()))
        cursor = plan.next_cursor
    assert actual
    assert actual == expected


@given(num_blocks=st.integers(1, 60), size=st.integers(1, 60))
def test_drop_gives_whole_steps_and_leaves_out_exactly_the_remainder(num_blocks, size):
    order = order_of(num_blocks)
    if size > num_blocks:
        with pytest.raises(UsageError, match="would drop them all"):
            plan_step(order, epoch=0, cursor=0, size=size, end="drop")
        return
    taken, cursor = [], 0
    while (plan := plan_step(order, epoch=0, cursor=cursor, size=size, end="drop")) is not None:
        taken += plan.rows.tolist()
        cursor = plan.next_cursor
    assert taken == epoch_of(order)[: num_blocks // size * size]


@given(
    num_blocks=st.integers(1, 60),
    size=st.integers(1, 60),
    cursor=st.integers(0, 60),
    end=st.sampled_from(["drop", "pad", "short"]),
    num_epochs=st.integers(0, 4),
)
def test_steps_left_counts_the_plans_that_follow(num_blocks, size, cursor, end, num_epochs):
    order = order_of(num_blocks)
    size, cursor = min(size, num_blocks), min(cursor, num_blocks)
    count, epoch, place = 0, 0, cursor
    while epoch < num_epochs:
        plan = plan_step(order, epoch=epoch, cursor=place, size=size, end=end)
        if plan is None:
            epoch, place = epoch + 1, 0
        else:
            count, place = count + 1, plan.next_cursor
    sizes = {"num_items": num_blocks, "cursor": cursor, "size": size, "end": end}
    assert steps_left(**sizes, num_epochs=num_epochs) == count


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
