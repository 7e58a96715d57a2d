"""Caches of more shards than may be mapped at a time."""

import sys
from pathlib import Path

import numpy as np
import pytest
from small_blocks import random_blocks, write_cache

from packer.store import numbered_rows
from packer.store.cache import Cache


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the maps of a process")
def test_more_shards_than_are_mapped_at_a_time_read_the_same(tmp_path, monkeypatch):
    write_cache(tmp_path, [random_blocks(3, 16, seed=number) for number in range(8)])
    asked = np.random.default_rng(0).permutation(24)
    with Cache.open(tmp_path) as cache:
        expected, digests = cache.blocks("train").read(asked), cache.blocks("train").stored("digest", np.uint64)
    monkeypatch.setattr(numbered_rows, "MOST_MAPS", 2)
    blocks = Cache.open(tmp_path).blocks("train")
    found = blocks.read(asked)
    assert np.array_equal(blocks.stored("digest", np.uint64), digests)
    with Path("/proc/self/maps").open("r") as maps:
        assert len({line.split()[-1] for line in maps if str(tmp_path) in line}) == 2
    assert np.array_equal(found.input_ids, expected.input_ids) and np.array_equal(found.labels, expected.labels)
