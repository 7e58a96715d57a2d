"""The reader among other processes: workers of a DataLoader, forks, pickles, shared memory."""

import json
import pickle

import pytest
import torch
from processes import FORKED, HANG_S, in_a_process, start
from small_blocks import small_cache
from small_micro_batches import assert_same
from torch.utils.data import DataLoader

from packer.load import PackedDataset, PackedLoader, collate

NUM_BLOCKS = 40


# Workers


def test_workers_give_the_same_batches_and_items_as_no_workers():
    """Two epochs in a shuffled order; the dataset was read from before the workers were made."""
    dataset = PackedDataset(small_cache(NUM_BLOCKS, 16))
    assert dataset[7]["num_trained"] >= 0

    order = torch.randperm(NUM_BLOCKS, generator=torch.Generator().manual_seed(11)).tolist()

    def batches(num_workers, epochs=2):
        loader = DataLoader(
            dataset,
            batch_size=3,
            sampler=order,
            collate_fn=collate,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            multiprocessing_context="fork" if num_workers else None,
        )
        return [batch for _ in range(epochs) for batch in loader]

    alone, apart = batches(0), batches(2)
    assert len(alone) == len(apart) == 2 * 14
    for one, other in zip(alone, apart, strict=True):
        assert_same(one, other)


# Fork

READING = """
import json, sys, threading, time

import pyarrow
from small_blocks import small_cache
from packer.load import PackedLoader

FOLDER = small_cache(40).folder

def loader_of(prefetch):
    return PackedLoader(
        FOLDER, micro_batch_size=1, global_batch_size=2, rank=0, world_size=1, prefetch=prefetch, order="sequential"
    )

def rest(steps):
    return [step.block_ids.tolist() for step in steps]
"""

WHOLE = [[2 * i, 2 * i + 1] for i in range(20)]


SCENARIOS = """
def again(prefetch):
    loader = loader_of(prefetch)
    steps = iter(loader)
    first = [next(steps).block_ids.tolist() for _ in range(4)]
    children = [forked(lambda: rest(loader)) for _ in range(2)]
    return [children, first + rest(steps)]

def going_on(prefetch):
    loader = loader_of(prefetch)
    steps = iter(loader)
    first = [next(steps).block_ids.tolist() for _ in range(4)]
    child = forked(lambda: rest(steps))
    return [[child], first + rest(steps)]

class Slow:
    # The turn-th time that a thread is about to open or map a shard it says so and waits, holding whatever it holds.
    def __init__(self, turn):
        self.left = turn
        self.reached = threading.Event()

    def pass_by(self):
        self.left -= 1
        if self.left == -1:
            self.reached.set()
            time.sleep(0.1)

slow, map_file = Slow(-1), pyarrow.memory_map

def on_a_shard(given):
    return isinstance(given[0], int) or str(given[0]).endswith(".arrow")

sys.addaudithook(lambda event, given: slow.pass_by() if event in ("open", "mmap.__new__") and on_a_shard(given) else None)
pyarrow.memory_map = lambda *given, **options: (slow.pass_by(), map_file(*given, **options))[1]  # says nothing to hooks

def while_opening(prefetch):
    global slow
    children = []
    for turn in range(100):
        slow = Slow(turn)
        loader = loader_of(prefetch)
        steps = iter(loader)
        starter = threading.Thread(target=lambda: next(steps))
        starter.start()
        while starter.is_alive() and not slow.reached.is_set():
            time.sleep(0.001)
        if not slow.reached.is_set():
            loader.close()
            return [children, rest(loader_of(prefetch))]
        children.append(forked(lambda: rest(loader)))
        starter.join()
        loader.close()

for scenario, prefetch in ((again, 0), (again, 3), (going_on, 0), (going_on, 3), (while_opening, 1)):
    print(json.dumps([scenario.__name__, prefetch, scenario(prefetch)]))
"""


@pytest.fixture(scope="module")
def forks():
    """What children and their parent read, by scenario and prefetch."""
    return {(name, prefetch): found for name, prefetch, found in in_a_process(FORKED + READING + SCENARIOS)}


@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_loader_that_was_iterated_is_iterated_again_in_a_forked_child_and_in_the_parent(forks, prefetch):
    """With a thread that is alive at the fork, and without."""
    assert forks["again", prefetch] == [2 * [WHOLE[4:]], WHOLE]


def test_an_iteration_without_a_thread_goes_on_in_a_forked_child(forks):
    """As code does that forks in the middle of its loop; parent and child each go on from the fork."""
    assert forks["going_on", 0] == [[WHOLE[4:]], WHOLE]


def test_an_iteration_whose_thread_is_not_in_a_forked_child_says_so_there_and_waits_for_nothing(forks):
    ((child,), parent) = forks["going_on", 3]
    assert child.startswith("RuntimeError")
    assert "begin a new one" in child
    assert parent == WHOLE


def test_a_fork_while_the_thread_opens_or_maps_a_shard_leaves_the_child_free_to_read(forks):
    """At every place where it does, one after another: a lock that is held there would stay held in the child.

    The parent may have been given its first step before the fork, or not.
    """
    children, parent = forks["while_opening", 1]
    assert all(child in (WHOLE, WHOLE[1:]) for child in children)
    assert len(children) >= 2
    assert parent == WHOLE


# Pickle


@pytest.mark.parametrize("running", [False, True])
def test_a_pickled_loader_goes_on_where_it_stood_and_leaves_the_one_it_was_made_of_alone(running):
    cache = small_cache(NUM_BLOCKS)
    with PackedLoader(cache, micro_batch_size=1, global_batch_size=2, rank=0, world_size=1, prefetch=2) as loader:
        steps = iter(loader)
        first = [next(steps).block_ids.tolist() for _ in range(3)]
        if not running:
            loader.close()
        copy = pickle.loads(pickle.dumps(loader))
        assert copy.state_dict() == loader.state_dict()
        theirs = [step.block_ids.tolist() for step in copy]
        ours = [step.block_ids.tolist() for step in (steps if running else loader)]
    assert theirs == ours
    assert len(first) + len(theirs) == NUM_BLOCKS // 2


def test_a_pickled_loader_takes_the_rank_of_the_process_that_opens_it(monkeypatch):
    with monkeypatch.context() as patch:
        for name, value in {"is_initialized": True, "get_rank": 1, "get_world_size": 2}.items():
            patch.setattr(torch.distributed, name, lambda value=value: value)
        loader = PackedLoader(small_cache(NUM_BLOCKS), global_batch_size=4, prefetch=0)
    assert (loader.world_size, pickle.loads(pickle.dumps(loader)).world_size) == (2, 1)


SPAWNED = """
import json, pickle, sys
from pathlib import Path
import packer  # kept alive by its name, its modules are emptied before this script's names are
from packer.load import PackedLoader

def steps():
    with PackedLoader(sys.argv[2], micro_batch_size=1, global_batch_size=2, rank=0, world_size=1) as loader:
        yield from loader

read = [step.block_ids.tolist() for step in pickle.loads(Path(sys.argv[1]).read_bytes())]
left = PackedLoader(sys.argv[2], micro_batch_size=1, global_batch_size=2, rank=0, world_size=1)
bare, wrapped = iter(left), steps()
print(json.dumps([read, next(bare).index + next(wrapped).index]))
"""


@pytest.mark.slow
def test_a_spawned_process_reads_a_loader_it_was_given_and_ends_in_silence_while_others_are_iterated(tmp_path):
    cache = small_cache(NUM_BLOCKS)
    loader = PackedLoader(cache, micro_batch_size=1, global_batch_size=2, rank=0, world_size=1, order="sequential")
    for step in loader:
        if step.index == 5:
            break
    loader.close()
    (tmp_path / "loader.pickle").write_bytes(pickle.dumps(loader))
    process = start(SPAWNED, tmp_path / "loader.pickle", small_cache(9).folder)
    output, errors = process.communicate(timeout=HANG_S)
    assert (process.returncode, errors) == (0, "")
    assert json.loads(output) == [WHOLE[6:], 0]
