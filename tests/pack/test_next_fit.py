"""Next-fit by cumulative lengths against next-fit item by item."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack.oracles import literal_next_fit, optimum

from packer.pack.pack_plan import next_fit


def bins_of(lengths, capacity, max_items=None):
    bounds = next_fit(np.array(lengths, np.int32), capacity, max_items=max_items).tolist()
    assert (bounds[0], bounds[-1]) == (0, len(lengths))
    return [lengths[first:last] for first, last in pairwise(bounds)]


@st.composite
def items(draw):
    capacity = draw(st.integers(1, 30))
    return draw(st.lists(st.integers(1, capacity), max_size=80)), capacity


@given(case=items(), max_items=st.none() | st.integers(1, 5))
def test_bins_are_those_of_the_literal_algorithm(case, max_items):
    assert bins_of(*case, max_items) == literal_next_fit(*case, max_items)


@pytest.mark.parametrize(("capacity", "most"), [(1, 8), (2, 8), (3, 6), (4, 5), (7, 4)])
def test_bins_of_every_sequence_of_few_items_are_fewer_than_twice_the_optimum(capacity, most):
    seen = 0
    for num_items in range(1, most + 1):
        for lengths in product(range(1, capacity + 1), repeat=num_items):
            number, best = len(next_fit(np.array(lengths), capacity)) - 1, optimum(lengths, capacity)
            assert best <= number < 2 * best
            seen += 1
    assert seen == sum(capacity**n for n in range(1, most + 1))
