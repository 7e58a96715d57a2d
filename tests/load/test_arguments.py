"""Whatever is given to the reader's public names: it is taken, or refused by its name with what was expected."""

import inspect
import json
from decimal import Decimal
from fractions import Fraction
from functools import partial
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest
import torch
from small_blocks import small_cache
from small_documents import small_document_cache
from small_micro_batches import assert_same
from torch.utils.data import DataLoader

from packer.errors import InputError, PackerError
from packer.load import (
    EvaluationBatches,
    Mixture,
    PackedDataset,
    PackedLoader,
    Padded,
    StepDataset,
    collate,
    poison_test,
    shift_labels,
)
from packer.load.adapters import huggingface
from packer.load.attention import documents_of
from packer.load.trainers import StepBatches

JUNK = [
    *(None, "", "x", "0", b"x", -1, 0, 1.5, True, 2**40, 2**70, -(2**70), float("nan"), float("inf")),
    *([], ["x"], [[]], [1], {}, {"x": 1}, (), object(), Path("nowhere"), np.arange(3), torch.zeros(2)),
]
BLOCKS = {"micro_batch_size": 1, "global_batch_size": 2, "rank": 0, "world_size": 1}
BATCHINGS = [
    {},
    {"batching": "token_budget", "micro_batch_size": 40, "global_batch_size": 80},
]
ARGUMENTS = [name for name in inspect.signature(PackedLoader).parameters if name != "prefetch"]  # of any size


def loader_of(cache, **options):
    return PackedLoader(cache, **BLOCKS, **options)


def read(cache, **options):
    with PackedLoader(cache, **options) as loader:
        assert sum(1 for _ in loader) > 0


def outcome_of(call, name):
    """What a call came to; an error must be one that packer raises of what it was given, and say what that is."""
    try:
        call()
    except (PackerError, ValueError, TypeError) as error:
        assert name in str(error) or isinstance(error, PackerError), f"{type(error).__name__}: {error}"
        return "refused"
    return "taken"


@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize("batching", BATCHINGS, ids=lambda options: options.get("batching", "packed"))
def test_a_loader_takes_an_argument_and_reads_or_refuses_it_by_name(argument, batching):
    cache = small_document_cache(12)[0] if batching else small_cache(12)
    options = {"cache": cache, **BLOCKS, **batching}
    outcomes = [outcome_of(partial(read, **{**options, argument: junk}), argument) for junk in JUNK]
    assert outcomes.count("refused") >= len(JUNK) - 7
    assert outcome_of(partial(read, **options), argument) == "taken"


def mixed(pairs, **options):
    return read(Mixture(pairs, **options), **BLOCKS)


CALLS = {
    "caches": mixed,
    "caches of a pair": lambda junk: mixed([junk]),
    "cache": lambda junk: mixed([(junk, 1)]),
    "proportion": lambda junk: mixed([(small_cache(12), 1), (small_cache(12), junk)]),
    "epoch": lambda junk: mixed([(small_cache(12), 1)], epoch=junk),
    "cache of a dataset": PackedDataset,
    "split": lambda junk: PackedDataset(small_cache(12), junk),
    "columns": lambda junk: PackedDataset(small_cache(12), columns=junk),
    "loader": StepDataset,
    "loader of batches": StepBatches,
    "loader to evaluate": lambda junk: EvaluationBatches(junk, dict),
    "length": lambda junk: loader_of(small_document_cache(12)[0], batching=Padded(length=junk)),
    "multiple_of": lambda junk: loader_of(small_document_cache(12)[0], batching=Padded(multiple_of=junk)),
    "side": lambda junk: loader_of(small_document_cache(12)[0], batching=Padded(side=junk)),
    "state": lambda junk: loader_of(small_cache(12)).load_state_dict(junk),
    "state of steps": lambda junk: StepDataset(loader_of(small_cache(12))).load_state_dict(junk),
    "epoch of steps": lambda junk: loader_of(small_cache(12)).steps_until(junk),
    "step": lambda junk: loader_of(small_cache(12)).doc_ids(junk),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_argument_is_refused_by_its_name(name):
    outcomes = [outcome_of(partial(CALLS[name], junk), name.split(" of ")[0].split(" to ")[0]) for junk in JUNK]
    assert outcomes.count("refused") >= len(JUNK) - 7


@pytest.mark.parametrize(
    "options",
    [
        {"batching": "dynamic"},
        {"batching": Padded(length=64, multiple_of=8)},
        {"batching": Padded(length=2**20 + 1)},
        {"batching": Padded(multiple_of=2**20 + 1)},
        {"batching": Padded(side="both")},
        {"batching": "padded", "world_size": None},
        {"batching": "padded", "rank": 1},
        {"batching": "padded", "device": "meta"},
        {"batching": "padded", "prefetch": -1},
    ],
)
def test_values_that_cannot_be_are_refused(options):
    with pytest.raises(ValueError):
        PackedLoader(small_document_cache(5)[0], **{**BLOCKS, **options})


@pytest.mark.parametrize("padded", [Padded(length=np.int64(64)), Padded(multiple_of=np.int32(8))])
def test_a_state_holds_numbers_that_numpy_gave(padded):
    sizes = {"micro_batch_size": np.int64(64), "global_batch_size": np.int32(128), "seed": np.uint8(3)}
    loader = PackedLoader(small_document_cache(150)[0], batching=padded, end="pad", **sizes)
    list(loader)
    assert json.loads(json.dumps(loader.state_dict())) == loader.state_dict()


@pytest.mark.parametrize("number", [3, np.int64(3), np.float32(3), 3.0, Fraction(3), Decimal(3)])
def test_a_proportion_is_any_number_and_exact(number):
    cache = small_cache(12)
    assert Mixture([(cache, number), (cache, 1)]).shares == (Fraction(3, 4), Fraction(1, 4))


# In a DataLoader of torch


@pytest.mark.parametrize(("num_workers", "batch_size"), [(0, 1), (1, 3)])
def test_a_data_loader_makes_flattened_micro_batches_of_blocks_without_any_setting(batch_size, num_workers):
    dataset = PackedDataset(small_cache(7, 16))
    options = {"batch_size": batch_size, "num_workers": num_workers}
    batches = list(DataLoader(dataset, **options))
    assert len(batches) == -(-7 // batch_size)
    for number, batch in enumerate(batches):
        expected = collate(dataset.__getitems__(range(number * batch_size, min((number + 1) * batch_size, 7))))
        assert_same(batch, expected)


def test_indices_and_items_that_are_none_are_refused():
    dataset = PackedDataset(small_cache(4))
    for indices in ([1.5], ["1"], [None], [[0]]):
        with pytest.raises(TypeError, match="integer"):
            dataset.__getitems__(indices)
    with pytest.raises(ValueError, match="items is empty"):
        collate([])
    with pytest.raises(InputError, match="is not a cache"):
        PackedDataset("nowhere")


def test_items_that_lost_columns_are_not_collated():
    """A transformers Trainer removes the columns that the model does not take."""
    plain = PackedDataset(small_cache(4))[0]
    item = {name: value for name, value in plain.items() if name != "seq_lengths"}
    with pytest.raises(ValueError, match=r"lack seq_lengths;.* remove_unused_columns=False"):
        collate([item])
    for items in ([plain, item], [item, plain]):
        with pytest.raises(ValueError, match="lack seq_lengths"):
            collate(items)


def test_a_step_is_not_taken_for_a_micro_batch():
    step = next(iter(loader_of(small_cache(4))))
    calls = (
        partial(huggingface, config=None),
        shift_labels,
        documents_of,
        partial(poison_test, None),
    )
    for call in (*calls, itemgetter("input_ids")):
        with pytest.raises(TypeError, match="for micro_batch in step"):
            call(step)
