"""Batches made of documents, against documents laid out one by one in plain Python."""

import itertools
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from search_effort import one_in, percent_of_examples
from small_blocks import small_cache
from small_documents import PAD_ID, small_document_cache

from packer.errors import InputError, UsageError
from packer.load import Mixture, PackedLoader, Padded
from packer.load.ordering import EpochOrder

BATCHINGS = [
    "padded",
    "padding_free",
    Padded(multiple_of=8),
    Padded(length=32, side="left"),
    Padded(side="left"),
]
ORDERS = {
    "random": "random",
    "sequential": "sequential",
    "length_bucketed": "length_bucketed",
    "some twice": lambda epoch: np.random.default_rng(epoch).permutation(
        np.repeat(np.arange(31), 1 + np.arange(31) % 2)
    ),
    "function": lambda epoch: np.arange(31 - 5 * epoch)[::-1],
    "mixed": "random",
}


def loader_of(cache, **options):
    return PackedLoader(cache, **{"micro_batch_size": 2, "global_batch_size": 4, "rank": 0, "world_size": 1, **options})


def ranks_of(cache, world_size, **options):
    return [loader_of(cache, rank=rank, world_size=world_size, **options) for rank in range(world_size)]


def omega(num_documents, epoch=0, seed=0):
    order = EpochOrder(fingerprint="d0c5", seed=seed, num_items=num_documents, shuffled=True)
    return order.rows(epoch, 0, num_documents).tolist()


def literal_rows(documents, numbers):
    """ids, labels, positions of documents as lists; of a padding row one pad token."""
    rows = []
    for number in numbers:
        if number == -1:
            rows.append(([PAD_ID], [-100], [0]))
            continue
        document = documents[number]
        n = len(document.input_ids)
        rows.append(
            (
                document.input_ids[:n].tolist(),
                document.labels[:n].tolist(),
                list(range(n)),
            )
        )
    return rows


def literal_padded(rows, *, width, side):
    def padded(values, fill):
        padding = [fill] * (width - len(values))
        return padding + values if side == "left" else values + padding

    return {
        "input_ids": [padded(ids, PAD_ID) for ids, _, _ in rows],
        "labels": [padded(labels, -100) for _, labels, _ in rows],
        "position_ids": [padded(positions, 0) for _, _, positions in rows],
        "attention_mask": [padded([1] * len(ids), 0) for ids, _, _ in rows],
    }


def literal_flat(rows):
    lengths = [len(ids) for ids, _, _ in rows]
    columns = ("input_ids", "labels", "position_ids")
    flat = {name: [[value for row in rows for value in row[i]]] for i, name in enumerate(columns)}
    bounds = [0, *np.cumsum(lengths).tolist()]
    return flat | {
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
        "max_length_q": max(lengths),
        "max_length_k": max(lengths),
    }


def literal(batching, rows):
    """What a micro-batch of these rows must be."""
    shape = batching
    if shape == "padded":
        shape = Padded()
    if not isinstance(shape, Padded):
        return literal_flat(rows)
    longest = max(len(row[0]) for row in rows)
    width = shape.length or -(-longest // shape.multiple_of) * shape.multiple_of
    return literal_padded(rows, width=width, side=shape.side)


def plain(micro_batch):
    return {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in micro_batch.items()}


def split_by(step, sizes):
    """The step's rows cut into its micro-batches."""
    bounds = np.cumsum([0, *sizes])
    return [step.block_ids[a:b].tolist() for a, b in pairwise(bounds)]


@pytest.mark.parametrize("batching", BATCHINGS, ids=str)
@percent_of_examples(40)
@given(
    num_documents=st.integers(1, 23),
    world_size=st.integers(1, 3),
    micro=st.integers(1, 3),
    accumulation=st.integers(1, 2),
)
def test_micro_batches_are_the_documents_laid_out_literally(batching, num_documents, world_size, micro, accumulation):
    cache, documents = small_document_cache(num_documents)
    size = world_size * micro * accumulation
    loaders = ranks_of(
        cache,
        world_size,
        micro_batch_size=micro,
        global_batch_size=size,
        batching=batching,
        end="pad",
        prefetch=0,
    )
    taken, num_steps = [], 0
    places = {number: place for place, number in enumerate(omega(num_documents))}
    for parts in zip(*loaders, strict=True):
        tokens, slots, of_step = 0, 0, []
        num_items = 0
        for part in parts:
            assert len(part) == accumulation
            for micro_batch, numbers in zip(part, split_by(part, [micro] * accumulation), strict=True):
                rows = literal_rows(documents, numbers)
                assert plain(micro_batch) == literal(batching, rows)
                tokens += sum(len(row[0]) for row, number in zip(rows, numbers, strict=True) if number >= 0)
                slots += micro_batch["input_ids"].numel()
                num_items += sum(label != -100 for row in rows for label in row[1])
                of_step += [number for number in numbers if number >= 0]
        taken += sorted(of_step, key=places.get)
        for part in parts:
            assert (part.num_tokens, part.num_slots) == (tokens, slots)
            assert part.num_items_in_batch == num_items
        num_steps += 1
    assert num_steps == -(-num_documents // size)
    assert taken == omega(num_documents)


@percent_of_examples(40)
@given(
    num_documents=st.integers(1, 40),
    world_size=st.integers(1, 4),
    budget=st.integers(20, 70),
    steps=st.integers(1, 3),
)
def test_token_budgets_hold_every_document_of_the_step_once_and_no_more_than_fits(
    num_documents, world_size, budget, steps
):
    cache, documents = small_document_cache(num_documents)
    size = world_size * budget * steps
    options = {"micro_batch_size": budget, "global_batch_size": size, "batching": "token_budget", "end": "pad"}
    loaders = ranks_of(cache, world_size, **options, prefetch=0)
    alone = loader_of(cache, **{**options, "micro_batch_size": size}, prefetch=0)
    taken, num_steps = [], 0
    for whole, *parts in zip(alone, *loaders, strict=True):
        assert len({len(part) for part in parts}) == 1
        rows, slots = [], 0
        for part in parts:
            place = 0
            for micro_batch in part:
                held = micro_batch["cu_seq_lens_q"].numel() - 1
                numbers = part.block_ids[place : place + held].tolist()
                place += held
                expected = literal_flat(literal_rows(documents, numbers))
                assert plain(micro_batch) == expected
                assert micro_batch["input_ids"].numel() <= max(budget, 1)
                slots += micro_batch["input_ids"].numel()
                rows += [number for number in numbers if number >= 0]
            assert place == len(part.block_ids)
        assert sorted(rows) == sorted(number for number in whole.block_ids.tolist() if number >= 0)
        tokens = sum(len(documents[number].input_ids) for number in rows)
        assert {part.num_tokens for part in parts} == {tokens}
        assert {part.num_slots for part in parts} == {slots}
        assert tokens <= size
        literal_targets = sum(int((documents[number].labels[1:] != -100).sum()) for number in rows)
        assert {part.num_items_in_batch for part in parts} == {literal_targets}
        taken += rows
        num_steps += 1
    assert num_steps > 0
    assert sorted(taken) == list(range(num_documents))


@given(num_documents=st.integers(1, 40), size=st.integers(20, 90), seed=st.integers(0, 9))
def test_a_step_of_tokens_takes_the_next_documents_as_long_as_they_fit(num_documents, size, seed):
    cache, documents = small_document_cache(num_documents)
    expected, step, room = [], [], size
    for number in omega(num_documents, seed=seed):
        length = len(documents[number].input_ids)
        if length > room:
            expected.append(step)
            step, room = [], size
        step.append(number)
        room -= length
    expected.append(step)
    options = {"micro_batch_size": size, "global_batch_size": size, "batching": "token_budget", "seed": seed}
    steps = [sorted(step.block_ids.tolist()) for step in loader_of(cache, end="pad", **options)]
    assert steps == [sorted(step) for step in expected]
    if room and len(expected) > 1:
        kept = loader_of(cache, end="drop", **options)
        assert [sorted(step.block_ids.tolist()) for step in kept] == [sorted(step) for step in expected[:-1]]


ENDS = ("drop", "pad", "short")
RESUMED = [
    *itertools.product(["packed"], ["random", "function", "mixed"], ENDS),
    *itertools.product(["padded", "padding_free"], ["random", "sequential", "length_bucketed"], ENDS),
    *itertools.product(["token_budget"], ORDERS, ENDS),
]


@pytest.mark.parametrize(("batching", "order", "end"), one_in(4, RESUMED))
def test_resume_on_other_ranks_goes_on_exactly(batching, order, end, monkeypatch):
    """In every order, of blocks, documents, and mixtures; with steps made ahead, and without."""
    monkeypatch.setattr("packer.load.ordering.WINDOW", 7)
    if batching == "packed":
        cache, other = small_cache(31), small_cache(17, fingerprint="beef")
    else:
        cache, other = small_document_cache(31)[0], small_document_cache(17, seed=1, fingerprint="beef")[0]
    if order == "mixed":
        cache = Mixture([(cache, 3), (other, 2)], by="rows" if batching == "packed" else "tokens")
    unit = 20 if batching == "token_budget" else 2

    def run(loaders, epochs=2):
        while loaders[0].epoch < epochs:
            for parts in zip(*loaders, strict=True):
                rows = sorted(number for part in parts for number in part.block_ids.tolist() if number >= 0)
                yield rows, parts[0].num_items_in_batch, parts[0].num_tokens, loaders[0].state_dict()

    options = {"micro_batch_size": unit, "global_batch_size": 6 * unit, "batching": batching, "end": end}
    options["order"] = ORDERS[order]
    (alone,) = ranks_of(cache, 1, **options, prefetch=0)
    whole = list(run([alone]))
    assert len(whole) >= 4
    if order == "mixed":
        state = whole[-1][3]
        assert sum(state["taken"]) == state["epoch"] * alone.num_blocks + state["cursor"]
    for taken, (_, _, _, state) in one_in(3, list(enumerate(whole))):
        loaders = ranks_of(cache, 2 + taken % 2, **options, prefetch=3 * (taken % 2))
        for loader in loaders:
            loader.load_state_dict(state)
        rest = [step[:3] for step in run(loaders)]
        assert rest == [step[:3] for step in whole[taken + 1 :]]
        for loader in loaders:
            loader.close()


def test_documents_no_micro_batch_has_room_for_are_refused_with_their_number():
    cache, documents = small_document_cache(25)
    longest = max(len(document.input_ids) for document in documents)
    too_long = sum(len(document.input_ids) > longest - 1 for document in documents)
    message = f"{too_long} of 25 documents have more than {longest - 1} tokens, the longest {longest}"
    with pytest.raises(UsageError, match=message) as caught:
        loader_of(cache, batching="token_budget", micro_batch_size=longest - 1, global_batch_size=4 * (longest - 1))
    assert "a filter of the recipe on `tokens`" in caught.value.hint
    with pytest.raises(UsageError, match=message):
        loader_of(cache, batching=Padded(length=longest - 1))


def test_a_cache_without_blocks_or_documents_names_what_it_has():
    with pytest.raises(UsageError, match=r"no blocks: pack\.mode is 'none'"):
        loader_of(small_document_cache(5)[0])
    with pytest.raises(UsageError, match="no documents of split 'train'"):
        loader_of(small_cache(5), batching="padded")
    with pytest.raises(InputError, match="no blocks"):
        loader_of(small_cache(0))
    with pytest.raises(UsageError, match="is for documents"):
        loader_of(small_cache(8), order="length_bucketed")


@pytest.mark.parametrize("mixed", [False, True])
def test_a_step_names_the_documents_of_its_rows(mixed):
    cache, _ = small_document_cache(9)
    stored = cache.documents("train").doc_ids()
    loader = loader_of(Mixture([(cache, 1)]) if mixed else cache, batching="padded", end="pad")
    num_padding = 0
    for step in loader:
        for number, doc_ids in zip(step.block_ids.tolist(), loader.doc_ids(step), strict=True):
            assert doc_ids.tolist() == ([stored[number]] if number >= 0 else [])
            num_padding += number < 0
    assert num_padding == 3
    blocks = small_cache(7)
    batch = blocks.blocks("train").read(np.arange(7))
    for step in loader_of(blocks, micro_batch_size=1, global_batch_size=1):
        (number,), (doc_ids,) = step.block_ids.tolist(), loader_of(blocks).doc_ids(step)
        assert doc_ids.tolist() == batch.doc_ids[batch.doc_offsets[number] : batch.doc_offsets[number + 1]].tolist()


@pytest.mark.parametrize("batching", ["packed", "padded", "padding_free", "token_budget"], ids=str)
def test_a_summary_is_what_iterating_then_gives(batching):
    """Steps, micro-batches of a rank and the sum of what losses are divided by; from a place within an epoch too."""
    cache = small_cache(11) if batching == "packed" else small_document_cache(23)[0]
    sizes = {"micro_batch_size": 24, "global_batch_size": 96} if batching == "token_budget" else {}
    loader = loader_of(cache, rank=0, world_size=2, batching=batching, end="pad", **sizes)
    next(iter(loader))
    summary = loader.summary()
    steps = list(loader)
    assert len(steps) > 1
    assert summary.steps == len(steps)
    assert summary.micro_batches == sum(len(step) for step in steps)
    assert summary.num_items == sum(step.num_items_in_batch for step in steps)
