"""Grouped best-fit decreasing against the same done item by item."""

from collections import Counter
from itertools import combinations_with_replacement
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack.oracles import best_fit_count, literal_best_fit_decreasing, optimum

from packer.pack.pack_plan import decreasing


def runs_of(lengths, capacity):
    distinct, counts = np.unique(np.array(lengths, np.int64), return_counts=True)
    return decreasing(distinct[::-1], counts[::-1], capacity)


def grouped(lengths, capacity):
    """Lengths of each bin, from the runs."""
    runs = runs_of(lengths, capacity)
    bins = [[] for _ in range(runs.total_bins)]
    columns = (runs.first_bin, runs.num_bins, runs.items_per_bin, runs.length)
    for first, num_bins, count, length in zip(*(column.tolist() for column in columns), strict=True):
        for number in range(first, first + num_bins):
            bins[number] += [length] * count
    return bins


@st.composite
def items(draw):
    """Many different lengths, or few that repeat; and a capacity."""
    capacity = draw(st.integers(12, 60))
    if draw(st.booleans()):
        return draw(st.lists(st.integers(1, capacity), max_size=60)), capacity
    histogram = draw(st.dictionaries(st.integers(1, 12), st.integers(1, 30), max_size=8))
    return [length for length, count in histogram.items() for _ in range(count)], capacity


@settings(max_examples=2 * settings.default.max_examples)
@given(case=items())
def test_bins_are_those_of_literal_best_fit_decreasing(case):
    assert grouped(*case) == literal_best_fit_decreasing(*case)


@pytest.mark.parametrize(
    "capacity", [1, 3, 5, 7, *(pytest.param(large, marks=pytest.mark.slow) for large in (2, 4, 6, 8, 9, 10))]
)
def test_bins_of_every_choice_of_up_to_eight_items_are_within_eleven_ninths_of_the_optimum(capacity):
    """And the bound is worth testing: only for the smallest capacities is the optimum always reached."""
    excess = Counter()
    for num_items in range(9):
        for lengths in combinations_with_replacement(range(capacity, 0, -1), num_items):
            number, best = runs_of(lengths, capacity).total_bins, optimum(lengths, capacity)
            assert best <= number
            assert 9 * number <= 11 * best + 6
            excess[number - best] += 1
    assert excess.total() == comb(capacity + 8, 8)
    assert set(excess) == {0} if capacity < 7 else excess[1] > 0


@pytest.mark.parametrize("capacity", [512, 131072])
def test_the_number_of_bins_is_that_of_classic_best_fit_decreasing_for_many_items(capacity):
    random = np.random.default_rng(capacity)
    lengths = np.clip(random.lognormal(5, 1, 5_000), 1, capacity).astype(np.int64).tolist()
    lengths += random.integers(1, capacity, 2_000, endpoint=True).tolist()
    assert runs_of(lengths, capacity).total_bins == best_fit_count(lengths, capacity)


def test_the_number_of_runs_does_not_grow_with_the_number_of_items():
    lengths = np.arange(500, 0, -1)
    few = decreasing(lengths, np.full(500, 10), 2048)
    many = decreasing(lengths, np.full(500, 1_000_000), 2048)
    assert many.total_bins > 50_000 * few.total_bins
    assert len(many.first_bin) < 10_000
