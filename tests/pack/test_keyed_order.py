"""Dealing: decreasing sizes, equal ones in keyed order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.pack.pack_plan import keyed_order, order_key, shuffled

GOLDEN = [9, 2, 0, 7, 3, 5, 6, 8, 1, 4]
GOLDEN_SHUFFLE = [2, 1, 0, 7, 4, 3, 5, 6]


def literal_order(sizes, key):
    """By size, then by a hash of the number in the bits that sizes and numbers leave of 64, then by the number."""
    bits = 64 - max(sizes).bit_length() - (len(sizes) - 1).bit_length()

    def hashed(number):
        value = (number + int(key)) % 2**64
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
        return value >> 64 - bits

    return sorted(range(len(sizes)), key=lambda number: (-sizes[number], hashed(number), number))


def dealt(sizes, seed=0):
    sizes = np.array(sizes, np.int32)
    return keyed_order(sizes, order_key("test", seed)).tolist()


@given(st.lists(st.integers(0, 2**20), min_size=1, max_size=50), st.integers(0, 99))
def test_the_order_is_that_of_the_literal_hash(sizes, seed):
    assert dealt(sizes, seed) == literal_order(sizes, order_key("test", seed))


def test_golden_order():
    """The same on every platform and version: a cache depends on it."""
    assert dealt([3, 1, 3, 3, 1, 3, 2, 3, 1, 3], seed=5) == GOLDEN
    assert shuffled(8, order_key("test", 5)).tolist() == GOLDEN_SHUFFLE


def test_equal_items_are_in_an_order_that_shows_no_trace_of_the_source():
    """Of 20,000 items in a random order, half the steps ascend, and about one step leads to a neighbor."""
    order = np.array(dealt([7] * 20_000))
    steps = np.diff(order)
    assert abs(np.count_nonzero(steps > 0) - 10_000) < 300
    assert np.count_nonzero(np.abs(steps) == 1) < 12
    assert abs(np.abs(steps).mean() / (20_000 / 3) - 1) < 0.03
    assert abs(np.corrcoef(order, np.arange(20_000))[0, 1]) < 0.03


@pytest.mark.parametrize("n", [0, 1, 2, 3, 255, 256, 257, 70_000])
def test_a_shuffle_is_a_permutation(n):
    assert sorted(shuffled(n, order_key("test", n)).tolist()) == list(range(n))
