"""One run, interrupted anywhere and gone on with on any number of ranks, is the uninterrupted run."""

import itertools
import random

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")

from search_effort import one_in  # noqa: E402
from small_blocks import small_cache  # noqa: E402

from packer.load import PackedLoader  # noqa: E402

NUM_BLOCKS, UNIT, EPOCHS = 500, 24, 3  # 24 is dealt to 1, 2, 3, 4 and 8 ranks
WORLD_SIZES = (1, 2, 3, 4, 8)


def loaders_of(cache, world_size, micro_batch_size, **options):
    return [
        PackedLoader(
            cache,
            micro_batch_size=micro_batch_size,
            global_batch_size=UNIT,
            rank=rank,
            world_size=world_size,
            seed=3,
            **options,
        )
        for rank in range(world_size)
    ]


def steps_of(loaders):
    """What the ranks together see of each step to the end of the run, and the state after it."""
    while loaders[0].epoch < EPOCHS:
        for parts in zip(*loaders, strict=True):
            assert len({len(part) for part in parts}) == 1
            told = {(part.index, part.epoch, part.num_items_in_batch, part.num_tokens, part.coverage) for part in parts}
            assert len(told) == 1
            ids = [micro_batch["input_ids"].reshape(-1, 8) for part in parts for micro_batch in part]
            states = [loader.state_dict() for loader in loaders]
            assert all(state == states[0] for state in states)
            blocks = np.concatenate([part.block_ids for part in parts])
            order = np.argsort(blocks, kind="stable")  # who reads which is free
            yield blocks[order].tolist(), torch.cat(ids)[order], *told, states[0]


def same(step, other):
    return step[0] == other[0] and torch.equal(step[1], other[1]) and step[2:] == other[2:]


@pytest.mark.parametrize("end", ["pad", pytest.param("drop", marks=pytest.mark.slow)])
def test_many_interruptions_two_in_a_row_leave_every_step_as_it_was(end):
    cache = small_cache(NUM_BLOCKS)
    whole = list(steps_of(loaders_of(cache, 1, 1, end=end)))
    edges = [i for i in range(1, len(whole)) if whole[i][2][1] != whole[i - 1][2][1]]
    assert len(edges) == EPOCHS - 1
    chosen = random.Random(end)
    points = [*itertools.chain(*((edge - 1, edge) for edge in edges))]
    points += [chosen.randrange(len(whole) - 6) for _ in range(100 - len(points))]
    sizes = set()
    for point in one_in(6, points):
        at = point
        for _ in range(2):
            world_size = chosen.choice(WORLD_SIZES)
            micro = chosen.choice([size for size in (1, 2, 3, 4, 6) if UNIT % (world_size * size) == 0])
            loaders = loaders_of(cache, world_size, micro, end=end, prefetch=chosen.choice((0, 2)))
            for loader in loaders:
                loader.load_state_dict(whole[at][3])
            steps = list(itertools.islice(steps_of(loaders), chosen.randrange(1, 4)))
            for loader in loaders:
                loader.close()
            for offset, step in enumerate(steps, 1):
                assert same(step, whole[at + offset])
            at += len(steps)
            sizes.add((world_size, micro))
    assert len(points) == 100
    assert len(sizes) > 10


def test_counters_say_what_was_returned():
    cache = small_cache(NUM_BLOCKS)
    (loader,) = loaders_of(cache, 1, 4, end="pad")
    rows = tokens = slots = trained = 0
    stored = cache.blocks("train").read(np.arange(NUM_BLOCKS))
    for step in loader:
        real = step.block_ids[step.block_ids >= 0]
        rows += len(real)
        tokens += int(stored.length[real].sum())
        trained += int(stored.num_trained[real].sum())
        slots += sum(micro_batch["input_ids"].numel() for micro_batch in step)
        counters = loader.counters
        assert (counters.rows, counters.tokens, counters.slots, counters.trained) == (rows, tokens, slots, trained)
    assert 0 < counters.padding_share == 1 - tokens / slots


def test_the_numbers_of_a_step_cannot_be_changed_under_the_order():
    expected, found = [], []
    for taken in (expected, found):
        (loader,) = loaders_of(small_cache(NUM_BLOCKS), 1, UNIT)
        for step in loader:
            taken.append(step.block_ids.tolist())
            if taken is found:
                step.block_ids[:] = 0
    assert found == expected and len(expected) > 1
