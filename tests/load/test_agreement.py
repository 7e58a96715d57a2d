"""Ranks that would read different data are refused by name; nobody waits for a rank that does not come."""

import re

import numpy as np
import pytest
import torch
from small_blocks import small_cache
from small_documents import small_document_cache

from packer.errors import UsageError
from packer.load import Mixture, PackedLoader, Padded, ranks

NUM_BLOCKS, WORLD_SIZE = 40, 3
CACHE, OTHER = small_cache(NUM_BLOCKS), small_cache(NUM_BLOCKS, fingerprint="cafe")
OPTIONS = {"global_batch_size": 6, "seed": 3, "prefetch": 0}


@pytest.fixture
def connect(monkeypatch):
    """Ranks within one process, with a store between them as `torch.distributed` has one."""

    def connected(world_size=WORLD_SIZE):
        store = torch.distributed.HashStore()
        monkeypatch.setattr(ranks, "_store", lambda: store)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: world_size)
        monkeypatch.setattr(ranks, "_num_loaders", type(ranks._num_loaders)())
        return store

    connected()
    return connected


def open_rank(rank, cache=CACHE, **options):
    return PackedLoader(cache, **{"rank": rank, "world_size": WORLD_SIZE, **OPTIONS, **options})


def after(num_steps, **options):
    """The state of a loader that has returned some steps."""
    loader = open_rank(0, world_size=1, **options)
    for _ in range(num_steps):
        next(iter(loader))
    return loader.state_dict()


def resumed(rank, state, **options):
    loader = open_rank(rank, **options)
    loader.load_state_dict(state)
    return loader


DIFFERENT = {
    "seed": lambda rank: open_rank(rank, seed=4),
    "fingerprint": lambda rank: open_rank(rank, OTHER),
    "shares": lambda rank: open_rank(rank, Mixture([(CACHE, 1), (OTHER, 1)])),
    "order": lambda rank: open_rank(rank, order="sequential"),
    "order_by": lambda rank: open_rank(rank, order=lambda epoch: np.arange(NUM_BLOCKS)[::-1]),
    "global_batch_size": lambda rank: open_rank(rank, global_batch_size=12),
    "micro_batch_size": lambda rank: open_rank(rank, micro_batch_size=2),
    "end": lambda rank: open_rank(rank, end="pad"),
    "epoch": lambda rank: resumed(rank, after(0) | {"epoch": 1}),
    "cursor": lambda rank: resumed(rank, after(2)),
    "flatten": lambda rank: open_rank(rank, flatten=False),
    "labels": lambda rank: open_rank(rank, labels="shifted"),
}


@pytest.mark.parametrize("name", DIFFERENT)
@pytest.mark.parametrize("odd", range(WORLD_SIZE))
def test_every_rank_is_refused_by_name_before_it_has_a_second_step(connect, name, odd):
    iterations = {rank: iter((DIFFERENT[name] if rank == odd else open_rank)(rank)) for rank in range(WORLD_SIZE)}
    refused = []
    for _ in range(2):
        for rank, steps in list(iterations.items()):
            try:
                next(steps)
            except UsageError as error:
                refused.append(error.message)
                del iterations[rank]
    assert len(refused) == WORLD_SIZE
    for message in refused:
        assert re.match(rf"the loaders of ranks (0 and {odd or 1}) differ: .*\b{name} ", message), message


def test_ranks_that_count_other_ranks_are_refused(connect):
    """The one whose world size is not that of `torch.distributed` is warned: its processes may train apart."""
    first = iter(open_rank(0))
    next(first)
    with pytest.warns(UserWarning, match="world_size 3 and 2"):
        next(iter(open_rank(1, world_size=2)))
    with pytest.raises(UsageError, match="world_size 3 and 2"):
        next(first)


def test_splits_are_compared(connect, few_blocks):
    next(iter(open_rank(0, few_blocks, global_batch_size=3, end="pad")))
    with pytest.raises(UsageError, match="split 'train' and 'eval'"):
        next(iter(open_rank(1, few_blocks, global_batch_size=3, end="pad", split="eval")))


def test_batching_and_padding_are_compared(connect):
    cache, _ = small_document_cache(NUM_BLOCKS)
    for different, what in (
        ({"batching": "padding_free"}, "batching 'padded' and 'padding_free'"),
        ({"batching": Padded(multiple_of=8)}, "padded {"),
    ):
        connect()
        next(iter(open_rank(0, cache, batching="padded")))
        with pytest.raises(UsageError) as refused:
            next(iter(open_rank(1, cache, **{"batching": "padded", **different})))
        assert what in refused.value.message


def test_ranks_that_agree_train_through_epochs_and_resumes(connect):
    loaders = [open_rank(rank) for rank in range(WORLD_SIZE)]
    for _ in range(2):
        for steps in zip(*loaders, strict=True):
            assert len({step.index for step in steps}) == 1
    state = loaders[1].state_dict()
    connect()
    elastic = [resumed(rank, state, world_size=2) for rank in range(2)]
    connect(2)
    assert len(list(zip(*elastic, strict=True))) == 6


def test_a_rank_that_was_resumed_later_is_refused_where_the_next_iteration_begins(connect):
    loaders = [open_rank(rank) for rank in range(WORLD_SIZE)]
    for loader in loaders:
        next(iter(loader))
    saved = loaders[0].state_dict()
    loaders[2].load_state_dict(after(4))
    for loader in loaders[:2]:
        loader.load_state_dict(saved)
        next(iter(loader))
    with pytest.raises(UsageError, match="cursor 6 and 24"):
        next(iter(loaders[2]))


def test_what_one_rank_reads_alone_is_compared_with_nothing(connect):
    """An evaluation on one rank, a look at the first step that is taken back, and a pass that others never begin."""
    loaders = [open_rank(rank) for rank in range(WORLD_SIZE)]
    assert len(list(open_rank(0, OTHER, world_size=1, seed=9))) == NUM_BLOCKS // 6
    before = loaders[0].state_dict()
    next(iter(loaders[0]))
    loaders[0].load_state_dict(before)
    assert len(list(zip(*loaders, strict=True))) == NUM_BLOCKS // 6
    assert len(list(zip(*loaders, strict=True))) == NUM_BLOCKS // 6
    assert len(list(open_rank(1, OTHER))) == NUM_BLOCKS // 6


def test_a_rank_looks_no_more_once_all_have_come(connect, monkeypatch):
    loaders = [open_rank(rank) for rank in range(WORLD_SIZE)]
    iterations = [iter(loader) for loader in loaders]
    for _ in range(2):
        for steps in iterations:
            next(steps)
    monkeypatch.setattr(ranks, "_store", lambda: pytest.fail("the store was asked again"))
    for steps in iterations:
        next(steps)


def test_a_refused_rank_stays_refused(connect):
    next(iter(open_rank(0)))
    loader = open_rank(1, seed=4)
    for _ in range(2):
        with pytest.raises(UsageError, match="seed 3 and 4"):
            next(iter(loader))


def test_ranks_of_another_world_than_torchs_are_warned(connect):
    """With tensor parallelism several processes read for one rank; which train together, only the user knows."""
    connect(2 * WORLD_SIZE)
    for _ in range(2):
        for rank in range(WORLD_SIZE):
            next(iter(open_rank(rank)))
    connect(2 * WORLD_SIZE)
    next(iter(open_rank(0)))
    with pytest.warns(UserWarning, match="ranks 0 and 1 differ: seed 3 and 4"):
        next(iter(open_rank(1, seed=4)))


def test_a_loader_of_one_rank_asks_nobody(monkeypatch):
    monkeypatch.setattr(ranks, "_store", lambda: pytest.fail("the store was asked"))
    assert len(list(open_rank(0, world_size=1))) == NUM_BLOCKS // 6
