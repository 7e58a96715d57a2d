"""Rows cut out of a read, against a read of those rows."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_blocks import small_cache

from packer.batches import BlockBatch
from packer.load.rows import rows_between


@pytest.mark.parametrize("weighted", [True, False])
@given(
    asked=st.lists(st.integers(0, 11), min_size=1, max_size=12),
    bounds=st.tuples(st.integers(0, 12), st.integers(0, 12)),
)
def test_rows_cut_out_of_a_read_equal_a_read_of_them(weighted, asked, bounds):
    blocks = small_cache(12, weighted=weighted).blocks("train")
    start, stop = sorted(min(bound, len(asked)) for bound in bounds)
    cut = rows_between(blocks.read(np.array(asked)), start, stop)
    expected = blocks.read(np.array(asked[start:stop], np.int64))
    for field in fields(BlockBatch):
        found, wanted = getattr(cut, field.name), getattr(expected, field.name)
        if wanted is None:
            assert found is None
        else:
            assert found.dtype == wanted.dtype
            assert np.array_equal(found, wanted)
