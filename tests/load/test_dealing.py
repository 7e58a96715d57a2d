"""Who reads which rows of a step: against a literal account of the rule, and without a trace in what is trained."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_effort import percent_of_examples
from small_blocks import small_cache
from small_documents import small_document_cache

from packer.load import Mixture, PackedLoader
from packer.load.ranks import filled

WORK = st.lists(st.integers(0, 12), min_size=1, max_size=24)


def literal_micro_batches(work, sizes, room, number):
    """By looking at every micro-batch for every row; None if a row finds no room."""
    micro_batches = [[] for _ in range(number)]
    for row in sorted(range(len(work)), key=lambda row: (-work[row], row)):
        fits = [i for i in range(number) if sum(sizes[other] for other in micro_batches[i]) + sizes[row] <= room]
        if not fits:
            return None
        micro_batches[min(fits, key=lambda i: (sum(work[other] for other in micro_batches[i]), i))].append(row)
    order = sorted(range(number), key=lambda i: (-sum(work[row] for row in micro_batches[i]), i))
    return [sorted(micro_batches[i]) for i in order]


def literal_ranks(work, num_ranks):
    """Each round: the ranks with the least work so far get those that take longest of the next ones."""
    left = sorted(range(len(work)), key=lambda i: (-work[i], i))
    ranks = [[] for _ in range(num_ranks)]
    while left:
        loads = [sum(work[i] for i in of_rank) for of_rank in ranks]
        for rank in sorted(range(num_ranks), key=lambda rank: (loads[rank], rank)):
            ranks[rank].append(left.pop(0))
    return ranks


@given(work=WORK, sizes=st.data(), number=st.integers(1, 8), room=st.integers(3, 20))
def test_the_longest_row_first_goes_where_there_is_least_work_and_room(work, sizes, number, room):
    sizes = sizes.draw(st.lists(st.integers(1, 3), min_size=len(work), max_size=len(work)))
    found = filled(np.array(work), np.array(sizes), room=room, number=number)
    expected = literal_micro_batches(work, sizes, room, number)
    assert (found is None) == (expected is None)
    if found is not None:
        assert [group.tolist() for group in found] == expected


# In a loader


def sequences_of(micro_batch):
    if "attention_mask" in micro_batch:
        rows, width = micro_batch["attention_mask"].shape
        return [width] * rows
    return micro_batch["cu_seq_lens_q"].diff().tolist()


def work_of(micro_batch, balance):
    return sum(balance * n + n * n for n in sequences_of(micro_batch))


@pytest.mark.parametrize("kind", ["packed", "mixed", "padding_free", "padded", "token_budget"])
@percent_of_examples(40)
@given(
    num_rows=st.integers(1, 40),
    world_size=st.integers(2, 4),
    micro=st.integers(1, 3),
    accumulation=st.integers(1, 3),
    balance=st.sampled_from([1, 24_576]),
    end=st.sampled_from(["short", "pad"]),
)
def test_a_step_has_the_rows_and_counts_it_has_without_balance_and_the_ranks_their_micro_batches_by_the_rule(
    kind, num_rows, world_size, micro, accumulation, balance, end
):
    """On every rank alike; the state is that of a loader that is alone and deals nothing, but for micro-batches."""
    cache = small_cache(num_rows, 16)
    if kind == "mixed":
        cache = Mixture([(cache, 2), (small_cache(7, 16, fingerprint="beef"), 1)])
    elif kind != "packed":
        cache, _ = small_document_cache(num_rows)
    micro *= 60 if kind == "token_budget" else 1
    options = {
        "batching": "packed" if kind == "mixed" else kind,
        "micro_batch_size": micro,
        "global_batch_size": micro * world_size * accumulation,
        "world_size": world_size,
        "end": end,
        "prefetch": 0,
    }
    plain = [PackedLoader(cache, rank=rank, balance=0, **options) for rank in range(world_size)]
    balanced = [PackedLoader(cache, rank=rank, balance=balance, **options) for rank in range(world_size)]
    num_steps = 0
    for one, other in zip(zip(*plain, strict=True), zip(*balanced, strict=True), strict=True):
        rows = [sorted(row for step in steps for row in step.block_ids.tolist()) for steps in (one, other)]
        assert rows[0] == rows[1]
        for a, b in zip(one, other, strict=True):
            for name in (
                "index",
                "epoch",
                "num_items_in_batch",
                "coverage",
                "size",
                "num_tokens",
                "num_slots",
                "num_pairs",
            ):
                assert getattr(a, name) == getattr(b, name)
        assert len({len(step) for step in other}) == 1
        if kind != "token_budget":
            assert {len(step.block_ids) for step in other} == {micro * len(other[0])}
        slots = sum(micro_batch["input_ids"].numel() for step in other for micro_batch in step)
        assert slots == other[0].num_slots
        work = [[work_of(micro_batch, balance) for micro_batch in step] for step in other]
        every = sorted((each for of_rank in work for each in of_rank), reverse=True)
        expected = literal_ranks(every, world_size)
        assert work == [[every[i] for i in of_rank] for of_rank in expected]
        num_steps += 1
    assert num_steps
    states = {json.dumps(loader.state_dict(), sort_keys=True) for loader in (*plain, *balanced)}
    assert len(states) == 1
