"""Grouped best-fit decreasing against best-fit decreasing done item by item."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack.oracles import literal_best_fit_decreasing, optimum

from packer.pack.best_fit import best_fit_decreasing


def grouped(lengths, capacity):
    """Lengths of each bin, from the runs."""
    distinct, counts = np.unique(np.array(lengths, np.int64), return_counts=True)
    runs = best_fit_decreasing(distinct[::-1], counts[::-1], capacity)
    bins = [[] for _ in range(runs.total_bins)]
    for length, number in zip(sorted(lengths, reverse=True), runs.item_bins().tolist(), strict=True):
        bins[number].append(length)
    return bins


@st.composite
def items(draw, max_size=60, max_capacity=40):
    capacity = draw(st.integers(1, max_capacity))
    return draw(st.lists(st.integers(1, capacity), max_size=max_size)), capacity


@given(items())
def test_bins_are_those_of_the_literal_algorithm(case):
    lengths, capacity = case
    assert grouped(lengths, capacity) == literal_best_fit_decreasing(lengths, capacity)


@given(st.dictionaries(st.integers(1, 12), st.integers(1, 30), max_size=8), st.integers(12, 60))
def test_bins_are_those_of_the_literal_algorithm_where_lengths_repeat(histogram, capacity):
    lengths = [length for length, count in histogram.items() for _ in range(count)]
    assert grouped(lengths, capacity) == literal_best_fit_decreasing(lengths, capacity)


@given(items(max_size=8, max_capacity=20))
def test_bins_are_within_eleven_ninths_of_the_optimum(case):
    lengths, capacity = case
    number = len(grouped(lengths, capacity))
    best = optimum(lengths, capacity)
    assert best <= number
    assert 9 * number <= 11 * best + 6


def test_the_oracle_of_the_optimum_beats_best_fit_where_best_fit_errs():
    lengths = [4, 4, 3, 3, 3, 3]
    assert optimum(lengths, 10) == 2
    assert len(grouped(lengths, 10)) == len(literal_best_fit_decreasing(lengths, 10)) == 3


@pytest.mark.parametrize(
    ("lengths", "capacity", "expected"),
    [
        ([], 10, []),
        ([10], 10, [[10]]),
        ([1] * 25, 10, [[1] * 10, [1] * 10, [1] * 5]),
        ([6, 6, 4, 3, 3], 10, [[6, 4], [6, 3], [3]]),
        ([5, 5, 5, 3, 2], 10, [[5, 5], [5, 3, 2]]),
        ([1_048_576, 1, 1_048_575], 1_048_576, [[1_048_576], [1_048_575, 1]]),
    ],
)
def test_known_bins(lengths, capacity, expected):
    assert grouped(lengths, capacity) == expected


def test_the_number_of_runs_does_not_grow_with_the_number_of_items():
    lengths = np.arange(500, 0, -1)
    few = best_fit_decreasing(lengths, np.full(500, 10), 2048)
    many = best_fit_decreasing(lengths, np.full(500, 1_000_000), 2048)
    assert many.total_bins > 50_000 * few.total_bins
    assert len(many.first_bin) < 10_000
