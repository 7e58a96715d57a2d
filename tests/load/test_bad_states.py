"""What can be wrong with a cache or a state: damaged, cut short, of another content, of another loader."""

import functools
import operator
from copy import deepcopy

import numpy as np
import pytest
from flipped_bits import flip
from processes import FORKED, in_a_process
from small_blocks import random_blocks, small_cache, write_cache

from packer.errors import CheckError, PackerError
from packer.load import PackedDataset, PackedLoader, Padded
from packer.store.cache import Cache

OPTIONS = {"micro_batch_size": 1, "global_batch_size": 2, "rank": 0, "world_size": 1}


def loader_of(cache, **options):
    return PackedLoader(cache, **{**OPTIONS, **options})


def three_shards(folder, num_blocks=4, block_len=8, *, seed=0, fingerprint="f00d"):
    """A cache of three shards of its own."""
    batches = [random_blocks(num_blocks, block_len, seed=3 * seed + i) for i in range(3)]
    return write_cache(folder, batches, fingerprint=fingerprint)


# Cut short

CUT = """
import sys
from pathlib import Path

from packer.errors import PackerError
from packer.load import PackedDataset, PackedLoader
from packer.store.cache import Cache

def loader(cache, prefetch):
    options = dict(micro_batch_size=1, global_batch_size=2, rank=0, world_size=1, order="sequential")
    return iter(PackedLoader(cache, **options, prefetch=prefetch))

def items(cache):
    dataset = PackedDataset(cache)
    return (dataset[i] for i in range(len(dataset)))

CONSUMERS = {"loader": lambda it: loader(it, 0), "loader ahead": lambda it: loader(it, 2), "dataset": items}
folder = Path(sys.argv[1])
shard = sorted(folder.glob("blocks/*.arrow"))[-1]
content = shard.read_bytes()

def read(consumer, size, num_reads):
    def work():
        found = ["nothing", "", ""]
        if num_reads < 0:
            os.truncate(shard, size)
        try:
            reading = CONSUMERS[consumer](Cache.open(folder))
            for _ in range(num_reads * (2 if consumer == "dataset" else 1)):
                next(reading)
            if num_reads >= 0:
                os.truncate(shard, size)
            for _ in reading:
                pass
        except PackerError as error:
            found = [type(error).__name__, str(error), error.hint]
        return found
    return work

for num_reads in (-1, 1):
    for consumer in CONSUMERS:
        for size in (0, len(content) - 1):
            print(json.dumps([num_reads, forked(read(consumer, size, num_reads))]))
            shard.write_bytes(content)
"""


@pytest.fixture(scope="module")
def cut_short(tmp_path_factory):
    """What readers met, by the steps they had read when the last of three shards lost all or one of its bytes.

    A shard has fourteen blocks and several pages; -1 is before it was opened.
    """
    folder = three_shards(tmp_path_factory.mktemp("cut"), num_blocks=14, block_len=512)
    outcomes = {-1: [], 1: []}
    for num_reads, outcome in in_a_process(FORKED + CUT, folder):
        outcomes[num_reads].append(outcome)
    assert [len(found) for found in outcomes.values()] == [6, 6]
    return folder, max((folder / "blocks").iterdir()), outcomes


@pytest.mark.parametrize(
    "num_reads", [pytest.param(-1, id="before it is opened"), pytest.param(1, id="before it is touched")]
)
def test_a_shard_that_is_cut_short_is_named_with_the_remedy_and_kills_nobody(num_reads, cut_short):
    folder, shard, outcomes = cut_short
    for outcome in outcomes[num_reads]:
        assert outcome[0] == "CheckError", outcome
        assert str(shard) in outcome[1]
        assert f"packer build … -o {folder} --repair" in outcome[2]


def test_a_shard_that_is_gone_is_named_with_the_remedy(tmp_path):
    three_shards(tmp_path)
    cache = Cache.open(tmp_path)
    shard = max((tmp_path / "blocks").iterdir())
    shard.unlink()
    for open_and_read in (
        lambda: loader_of(tmp_path),
        lambda: list(loader_of(cache)),
        lambda: list(loader_of(cache, prefetch=0)),
        lambda: PackedDataset(tmp_path),
        lambda: PackedDataset(cache)[-1],
    ):
        with pytest.raises(CheckError, match="is missing") as caught:
            open_and_read()
        assert str(shard) in caught.value.message
        assert "--repair" in caught.value.hint


# A flipped bit


@pytest.mark.parametrize("column", ["input_ids", "labels", "position_ids"])
def test_a_flipped_bit_is_named_by_file_and_row_before_its_step(column, tmp_path):
    three_shards(tmp_path, num_blocks=4, block_len=8)
    shard = Cache.open(tmp_path).manifest.shards[1]
    flip(tmp_path / shard.path, shard.places[0].columns[column] + 2 * 4 * 8 + 5)
    message = f"{tmp_path / shard.path} is damaged: row 2:"
    with pytest.raises(CheckError, match=message) as caught:
        PackedDataset(tmp_path)[4 + 2]
    assert "--repair" in caught.value.hint
    for prefetch in (0, 2):
        seen = []
        with pytest.raises(CheckError, match=message), loader_of(tmp_path, prefetch=prefetch) as loader:
            seen.extend(block for step in loader for block in step.block_ids.tolist())
        assert 4 + 2 not in seen and len(seen) < 12


# States


def paths(state, path=()):
    """Paths to everything in there, dicts too."""
    for name, value in state.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from paths(value, (*path, name))


def changed(state, path, change):
    copy = deepcopy(state)
    holder = copy
    for name in path[:-1]:
        holder = holder[name]
    change(holder, path[-1])
    return copy


def set_to(value):
    return lambda holder, name: holder.__setitem__(name, value)


def state_in_the_middle():
    """After the second step of the second epoch: no number in it is 0 that could be another."""
    with loader_of(small_cache(11)) as loader:
        for step in loader.endless():
            if step.index == 6:
                break
        return loader.state_dict()


def refused(state):
    """Whether a loader refuses a state, and then stays where it was."""
    loader = loader_of(small_cache(11))
    before = loader.state_dict()
    try:
        loader.load_state_dict(state)
    except PackerError as error:
        assert error.message.startswith("reader state")
        assert error.hint or "version" in error.message or "beyond" in error.message
        assert loader.state_dict() == before
        return True
    return False


STATE = state_in_the_middle()


def test_the_state_the_tests_damage_is_taken_as_it_is():
    assert not refused(STATE)
    assert len(list(paths(STATE))) >= 9


def damages(value):
    """Values of another type, and for a number some that no counter reaches: a checkpoint of tensors could not hold 2 ** 63."""
    others = [one for one in (None, "5", 1.5, True, [], {}, b"x") if type(one) is not type(value) and one != value]
    assert len(others) >= 5
    return others if isinstance(value, dict) else [*others, -1, -(2**70), 2**63, 2**70]


@pytest.mark.parametrize("path", list(paths(STATE)), ids=".".join)
def test_a_state_that_lacks_a_field_or_has_another_value_there_is_refused(path):
    assert refused(changed(STATE, path, lambda holder, name: holder.pop(name)))
    others = damages(functools.reduce(operator.getitem, path, STATE))
    assert [one for one in others if not refused(changed(STATE, path, set_to(one)))] == []


@pytest.mark.parametrize("surplus", [(), ("counters",)])
def test_a_state_with_a_field_nobody_knows_is_refused(surplus):
    assert refused(changed(STATE, (*surplus, "surplus"), set_to(1)))


def backwards(_epoch):
    return np.arange(20)[::-1]


def turned(_epoch):
    return np.roll(np.arange(20), 1)


PLACES = [
    {},
    {"seed": 1},
    {"order": "sequential"},
    *({"end": end} for end in ("pad", "short")),
    {"batching": "padded"},
    {"batching": "padded", "order": "length_bucketed"},
    {"batching": "padded", "end": "pad"},
    *({"batching": "padded", "order": order} for order in (backwards, turned)),
    {"batching": "padding_free"},
    {"batching": "token_budget", "micro_batch_size": 1000, "global_batch_size": 2000},
]
"""Loaders of one cache no two of which take the same rows for a step, or count the same."""


def test_a_state_goes_on_only_in_a_loader_whose_steps_hold_the_same(few_blocks):
    loaders = [loader_of(few_blocks, **options) for options in PLACES]
    states = [next(iter(loader)) and loader.state_dict() for loader in loaders]
    others = [loader_of(few_blocks, **options) for options in PLACES]
    num_refused = 0
    for state, mine in zip(states, PLACES, strict=True):
        for options, other in zip(PLACES, others, strict=True):
            if options == mine:
                other.load_state_dict(state)
                assert other.state_dict() == state
                continue
            differing = [name for name in ("batching", "order", "seed", "end") if mine.get(name) != options.get(name)]
            with pytest.raises(
                CheckError, match=f"reader state: it was saved with ({'|'.join(differing)})(_by)? "
            ) as caught:
                other.load_state_dict(state)
            assert "the state was saved with" in caught.value.hint
            num_refused += 1
    assert num_refused == len(PLACES) * (len(PLACES) - 1)
    for loader in loaders:
        loader.close()


@pytest.mark.parametrize(
    ("saved_by", "goes_on_in"),
    [
        ({}, {"flatten": False, "labels": "shifted", "prefetch": 0}),
        ({"batching": "padded"}, {"batching": Padded(multiple_of=8, side="left"), "labels": "shifted"}),
        ({}, {"micro_batch_size": 2, "rank": 1, "world_size": 2, "global_batch_size": 4}),
    ],
)
def test_what_only_shapes_micro_batches_is_no_part_of_a_state(saved_by, goes_on_in, few_blocks):
    with loader_of(few_blocks, **saved_by) as loader:
        next(iter(loader))
        state = loader.state_dict()
    other = loader_of(few_blocks, **goes_on_in)
    other.load_state_dict(state)
    names = ("batching", "cursor", "counters", "seed")
    assert {name: other.state_dict()[name] for name in names} == {name: state[name] for name in names}


def test_a_place_beyond_an_epoch_and_another_version_are_refused_by_their_numbers():
    for changes, message in (({"cursor": 12}, "cursor 12 is beyond the 11 blocks"), ({"version": 6}, "found 6")):
        with pytest.raises(CheckError, match=message):
            loader_of(small_cache(11)).load_state_dict(STATE | changes)
