"""Memory that is used again: never while somebody holds it, and then it is."""

import gc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_blocks import small_cache

from packer.load import PackedLoader
from packer.load.layouts import ArrayPool

LARGE = (40, 1000)


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_comes_again_once_nobody_holds_it():
    memory = ArrayPool()
    first = address(memory.empty(LARGE))
    assert {address(memory.empty(LARGE)) for _ in range(5)} == {first}
    kept = memory.empty(LARGE)
    assert address(kept) == first
    assert address(memory.empty(LARGE)) != first


@pytest.mark.parametrize(
    "hold",
    [
        lambda array: array[3:4, 5:6],
        torch.from_numpy,
        lambda array: torch.from_numpy(array)[7].view(10, 100),
        lambda array: torch.from_numpy(array).detach()[:, ::2],
        lambda array: torch.from_numpy(array).numpy()[1],
        lambda array: np.from_dlpack(torch.from_numpy(array)),
        memoryview,
        lambda array: torch.from_numpy(array).untyped_storage(),
    ],
    ids=["slice", "tensor", "view of a tensor", "strided", "array of a tensor", "dlpack", "memoryview", "storage"],
)
def test_whatever_holds_a_part_of_it_keeps_it(hold):
    memory = ArrayPool()
    array = memory.empty(LARGE)
    place = address(array)
    holder = hold(array)
    del array
    others = {address(memory.empty(LARGE)) for _ in range(5)}
    assert place not in others
    del holder
    gc.collect()
    assert place in {address(memory.empty(LARGE)) for _ in range(5)}


@given(
    asked=st.lists(
        st.tuples(st.sampled_from([(1, 5), LARGE, (3, 7000), (20_001,), (39_000,)]), st.integers(0, 6)), max_size=40
    )
)
def test_arrays_that_are_held_never_overlap_and_keep_their_values(asked):
    memory, held = ArrayPool(), []
    for number, (shape, let_go) in enumerate(asked):
        array = memory.empty(shape)
        assert array.shape == shape and array.dtype == np.int64
        array[:] = number
        held.append((array, number))
        del array
        held = held[let_go:] if len(held) > 6 else held
        for kept, value in held:
            assert (kept == value).all()


def test_what_is_kept_is_bounded():
    memory = ArrayPool()
    held = [memory.empty((2**15 + number,)) for number in range(200)]
    assert len({address(array) for array in held}) == 200
    held.clear()
    assert 0 < len(memory._free) <= 64


@pytest.mark.parametrize("prefetch", [0, 3])
def test_steps_that_are_kept_are_not_written_over(prefetch):
    cache = small_cache(64, 1024)
    stored = cache.blocks("train").read(np.arange(64))
    options = {"micro_batch_size": 16, "global_batch_size": 32, "rank": 0, "world_size": 1, "prefetch": prefetch}
    with PackedLoader(cache, **options) as loader:
        for step, _ in zip(loader.endless(), range(20), strict=False):
            if step.index == 0:
                kept = step
    ids = torch.cat([micro_batch["input_ids"].reshape(-1, 1024) for micro_batch in kept])
    assert ids.tolist() == stored.input_ids[kept.block_ids].tolist()
