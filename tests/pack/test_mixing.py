"""The measure of how mixed blocks are by source, and that plans are mixed."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from whole_documents import mixing_of, plan_whole

from packer.batches import PackPlan


def plan_of(blocks):
    document = np.array([d for block in blocks for d in block], np.int64)
    return PackPlan(
        document=document,
        start=np.zeros(len(document), np.int64),
        length=np.ones(len(document), np.int32),
        slots=np.ones(len(document), np.int32),
        block_offsets=np.cumsum([0, *map(len, blocks)]),
    )


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), max_size=6), st.data())
def test_pairs_are_those_counted_one_by_one(blocks, data):
    source = data.draw(st.lists(st.integers(0, 3), min_size=10, max_size=10))
    step = data.draw(st.integers(1, 3))
    found = mixing_of(plan_of(blocks), np.array(source), blocks=step)
    windows = [list(chain(*blocks[first : first + step])) for first in range(0, len(blocks), step)]

    def pairs(documents):
        return list(combinations([source[d] for d in documents], 2))

    within, overall = list(chain(*map(pairs, windows))), pairs(chain(*windows))
    assert (found.pairs_within, found.same_within) == (len(within), sum(a == b for a, b in within))
    assert (found.pairs_overall, found.same_overall) == (len(overall), sum(a == b for a, b in overall))


def test_known_mixings():
    source = np.array([0, 0, 1, 1])
    assert mixing_of(plan_of([[0, 1], [2, 3]]), source).index == 0
    assert mixing_of(plan_of([[0, 2], [1, 3]]), source).index == pytest.approx(1.5)
    assert mixing_of(plan_of([[0, 1], [2, 3]]), source, blocks=2).index == pytest.approx(1)


def test_where_there_is_nothing_to_mix_the_index_is_one():
    for blocks, source in (([], [0, 0]), ([[0], [1]], [0, 1]), ([[0, 1]], [0, 0])):
        found = mixing_of(plan_of(blocks), np.array(source))
        assert found.index == 1


LENGTHS = {
    "equal": np.full(40_000, 10),
    "few lengths": np.random.default_rng(0).integers(8, 12, 40_000),
    "log-normal": np.clip(np.random.default_rng(1).lognormal(4, 1, 40_000), 1, 1000).astype(np.int32),
}


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("blocks", [1, 16])
def test_blocks_and_windows_of_blocks_are_mixed_as_by_chance(name, blocks):
    """With sources that are stretches of the source, and with sources that take turns."""
    packed = plan_whole(LENGTHS[name], 1000)
    number = np.arange(40_000)
    for source in (number // 5_000, number % 8):
        assert abs(mixing_of(packed, source, blocks=blocks).index - 1) < 0.01


@pytest.mark.parametrize("name", LENGTHS)
def test_neighbors_of_the_source_share_a_block_no_more_often_than_by_chance(name):
    """Pairs of neighbors are few: their number in blocks is within five standard deviations of what chance gives."""
    for shift in (0, 1):
        found = mixing_of(plan_whole(LENGTHS[name], 1000), (np.arange(40_000) + shift) // 2)
        expected = found.same_overall * found.pairs_within / found.pairs_overall
        assert expected > 10
        assert abs(found.same_within - expected) < 5 * expected**0.5
