"""A loader's state in the checkpoints of others: torch, JSON, torch.distributed.checkpoint, torchdata."""

import json
import warnings
from copy import deepcopy

import pytest
import torch
from small_blocks import small_cache
from torch.utils.data import DataLoader, IterableDataset

from packer.errors import CheckError, UsageError
from packer.load import PackedLoader, StepDataset

NUM_BLOCKS, EPOCHS = 11, 3


def loader_of(cache=None, **options):
    options = {"micro_batch_size": 1, "global_batch_size": 2, "rank": 0, "world_size": 1, "end": "pad", **options}
    return PackedLoader(cache or small_cache(NUM_BLOCKS), **options)


def what(step):
    """What makes a step this one and no other."""
    return step.index, step.epoch, step.block_ids.tolist(), step.num_items_in_batch


def epochs_of(loader, steps_of=None, epochs=EPOCHS):
    """Steps up to an epoch, by the loop the loader's documentation shows."""
    while loader.epoch < epochs:
        for step in steps_of or loader:
            yield what(step)


# Files


def through_torch_save(state, folder):
    torch.save({"reader": state, "weights": torch.zeros(2)}, folder / "state.pt")
    return torch.load(folder / "state.pt", weights_only=True)["reader"]


def through_json(state, folder):
    (folder / "state.json").write_text(json.dumps(state), "utf-8")
    return json.loads((folder / "state.json").read_text("utf-8"))


@pytest.mark.parametrize("saved_by", [through_torch_save, through_json])
@pytest.mark.parametrize("made", [lambda loader: loader, StepDataset])
def test_a_state_from_a_file_is_the_state_and_goes_on_at_the_next_step(saved_by, made, tmp_path):
    whole = list(epochs_of(loader_of()))
    num_resumed = 0
    for stop in (1, 5, 6, 9):
        with loader_of() as loader:
            source, taken = made(loader), 0
            while taken < stop:
                for _ in source:
                    taken += 1
                    if taken == stop:
                        break
            state = source.state_dict()
        read = saved_by(state, tmp_path)
        assert read == state
        resumed = loader_of()
        target = made(resumed)
        target.load_state_dict(read)
        assert target.state_dict() == state
        assert next(epochs_of(resumed, target)) == whole[stop]
        resumed.close()
        num_resumed += 1
    assert num_resumed == 4


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("made", [lambda loader: loader, StepDataset])
def test_a_distributed_checkpoint_takes_a_loader_as_it_is(made, tmp_path):
    from torch.distributed import checkpoint

    whole = list(epochs_of(loader_of()))
    with loader_of() as loader:
        steps = iter(loader)
        for _ in range(4):
            next(steps)
        saved = {"reader": made(loader), "weights": torch.arange(3.0)}
        checkpoint.save(saved, checkpoint_id=tmp_path / "checkpoint")
        state = loader.state_dict()
    resumed = loader_of()
    restored = {"reader": made(resumed), "weights": torch.zeros(3)}
    checkpoint.load(restored, checkpoint_id=tmp_path / "checkpoint")
    assert restored["weights"].tolist() == [0, 1, 2]
    assert resumed.state_dict() == state
    assert list(epochs_of(resumed)) == whole[4:]


# Steps as a dataset


@pytest.mark.parametrize("end", ["drop", "pad", "short"])
@pytest.mark.parametrize("counted", [True, False])
def test_passes_over_a_step_dataset_are_the_epochs_whether_or_not_the_consumer_asks_for_the_end(end, counted):
    """`counted` stops after the announced number of steps, as Lightning does, and never asks for the one after."""
    expected = list(epochs_of(loader_of(end=end, prefetch=0)))
    loader = loader_of(end=end)
    dataset, seen = StepDataset(loader), []
    for epoch in range(EPOCHS):
        steps, num_steps = iter(dataset), len(dataset)
        assert num_steps == sum(1 for _, of, *_ in expected if of == epoch)
        seen += [what(next(steps)) for _ in range(num_steps)] if counted else [what(step) for step in steps]
    loader.close()
    assert seen == expected


@pytest.mark.parametrize("end", ["drop", "pad", "short"])
def test_the_length_of_a_step_dataset_is_that_of_the_whole_epoch_wherever_it_stands(end):
    loader = loader_of(end=end)
    dataset, num_seen = StepDataset(loader), 0
    for _ in range(2):
        steps = iter(dataset)
        length = len(dataset)
        for left in range(length - 1, -1, -1):
            next(steps)
            restored = StepDataset(loader_of(end=end))
            restored.load_state_dict(deepcopy(dataset.state_dict()))
            if left:
                assert len(dataset) == len(restored) == length
            num_seen += 1
    loader.close()
    assert num_seen == {"drop": 10, "pad": 12, "short": 12}[end]


def test_a_damaged_state_of_steps_is_refused_and_changes_nothing():
    dataset = StepDataset(loader_of())
    before = dataset.state_dict()
    damaged = [
        None,
        {},
        dataset.loader.state_dict(),
        {"reader": before["reader"]},
        {"reader": {}, "taken": 0},
        *({**before, "taken": taken} for taken in (-1, "1", None, 1.0, True, 2**70)),
        *({**before, "first": first} for first in (-1, "1", 1.0, True)),  # of a worker, in an earlier version
    ]
    for state in damaged:
        with pytest.raises(CheckError):
            dataset.load_state_dict(state)
        assert dataset.state_dict() == before
    assert len(damaged) == 15


@pytest.mark.parametrize(("made", "persistent"), [(lambda loader: loader, False), (StepDataset, True)])
def test_workers_of_a_data_loader_are_refused_by_name_before_they_read(made, persistent):
    """What they read would be in no state of the loader, and a new size or epoch would not reach them."""

    class Steps(IterableDataset):
        def __iter__(self):
            return iter(made(loader_of()))

    options = {"num_workers": 2, "persistent_workers": persistent, "multiprocessing_context": "fork"}
    steps = iter(DataLoader(Steps(), batch_size=None, **options))
    with pytest.raises(UsageError, match=r"(?s)does not read in a worker of a DataLoader.*num_workers=0"):
        next(steps)
    steps._shutdown_workers()  # left to the garbage, each is waited for in vain for five seconds


def test_a_plain_data_loader_hands_steps_through():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps = DataLoader(StepDataset(loader_of()), batch_size=None)
        assert len(steps) == 6
        assert [what(step) for step in steps] == list(epochs_of(loader_of(), epochs=1))


# torchdata

through_torchdata = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # which torchdata calls


@pytest.fixture
def stateful_loader():
    found = pytest.importorskip(
        "torchdata.stateful_dataloader", reason="TORCHDATA MISSING: its StatefulDataLoader is not tested"
    )
    return found.StatefulDataLoader


@through_torchdata
@pytest.mark.parametrize("end", ["drop", "pad"])
def test_torchdata_resumes_at_every_step_of_several_epochs(stateful_loader, end):
    """Each state is restored in a new loader, before its first pass, and gives what the first run gave from there."""

    def passes(source, num_steps):
        while num_steps > 0:
            for step in source:
                yield what(step), deepcopy(source.state_dict())
                num_steps -= 1
                if not num_steps:
                    return

    def source_of():
        return stateful_loader(StepDataset(loader_of(end=end)), batch_size=None)

    whole = list(passes(source_of(), 14))
    assert [step for step, _ in whole] == list(epochs_of(loader_of(end=end)))[:14]
    num_resumed = 0
    for i, (_, state) in enumerate(whole[:-1]):
        source = source_of()
        source.load_state_dict(json.loads(json.dumps(state)))
        following = [step for step, _ in whole[i + 1 : i + 4]]
        assert [step for step, _ in passes(source, len(following))] == following
        source.dataset.loader.close()
        num_resumed += 1
    assert num_resumed == 13
