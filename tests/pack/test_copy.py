"""Copying ranges by windows equals copying them one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.pack.copy import copy_ranges


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=200),
    gap=st.integers(0, 3),
    dtype=st.sampled_from([np.int32, np.float32]),
    seed=st.integers(0, 99),
)
def test_windows_copy_what_slices_copy(lengths, gap, dtype, seed):
    random = np.random.default_rng(seed)
    source = random.permutation(300).astype(dtype)
    other = -source
    sizes = np.array(lengths)
    starts = random.integers(0, len(source) - sizes, endpoint=True)
    places = np.zeros(len(sizes), np.int64)
    order = random.permutation(len(sizes))
    places[order] = np.cumsum(sizes[order] + gap) - sizes[order]
    expected = np.zeros(int((sizes + gap).sum()), dtype)
    for start, place, size in zip(starts, places, sizes, strict=True):
        expected[place : place + size] = source[start : start + size]
    target, target_of_other = np.zeros_like(expected), np.zeros_like(expected)
    source.flags.writeable = False
    copy_ranges([(source, target), (other, target_of_other)], starts, places, sizes)
    assert np.array_equal(target, expected)
    assert np.array_equal(target_of_other, -expected)


@pytest.mark.parametrize("count", [1, 11, 12, 50])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6, 7, 8, 1023, 1024, 1025, 1536, 1537])
def test_every_length_is_copied_whole_and_no_further(length, count):
    source = np.arange(1, 1 + length * count, dtype=np.int32)
    target = np.zeros(length * count + 2, np.int32)
    starts = np.arange(count) * length
    copy_ranges([(source, target)], starts, starts[::-1] + 1, np.full(count, length))
    assert target[[0, -1]].tolist() == [0, 0]
    assert np.array_equal(target[1:-1].reshape(count, length), source.reshape(count, length)[::-1])


def test_a_window_outside_the_source_is_refused():
    source, target = np.zeros(100, np.int32), np.zeros(100, np.int32)
    starts = np.arange(12) * 8
    starts[3] = 95
    with pytest.raises(IndexError):
        copy_ranges([(source, target)], starts, np.arange(12) * 8, np.full(12, 8))
