"""Blocks by index as numpy arrays: what grain takes as a source."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from packed_again import packed_again
from small_blocks import small_cache

from packer.errors import UsageError
from packer.load.trainers.grain import BlockSource


def test_a_row_is_the_block_as_stored_with_its_documents_numbered_from_1():
    cache = small_cache(11, 16)
    source = BlockSource(cache)
    assert len(source) == 11
    num_padded = 0
    for i in range(11):
        row, stored = source[i], cache.blocks("train").read(np.array([i]))
        for name in ("input_ids", "labels", "position_ids"):
            assert row[name].dtype == np.int32
            assert row[name].tolist() == getattr(stored, name)[0].tolist()
        expected = [0] * 16
        for number, (place, length) in enumerate(zip(stored.doc_places, stored.doc_lengths, strict=True), start=1):
            expected[place : place + length] = [number] * int(length)
        assert row["segment_ids"].tolist() == expected
        assert not np.any(row["labels"][row["segment_ids"] == 0] != -100)
        num_padded += expected[-1] == 0
    assert 0 < num_padded < 11
    assert source[-1]["input_ids"].tolist() == source[10]["input_ids"].tolist()
    for index in (11, -12):
        with pytest.raises(IndexError, match="11 blocks"):
            source[index]


@pytest.mark.parametrize("pack", [{"block_len": 96, "align": 8}, {"block_len": 64, "mode": "eos", "overlong": "split"}])
def test_segments_are_the_runs_of_every_packing_mode_and_padding_is_0(pack, starter_cache, tmp_path):
    packed_again(starter_cache, tmp_path / "cache", pack)
    source, num_rows = BlockSource(tmp_path / "cache"), 0
    for i in range(len(source)):
        row = source[i]
        segments, positions = row["segment_ids"], row["position_ids"]
        begins = np.flatnonzero(np.diff(segments, prepend=-1))
        assert positions[begins].tolist() == [0] * len(begins)
        assert np.flatnonzero(positions == 0).tolist() == begins.tolist()
        assert [s for s in segments[begins].tolist() if s] == list(range(1, int(segments.max()) + 1))
        num_rows += 1
    assert num_rows > 20


def test_a_pickled_source_opens_the_same_blocks_and_weights_are_refused():
    source = BlockSource(small_cache(5))
    again = pickle.loads(pickle.dumps(source))
    assert again[3]["labels"].tolist() == source[3]["labels"].tolist()
    assert repr(again) == repr(source) != repr(BlockSource(small_cache(5, fingerprint="beef")))
    with pytest.raises(UsageError, match="fractional loss weights"):
        BlockSource(small_cache(5, weighted=True))


def test_a_source_needs_no_torch():
    code = "import packer.load.trainers.grain, sys; print('torch' in sys.modules or 'grain' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
