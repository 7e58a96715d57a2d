"""The map-style dataset: items, batches, workers, damage."""

import pickle

import numpy as np
import pytest
import torch
from small_blocks import random_blocks, small_cache, write_cache
from small_micro_batches import assert_same
from torch.utils.data import DataLoader

from packer.errors import CheckError
from packer.load import PackedDataset, PackedLoader, collate, shift_labels


def test_an_item_is_the_block_as_stored():
    cache = small_cache(9, 16)
    stored = cache.blocks("train").read(np.arange(9))
    dataset = PackedDataset(cache)
    assert len(dataset) == 9
    for i in range(9):
        item = dataset[i]
        for name in ("input_ids", "labels", "position_ids", "num_trained"):
            assert item[name].tolist() == getattr(stored, name)[i].tolist()
        assert (
            item["seq_lengths"].tolist()
            == stored.seq_lengths[stored.seq_offsets[i] : stored.seq_offsets[i + 1]].tolist()
        )
        assert {tensor.dtype for tensor in item.values()} == {torch.int64}
        assert item["input_ids"].shape == (16,)


def test_items_come_in_the_order_asked_and_from_either_end():
    dataset = PackedDataset(small_cache(9))
    asked = dataset.__getitems__([4, -1, 0, 4])
    assert [item["input_ids"].tolist() for item in asked] == [dataset[i]["input_ids"].tolist() for i in (4, 8, 0, 4)]


@pytest.mark.parametrize("index", [9, -10])
def test_an_index_outside_the_split_is_refused(index):
    with pytest.raises(IndexError, match="9 blocks"):
        PackedDataset(small_cache(9))[index]


def test_collated_items_equal_a_flattened_micro_batch():
    cache = small_cache(8)
    loader = PackedLoader(cache, micro_batch_size=4, global_batch_size=4, order="sequential", rank=0, world_size=1)
    dataset = PackedDataset(cache)
    num_seen = 0
    for step, collated in zip(loader, DataLoader(dataset, batch_size=4, collate_fn=collate), strict=True):
        (micro_batch,) = step
        assert_same(collated, micro_batch)
        num_seen += 1
    assert num_seen == 2


def test_a_pickled_dataset_opens_the_same_bytes_or_nothing(tmp_path):
    write_cache(tmp_path, [random_blocks(3)])
    saved = pickle.dumps(PackedDataset(tmp_path))
    assert pickle.loads(saved)[1]["labels"].tolist() == PackedDataset(tmp_path)[1]["labels"].tolist()
    write_cache(tmp_path, [random_blocks(3, seed=1)])
    with pytest.raises(CheckError, match="built again"):
        pickle.loads(saved)


# Shifting and adapters


def test_labels_are_not_shifted_twice():
    batch = {"labels": torch.tensor([[-100, 5, 6]]), "input_ids": torch.tensor([[4, 5, 6]])}
    shifted = shift_labels(batch)
    assert shifted["shift_labels"].tolist() == [[5, 6, -100]]
    assert "labels" not in shifted
    with pytest.raises(ValueError, match="already"):
        shift_labels(shifted)
    with pytest.raises(ValueError, match="no labels"):
        shift_labels({"input_ids": batch["input_ids"]})
