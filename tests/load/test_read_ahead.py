"""Several steps planned and read in one go, several micro-batches laid out in one go: the same ones as one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_blocks import small_cache
from small_micro_batches import assert_same

from packer.load import PackedLoader, reading
from packer.load.ordered_rows import PADDING_ROW
from packer.load.reading import group_steps
from packer.load.row_source import StepPlan


def planned(num_rows, num_real=None):
    rows = np.arange(num_rows)
    rows[num_real if num_real is not None else num_rows :] = PADDING_ROW
    real = num_rows if num_real is None else num_real
    return StepPlan(epoch=0, rows=rows, num_rows=real, coverage=0.5, next_cursor=0)


@given(sizes=st.lists(st.integers(1, 40), max_size=60), most=st.integers(1, 100), ends=st.sets(st.integers(0, 59)))
def test_groups_are_the_same_steps_in_order_and_bounded(sizes, most, ends):
    """One step first; never more than 16, nor beyond the rows, but for a last step; nothing behind padding rows."""
    steps = [planned(size, size - 1 if number in ends and size > 1 else None) for number, size in enumerate(sizes)]
    made = list(group_steps(iter(steps), max_rows=most))
    assert [step for some in made for step in some] == steps
    assert [len(some) for some in made[:1]] == [1] * bool(steps)
    for some in made:
        assert 1 <= len(some) <= 16
        assert sum(len(step.rows) for step in some[:-1]) <= most
        assert all(step.num_rows == len(step.rows) for step in some[:-1])


@pytest.mark.parametrize("end", ["drop", "pad", "short"])
@pytest.mark.parametrize(("flatten", "labels"), [(True, "unshifted"), (False, "shifted")])
def test_steps_and_micro_batches_read_in_one_go_are_those_read_one_by_one(monkeypatch, end, flatten, labels):
    """All columns, states and sizes, over three epochs, with micro-batches of one and of three rows."""
    cache = small_cache(41)
    for micro_batch_size in (1, 3):
        options = {
            "micro_batch_size": micro_batch_size,
            "global_batch_size": 6,
            "rank": 1,
            "world_size": 2,
            "end": end,
            "flatten": flatten,
            "labels": labels,
        }
        taken = []
        for tokens in (1, 1 << 18):
            monkeypatch.setattr(reading, "_MAX_TOKENS", tokens)
            with PackedLoader(cache, prefetch=0, **options) as loader:
                steps = loader.endless()
                taken.append([(next(steps), loader.state_dict()) for _ in range(20)])
        for (one, state_one), (other, state_other) in zip(*taken, strict=True):
            assert state_one == state_other
            assert one.block_ids.tolist() == other.block_ids.tolist()
            assert len(one) == len(other)
            for alone, together in zip(one, other, strict=True):
                assert_same(alone, together)
