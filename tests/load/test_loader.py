"""Steps of the loader: exact under interruption, elastic over ranks, counted over the whole step."""

import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from processes import wait_until
from small_blocks import PAD_ID, small_cache
from small_micro_batches import assert_same

from packer.errors import CheckError, UsageError
from packer.load import PackedLoader, reading
from packer.load.ordering import EpochOrder


def loader_of(cache, **options):
    return PackedLoader(cache, **{"micro_batch_size": 1, "global_batch_size": 2, "rank": 0, "world_size": 1, **options})


def ranks_of(cache, world_size, **options):
    return [loader_of(cache, rank=rank, world_size=world_size, **options) for rank in range(world_size)]


def omega(num_blocks, epoch=0, seed=0, fingerprint="f00d"):
    order = EpochOrder(fingerprint=fingerprint, seed=seed, num_items=num_blocks, shuffled=True)
    return order.rows(epoch, 0, num_blocks).tolist()


def watch(cache, seen):
    """Call `seen` with the block numbers of every read of an open cache, before it."""
    blocks = cache.blocks("train")
    locate = blocks.locate
    blocks.locate = lambda indices: (seen(indices), locate(indices))[1]


def literal_targets(labels):
    return int((labels[..., 1:] != -100).sum())


def reader_threads():
    return [thread for thread in threading.enumerate() if thread.name == "packer-load"]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert reader_threads() == []


# What a step holds


@given(
    num_blocks=st.integers(1, 40),
    stretches=st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 6), st.integers(0, 3)),
        min_size=1,
        max_size=5,
    ),
    seed=st.integers(0, 1000),
    end=st.sampled_from(["pad", "short"]),
)
def test_any_interruptions_with_other_sizes_give_each_epoch_in_order_and_every_block_once(
    num_blocks, stretches, seed, end
):
    """Each stretch has its own world size, micro-batch, accumulation, number of steps and prefetch, and ends in a restart."""
    cache = small_cache(num_blocks)
    taken, state, num_steps = [], None, 0
    place = {block: place for place, block in enumerate(omega(num_blocks, seed=seed))}
    for world_size, micro_batch_size, accumulation, steps, prefetch in [*stretches, (1, 1, 1, num_blocks, 0)]:
        loaders = ranks_of(
            cache,
            world_size,
            micro_batch_size=micro_batch_size,
            global_batch_size=world_size * micro_batch_size * accumulation,
            end=end,
            seed=seed,
            prefetch=prefetch,
        )
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        for _, parts in zip(range(steps), zip(*loaders, strict=True), strict=False):
            rows = sum(int((part.block_ids >= 0).sum()) for part in parts)
            needed = accumulation if end == "pad" else -(-rows // (world_size * micro_batch_size))
            assert {len(part) for part in parts} == {needed}
            blocks = [block for part in parts for block in part.block_ids.tolist() if block >= 0]
            taken += sorted(blocks, key=place.get)
            num_steps += 1
        states = [loader.state_dict() for loader in loaders]
        for loader in loaders:
            loader.close()
        assert all(other == states[0] for other in states)
        state = states[0] if states[0]["epoch"] == 0 else {**states[0], "epoch": 0, "cursor": num_blocks}
    assert taken == omega(num_blocks, seed=seed)
    assert sorted(taken) == list(range(num_blocks))
    assert state["counters"]["rows"] == num_blocks
    assert state["counters"]["steps"] == num_steps > 0


@pytest.mark.parametrize("flatten", [True, False])
def test_micro_batches_hold_the_blocks_the_step_names_and_say_where_sequences_begin(flatten):
    cache = small_cache(12, 8)
    stored = cache.blocks("train").read(np.arange(12))
    num_seen = 0
    for step in loader_of(cache, micro_batch_size=2, global_batch_size=4, flatten=flatten):
        for i, micro_batch in enumerate(step):
            blocks = step.block_ids[2 * i : 2 * i + 2]
            for name in ("input_ids", "labels", "position_ids"):
                assert micro_batch[name].dtype == torch.int64
                assert micro_batch[name].shape == ((1, 16) if flatten else (2, 8))
                assert micro_batch[name].reshape(2, 8).tolist() == getattr(stored, name)[blocks].tolist()
            offsets = (stored.seq_offsets[blocks], stored.seq_offsets[blocks + 1])
            runs = np.concatenate([stored.seq_lengths[a:b] for a, b in zip(*offsets, strict=True)])
            if flatten:
                for side in ("q", "k"):
                    assert micro_batch[f"cu_seq_lens_{side}"].dtype == torch.int32
                    assert micro_batch[f"cu_seq_lens_{side}"].tolist() == [0, *np.cumsum(runs).tolist()]
                    assert micro_batch[f"max_length_{side}"] == runs.max()
                assert len(micro_batch) == 7
            else:
                assert micro_batch["document_ids"].dtype == torch.int32
                numbers = np.repeat(np.arange(len(runs)), runs)
                assert micro_batch["document_ids"].flatten().tolist() == numbers.tolist()
                assert len(micro_batch) == 4
            num_seen += 1
    assert num_seen == 6


def test_a_rank_reads_its_share_of_a_step_in_one_go():
    cache, reads = small_cache(12), []
    watch(cache, lambda indices: reads.append(indices.tolist()))
    loader = loader_of(cache, rank=1, world_size=2, global_batch_size=6, order="sequential", prefetch=0, balance=0)
    assert [len(step) for step in loader] == [3, 3]
    assert reads == [[3, 4, 5], [9, 10, 11]]


def test_the_numbers_of_a_step_cannot_be_changed_under_the_order():
    expected = [step.block_ids.tolist() for step in loader_of(small_cache(8))]
    found = []
    for step in loader_of(small_cache(8)):
        found.append(step.block_ids.tolist())
        step.block_ids[:] = 0
    assert found == expected and len(expected) > 1


def test_what_a_step_says_of_itself():
    steps = list(loader_of(small_cache(5), end="drop"))
    assert [(step.index, step.epoch, step.coverage, len(step)) for step in steps] == [(0, 0, 0.4, 2), (1, 0, 0.8, 2)]
    assert steps[0][1] is steps[0].micro_batches[1]


# Counting


@pytest.mark.parametrize("end", ["drop", "pad", "short"])
@pytest.mark.parametrize("flatten", [True, False])
def test_num_items_is_the_literal_count_of_targets_of_all_ranks_and_micro_batches(end, flatten):
    loaders = ranks_of(small_cache(11, 16), 2, micro_batch_size=2, global_batch_size=8, end=end, flatten=flatten)
    total, num_steps = 0, 0
    for parts in zip(*loaders, strict=True):
        literal = sum(literal_targets(micro_batch["labels"]) for part in parts for micro_batch in part)
        assert [part.num_items_in_batch for part in parts] == [literal, literal]
        total += literal
        num_steps += 1
    assert num_steps == (1 if end == "drop" else 2)
    assert [loader.state_dict()["counters"]["trained"] for loader in loaders] == [total, total]
    assert total > 0


def test_a_rank_reads_no_block_of_another_rank():
    cache, reads = small_cache(8), []
    watch(cache, reads.extend)
    options = {"order": "sequential", "prefetch": 0, "balance": 0}
    loader = loader_of(cache, rank=1, world_size=2, global_batch_size=4, **options)
    first = [step.num_items_in_batch for step in loader]
    assert reads == [2, 3, 6, 7]
    reads.clear()
    assert [step.num_items_in_batch for step in loader] == first
    assert reads == [2, 3, 6, 7]


def test_counters_say_what_was_returned():
    cache = small_cache(37)
    stored = cache.blocks("train").read(np.arange(37))
    loader = loader_of(cache, micro_batch_size=4, global_batch_size=8, end="pad")
    rows = tokens = slots = trained = 0
    for step in loader:
        real = step.block_ids[step.block_ids >= 0]
        rows += len(real)
        tokens += int(stored.length[real].sum())
        trained += int(stored.num_trained[real].sum())
        slots += sum(micro_batch["input_ids"].numel() for micro_batch in step)
        counters = loader.counters
        assert (counters.rows, counters.tokens, counters.slots, counters.trained) == (rows, tokens, slots, trained)
    assert 0 < counters.padding_share == 1 - tokens / slots


# Ends of an epoch


def test_drop_leaves_out_the_end_of_the_order_and_the_next_epoch_begins_afresh():
    loader = loader_of(small_cache(7), global_batch_size=3)
    first, second = list(loader), list(loader)
    assert [block for step in first for block in step.block_ids] == omega(7)[:6]
    assert [block for step in second for block in step.block_ids] == omega(7, epoch=1)[:6]
    assert [step.index for step in [*first, *second]] == [0, 1, 2, 3]
    assert loader.epoch == 2


def test_pad_fills_the_last_step_with_masked_rows():
    cache = small_cache(3, 8)
    *_, last = loader_of(cache, micro_batch_size=2, global_batch_size=4, end="pad", order="sequential", flatten=False)
    assert last.block_ids.tolist() == [0, 1, 2, -1]
    padding = {name: last[1][name][1].tolist() for name in ("input_ids", "labels", "position_ids")}
    assert padding == {"input_ids": [PAD_ID] * 8, "labels": [-100] * 8, "position_ids": list(range(8))}
    assert last[1]["document_ids"][1].unique().numel() == 1
    *_, last = loader_of(small_cache(5, 8), global_batch_size=4, end="pad")
    assert last.block_ids[1:].tolist() == [-1, -1, -1], "a whole micro-batch of them"
    assert last[3]["cu_seq_lens_q"].tolist() == [0, 8]
    assert last[3]["labels"].tolist() == [[-100] * 8]


# The thread


def test_an_error_in_the_thread_reaches_the_consumer_instead_of_its_step_and_of_no_earlier_one():
    cache = small_cache(40)

    def broken(indices):
        if 20 in indices.tolist():
            raise CheckError("block 20 is damaged")

    watch(cache, broken)
    loader = loader_of(cache, order="sequential", prefetch=3)
    seen = []
    with pytest.raises(CheckError, match="block 20 is damaged"):
        seen.extend(step.block_ids.tolist() for step in loader)
    assert seen[:3] == [[0, 1], [2, 3], [4, 5]] and len(seen) <= 10
    assert loader.state_dict()["cursor"] == 2 * len(seen)


def test_an_error_in_the_consumer_leaves_no_thread():
    loader = loader_of(small_cache(40), prefetch=2)

    def consume():
        with loader:
            for _ in loader:
                assert len(reader_threads()) == 1
                raise KeyError

    with pytest.raises(KeyError):
        consume()
    assert reader_threads() == []


def test_a_new_iteration_ends_the_one_before():
    loader = loader_of(small_cache(8))
    first = iter(loader)
    next(first)
    second = iter(loader)
    next(second)
    with pytest.raises(RuntimeError, match="ended by"):
        next(first)
    assert [step.index for step in second] == [2, 3]


def test_the_reader_stays_no_more_than_its_prefetch_ahead(monkeypatch):
    """Of steps that are worth reading by themselves; small ones are made up to sixteen at a time."""
    monkeypatch.setattr(reading, "_MAX_TOKENS", 1)
    cache, reads = small_cache(40), []
    watch(cache, reads.extend)
    with loader_of(cache, prefetch=2) as loader:
        steps = iter(loader)
        for returned in range(1, 11):
            next(steps)
            wait_until(lambda ahead=2 * (returned + 2): len(reads) >= ahead)
            time.sleep(0.02)  # a reader without a limit would go on
            assert len(reads) == 2 * (returned + 2)


# Splits and ranks


def test_several_processes_without_torch_distributed_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(UsageError, match="WORLD_SIZE is 8"):
        loader_of(small_cache(4), rank=None, world_size=None)


def test_rank_and_world_size_come_from_torch_distributed(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        step = next(iter(loader_of(small_cache(4), rank=None, world_size=None)))
    finally:
        torch.distributed.destroy_process_group()
    assert len(step.block_ids) == 2


def test_steps_for_a_device_wait_in_pinned_memory_and_are_copied_when_they_are_returned(monkeypatch):
    """On any machine, by what is called: the test below is for one with a device."""
    pinned, copied = [], []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: (pinned.append(tensor), tensor)[1])
    to = torch.Tensor.to

    def onto(tensor, device, **options):
        if torch.device(device).type != "cuda":
            return to(tensor, device, **options)
        copied.append(options)
        return tensor

    monkeypatch.setattr(torch.Tensor, "to", onto)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with loader_of(small_cache(12), device="cuda", prefetch=2) as loader:
        steps = iter(loader)
        for returned in range(1, 4):
            step = next(steps)
            assert len(copied) == returned * 2 * 5  # micro-batches, tensors of each
            assert all(any(value is one for one in pinned) for value in step[0].values() if torch.is_tensor(value))
    assert copied == [{"non_blocking": True}] * len(copied)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA MISSING: staging to a device is not tested")
@pytest.mark.parametrize("prefetch", [0, 3])
def test_micro_batches_on_a_device_equal_those_on_the_host(prefetch):
    cache = small_cache(64, 128)
    options = {"micro_batch_size": 4, "global_batch_size": 16, "labels": "shifted", "prefetch": prefetch}
    num_seen = 0
    for host, device in zip(loader_of(cache, **options), loader_of(cache, device="cuda", **options), strict=True):
        for one, other in zip(host, device, strict=True):
            assert all(value.is_cuda for value in other.values() if torch.is_tensor(value))
            assert_same(one, {name: value.cpu() if torch.is_tensor(value) else value for name, value in other.items()})
            num_seen += 1
    assert num_seen > 0


@pytest.mark.parametrize("end", ["pad", "short", "drop"])
def test_the_size_of_a_step_is_what_it_holds_without_padding_rows(end):
    sizes = [step.size for step in PackedLoader(small_cache(11), global_batch_size=4, end=end, rank=0, world_size=1)]
    assert sizes == ([4, 4] if end == "drop" else [4, 4, 3])
