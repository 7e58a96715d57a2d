"""Rows read from a file instead of through a map of it: the same rows, and the same damage found."""

import os
import pickle
import re
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_blocks import random_blocks, small_cache, write_cache
from small_documents import small_document_cache

from packer.batches import BlockBatch
from packer.errors import CheckError
from packer.store import numbered_rows
from packer.store.cache import Cache


@pytest.mark.parametrize("weighted", [False, True])
@given(asked=st.lists(st.integers(0, 18), max_size=12))
def test_blocks_read_are_the_blocks_mapped(weighted, asked):
    mapped = small_cache(19, weighted=weighted)
    read = Cache.open(mapped.folder, mmap=False)
    expected, found = (cache.blocks("train").read(np.array(asked, np.int64)) for cache in (mapped, read))
    for field in fields(BlockBatch):
        one, other = getattr(expected, field.name), getattr(found, field.name)
        assert (one is None and other is None) or np.array_equal(one, other)


@pytest.mark.parametrize("weighted", [False, True])
def test_documents_read_are_the_documents_mapped(weighted):
    mapped, documents = small_document_cache(23, weighted=weighted)
    shards = Cache.open(mapped.folder, mmap=False).documents("train")
    shards.verify()
    for number, document in enumerate(documents):
        expected, found = mapped.documents("train").read(number), shards.read(number)
        for name in ("input_ids", "labels", "loss_weights", "span_start", "span_end"):
            assert np.array_equal(getattr(expected, name), getattr(found, name))
        assert found.input_ids.tolist() == document.input_ids.tolist()


def test_a_cache_that_reads_pickles_as_one_that_reads():
    cache = Cache.open(small_cache(5).folder, mmap=False)
    assert not pickle.loads(pickle.dumps(cache)).mmap
    blocks = pickle.loads(pickle.dumps(cache.blocks("train")))
    assert np.array_equal(blocks.read(np.arange(5)).labels, small_cache(5).blocks("train").read(np.arange(5)).labels)


def test_damage_is_found_where_rows_are_read(tmp_path):
    write_cache(tmp_path, [random_blocks(20, 16)])
    (path,) = (tmp_path / "blocks").iterdir()
    place = Cache.open(tmp_path).manifest.shards[0].places[0].columns["input_ids"] + 7 * 16 * 4
    cache = Cache.open(tmp_path, mmap=False)
    assert cache.blocks("train").read(np.array([6])).num_blocks == 1
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\xff")
    with pytest.raises(CheckError, match=re.escape(path.name) + r".*row 7: expected digest") as caught:
        cache.blocks("train").read(np.array([3, 7]))
    assert "--repair" in caught.value.hint


def test_a_file_that_shrinks_while_it_is_read_is_an_error_and_no_signal(tmp_path):
    write_cache(tmp_path, [random_blocks(400, 64)])
    (path,) = (tmp_path / "blocks").iterdir()
    blocks = Cache.open(tmp_path, mmap=False).blocks("train")
    blocks.read(np.array([0]))
    os.truncate(path, 10_000)
    with pytest.raises(CheckError, match="truncated: expected"):
        blocks.read(np.array([399]))


def test_a_file_system_that_gives_less_than_was_asked_for_is_asked_again(tmp_path, monkeypatch):
    """As network file systems may."""
    write_cache(tmp_path, [random_blocks(9, 64)])
    expected = Cache.open(tmp_path).blocks("train").read(np.arange(9))
    pread, asked = os.pread, []

    def little(descriptor, size, offset):
        asked.append(size)
        return pread(descriptor, min(size, 100), offset)

    monkeypatch.setattr(os, "pread", little)
    found = Cache.open(tmp_path, mmap=False).blocks("train").read(np.arange(9))
    assert np.array_equal(expected.input_ids, found.input_ids) and np.array_equal(expected.doc_ids, found.doc_ids)
    assert max(asked) > 100


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
