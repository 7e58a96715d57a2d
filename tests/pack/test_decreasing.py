"""Grouped best-fit decreasing against the same done item by item."""

from collections import Counter
from itertools import combinations_with_replacement
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack.oracles import (
    best_fit_count,
    literal_best_fit_decreasing,
    optimum,
)

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
def items(draw, max_size=60, max_capacity=40):
    capacity = draw(st.integers(1, max_capacity))
    return draw(st.lists(st.integers(1, capacity), max_size=max_size)), capacity


@given(case=items())
def test_bins_are_those_of_the_literal_algorithm(case):
    assert grouped(*case) == literal_best_fit_decreasing(*case)


@given(
    histogram=st.dictionaries(st.integers(1, 12), st.integers(1, 30), max_size=8),
    capacity=st.integers(12, 60),
)
def test_bins_are_those_of_the_literal_algorithm_where_lengths_repeat(histogram, capacity):
    lengths = [length for length, count in histogram.items() for _ in range(count)]
    assert grouped(lengths, capacity) == literal_best_fit_decreasing(lengths, capacity)


@given(case=items(max_size=8, max_capacity=20))
def test_bins_are_within_eleven_ninths_of_the_optimum(case):
    number, best = len(grouped(*case)), optimum(*case)
    assert best <= number
    assert 9 * number <= 11 * best + 6


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


def test_the_oracle_of_the_optimum_beats_it_where_it_errs():
    lengths = [4, 4, 3, 3, 3, 3]
    assert optimum(lengths, 10) == 2
    assert len(grouped(lengths, 10)) == len(literal_best_fit_decreasing(lengths, 10)) == 3


@pytest.mark.parametrize("capacity", [512, 2048, 8192, 131072])
def test_the_number_of_bins_is_the_classic_one_for_many_items(capacity):
    random = np.random.default_rng(capacity)
    lengths = np.clip(random.lognormal(5, 1, 5_000), 1, capacity).astype(np.int64).tolist()
    lengths += random.integers(1, capacity, 2_000, endpoint=True).tolist()
    assert runs_of(lengths, capacity).total_bins == best_fit_count(lengths, capacity)


def test_no_bin_takes_one_length_in_two_runs():
    random = np.random.default_rng(3)
    runs = runs_of(random.integers(1, 60, 5_000).tolist(), 200)
    bins, lengths = runs.bins(), np.repeat(runs.length, runs.num_bins)
    assert len(bins) > runs.total_bins
    assert len(np.unique(bins * 1000 + lengths)) == len(bins)


def test_the_depth_of_a_run_is_the_number_of_runs_before_it_in_each_of_its_bins():
    random = np.random.default_rng(4)
    runs = runs_of(random.integers(1, 150, 5_000).tolist(), 400)
    seen = np.zeros(runs.total_bins, np.int64)
    for first, num_bins, depth in zip(runs.first_bin, runs.num_bins, runs.depth, strict=True):
        assert (seen[first : first + num_bins] == depth).all()
        seen[first : first + num_bins] += 1
    assert runs.depth.max() >= 2


def test_the_number_of_runs_does_not_grow_with_the_number_of_items():
    lengths = np.arange(500, 0, -1)
    few = decreasing(lengths, np.full(500, 10), 2048)
    many = decreasing(lengths, np.full(500, 1_000_000), 2048)
    assert many.total_bins > 50_000 * few.total_bins
    assert len(many.first_bin) < 10_000
