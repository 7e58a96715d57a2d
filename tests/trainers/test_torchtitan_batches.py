"""A loader in torchtitan's shape: pairs of rows, as many as its step has, and a state between steps."""

from itertools import islice

import pytest
import torch
from small_blocks import small_cache

from packer.errors import CheckError, UsageError
from packer.load import PackedLoader
from packer.load.trainers import StepBatches

CACHE = small_cache(23, 16)


def loader_of(**options):
    sizes = {"micro_batch_size": 2, "global_batch_size": 8, "rank": 0, "world_size": 1, "seed": 5}
    return PackedLoader(CACHE, **{**sizes, "flatten": False, "labels": "shifted", **options})


def test_pairs_are_the_loaders_micro_batches_over_ends_of_epochs():
    with loader_of() as loader:
        expected = [micro_batch for step in islice(loader.endless(), 7) for micro_batch in step]
    batches = StepBatches(loader_of())
    pairs = list(islice(batches, 28))
    batches.loader.close()
    assert len(expected) == 28
    for (inputs, labels), micro_batch in zip(pairs, expected, strict=True):
        assert set(inputs) == {"input", "positions"}
        assert inputs["input"].shape == labels.shape == (2, 16)
        assert torch.equal(inputs["input"], micro_batch["input_ids"])
        assert torch.equal(inputs["positions"], micro_batch["position_ids"])
        assert torch.equal(labels, micro_batch["shift_labels"])


def test_of_a_loader_that_flattens_a_batch_is_one_row_with_the_same_documents():
    rows, flat = (StepBatches(loader_of(flatten=flatten)) for flatten in (False, True))
    for (inputs, labels), (one_row, its_labels) in islice(zip(rows, flat, strict=True), 12):
        assert its_labels.tolist() == labels.flatten().tolist()
        assert {name: value.tolist() for name, value in one_row.items()} == {
            name: value.flatten().tolist() for name, value in inputs.items()
        }
    for batches in (rows, flat):
        batches.loader.close()


def test_a_state_between_steps_goes_on_at_the_next_step_on_other_ranks():
    batches = StepBatches(loader_of())
    pairs = iter(batches)
    for _ in range(8):
        next(pairs)
    state = batches.state_dict()
    expected = torch.cat([inputs["input"] for inputs, _ in islice(pairs, 4)])
    parts = []
    for rank in range(2):
        resumed = StepBatches(loader_of(micro_batch_size=4, rank=rank, world_size=2))
        resumed.load_state_dict({})
        resumed.load_state_dict(state)
        parts.append(next(iter(resumed))[0]["input"])
        resumed.loader.close()
    assert sorted(torch.cat(parts).tolist()) == sorted(expected.tolist())  # who reads which is free
    batches.loader.close()


def test_a_state_within_a_step_and_rows_of_another_form_are_refused(starter_cache):
    batches = StepBatches(loader_of(prefetch=0))
    next(iter(batches))
    with pytest.raises(UsageError, match="within a step"):
        batches.state_dict()
    padded = PackedLoader(
        starter_cache,
        batching="padded",
        labels="shifted",
        micro_batch_size=2,
        global_batch_size=8,
        rank=0,
        world_size=1,
    )
    for loader in (loader_of(labels="unshifted"), padded):
        with pytest.raises(UsageError, match="takes shifted labels"):
            next(iter(StepBatches(loader)))
        loader.close()
    with pytest.raises(CheckError, match="expected reader"):
        batches.load_state_dict({"dp_rank_0": b""})
