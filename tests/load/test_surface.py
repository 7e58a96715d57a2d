"""What people do with a DataLoader: lengths, epochs, defaults, a short last step, moving a step, and wrong turns."""

import inspect
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_blocks import small_cache
from small_documents import small_document_cache
from torch.utils.data import DataLoader

import packer
import packer.load.trainers
from packer.errors import UsageError
from packer.load import Mixture, PackedLoader, StepDataset
from packer.load.ordering import EpochOrder

ENDS = ["drop", "pad", "short"]
ALONE = {"rank": 0, "world_size": 1, "prefetch": 0}


def blocks_of(loader):
    return [step.block_ids.tolist() for step in loader]


# Lengths and epochs


@given(
    num_blocks=st.integers(1, 30),
    size=st.integers(1, 12),
    end=st.sampled_from(ENDS),
    batching=st.sampled_from(["packed", "padded", "token_budget"]),
)
def test_a_length_is_that_of_the_whole_epoch_wherever_the_loader_stands(num_blocks, size, end, batching):
    """Counted literally: the steps that begin in each of three epochs, looked at before and after every one of them.

    Steps of rows have those of the order, but for what `drop` leaves out.
    """
    if batching == "packed":
        cache, size = small_cache(num_blocks), min(size, num_blocks)
    else:
        cache, _ = small_document_cache(num_blocks)
        size = min(size, num_blocks) if batching == "padded" else 20 * size
    if batching == "token_budget" and end == "drop":
        return  # too few tokens for a step
    micro = 20 if batching == "token_budget" else 1
    loader = PackedLoader(cache, batching=batching, micro_batch_size=micro, global_batch_size=size, end=end, **ALONE)
    order = EpochOrder(
        fingerprint=cache.manifest.content_fingerprint, seed=0, num_items=loader.num_blocks, shuffled=True
    )
    total, until = 0, [loader.steps_until(epoch) for epoch in range(4)]
    for epoch in range(3):
        assert loader.epoch == epoch
        lengths, left, taken, rows = [len(loader)], [loader.steps_left], 0, []
        for step in loader:
            assert step.epoch == epoch
            assert loader.steps_until(3) == until[3] - total - taken - 1
            taken += 1
            rows += step.block_ids[step.block_ids >= 0].tolist()
            lengths.append(len(loader))
            left.append(loader.steps_left)
        assert set(lengths) == {taken}
        assert left == list(range(taken, taken - len(left), -1))
        assert len(rows) == (num_blocks // size * size if end == "drop" else num_blocks)
        assert batching == "token_budget" or rows == order.rows(epoch, 0, len(rows)).tolist()
        total += taken
        assert until[epoch + 1] == total


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("mixed", [False, True])
def test_set_epoch_goes_to_the_beginning_of_another_epoch_and_lets_this_one_go_on(end, mixed):
    def opened():
        cache = small_cache(13)
        source = Mixture([(cache, 2), (small_cache(9, fingerprint="beef"), 1)]) if mixed else cache
        return PackedLoader(source, global_batch_size=2, end=end, **ALONE)

    by_epoch, loader = [], opened()
    for epoch in range(3):
        loader.set_epoch(epoch)
        by_epoch.append(blocks_of(loader))
    alone = opened()
    assert by_epoch == [blocks_of(alone) for _ in range(3)]  # a loop that calls it is a loop that does not
    loader.set_epoch(1)
    assert blocks_of(loader) == by_epoch[1]
    loader.set_epoch(0)
    steps = iter(loader)
    next(steps)
    state = loader.state_dict()
    resumed = opened()
    resumed.load_state_dict(state)
    resumed.set_epoch(0)
    assert blocks_of(resumed) == by_epoch[0][1:]
    resumed.set_epoch(2)
    assert blocks_of(resumed) == by_epoch[2]
    loader.set_epoch(2)
    with pytest.raises(RuntimeError, match="ended"):
        next(steps)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_next_gives_the_steps_of_an_epoch_one_by_one_and_goes_on_where_a_loop_stopped(prefetch):
    def opened():
        return PackedLoader(small_cache(5), **ALONE | {"prefetch": prefetch})

    whole = [blocks_of(loader) for loader in [opened()] for _ in range(2)]
    with opened() as loader:
        assert [next(loader).block_ids.tolist() for _ in range(2)] == whole[0][:2]
        for step in loader:
            assert step.block_ids.tolist() == whole[0][2]
            break
        assert [next(loader).block_ids.tolist() for _ in range(2)] == whole[0][3:]
        with pytest.raises(StopIteration):
            next(loader)
        assert loader.epoch == 1
        assert [next(loader).block_ids.tolist() for _ in range(5)] == whole[1]
        loader.set_epoch(0)
        assert next(loader).block_ids.tolist() == whole[0][0]


# Defaults and words


def test_sizes_default_to_one_block_and_one_micro_batch_a_rank():
    for world_size, micro in itertools.product((1, 2, 3), (None, 2)):
        sizes = {} if micro is None else {"micro_batch_size": micro}
        loader = PackedLoader(small_cache(12), rank=0, world_size=world_size, prefetch=0, **sizes)
        assert loader.global_batch_size == (micro or 1) * world_size
        assert {len(step) for step in loader} == {1}


# A step on a device


def test_a_step_moves_what_it_holds_at_any_depth_and_keeps_every_dtype():
    (step, *_) = PackedLoader(small_cache(4), **ALONE)
    step.micro_batches[0]["columns"] = {"logps": torch.zeros(1, 8)}
    step.micro_batches[0]["more"] = {"pair": (torch.zeros(2, dtype=torch.bfloat16), 7), "list": [torch.ones(1)]}
    moved = step.to("meta", non_blocking=True)
    tensors = {name: value for name, value in moved[0].items() if torch.is_tensor(value)}
    assert {value.device.type for value in tensors.values()} == {"meta"}
    assert {name: value.dtype for name, value in tensors.items()} == {name: step[0][name].dtype for name in tensors}
    assert {torch.int64, torch.int32} == {value.dtype for value in tensors.values()}
    assert (moved[0]["columns"]["logps"].device.type, moved[0]["columns"]["logps"].dtype) == ("meta", torch.float32)
    pair, number = moved[0]["more"]["pair"]
    assert (pair.device.type, pair.dtype, number) == ("meta", torch.bfloat16, 7)
    assert moved[0]["more"]["list"][0].device.type == "meta"
    assert (moved.index, moved.num_items_in_batch, len(moved)) == (step.index, step.num_items_in_batch, len(step))
    assert step[0]["input_ids"].device.type == "cpu"
    for wrong in (torch.bfloat16, None, True):
        with pytest.raises(TypeError, match="expected a device"):
            step.to(wrong)


@pytest.mark.parametrize("device", ["cuda", "cuda:63", torch.device("cuda")])
def test_a_gpu_that_is_not_there_is_said_when_the_loader_is_opened(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"device is cuda.* torch finds 0 GPUs here") as caught:
        PackedLoader(small_cache(4), device=device, **ALONE)
    assert "leave device out" in caught.value.hint


# Wrong turns, and what is shown


def test_a_data_loader_around_a_loader_or_its_steps_says_what_to_do_instead():
    loader = PackedLoader(small_cache(4), **ALONE)
    for shuffle in (False, True):
        with pytest.raises(TypeError, match=r"without a DataLoader.*StepDataset\(loader\).*PackedDataset\(cache\)"):
            next(iter(DataLoader(loader, shuffle=shuffle)))
    with pytest.raises(TypeError, match="batch_size=None"):
        next(iter(DataLoader(StepDataset(loader))))
    assert next(iter(DataLoader(StepDataset(loader), batch_size=None))).index == 1


def test_modules_list_their_public_names_alone():
    for module in (packer, packer.load, packer.load.trainers):
        assert dir(module) == sorted(module.__all__)
    assert inspect.signature(PackedLoader).parameters["micro_batch_size"].default == 1
