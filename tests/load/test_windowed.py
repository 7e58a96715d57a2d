"""The order `windowed` against its definition, and a loader that takes it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")

from small_blocks import random_blocks, small_cache, write_cache  # noqa: E402
from small_documents import small_document_cache  # noqa: E402

from packer.errors import CheckError  # noqa: E402
from packer.load import Mixture, PackedLoader, view_batch  # noqa: E402
from packer.load.ordering import Windowed  # noqa: E402
from packer.load.windows import WindowedOrder  # noqa: E402
from packer.permute import permutation_key, permute  # noqa: E402
from packer.store.cache import Cache  # noqa: E402

SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any)
ALONE = {"rank": 0, "world_size": 1, "prefetch": 0}


def shuffled(items, *key):
    images = permute(np.arange(len(items)), len(items), permutation_key("packer.load.windowed", "f00d", *key))
    return [items[image] for image in images.tolist()]


def literal_windows(sizes, window, seed, epoch):
    """The windows of an epoch, each the shards in it and its rows in their order, made as the definition says it."""
    rows = [list(range(sum(sizes[:shard]), sum(sizes[: shard + 1]))) for shard in range(len(sizes))]
    in_order = shuffled([shard for shard, size in enumerate(sizes) if size], seed, epoch)
    windows = [in_order[first : first + window] for first in range(0, len(in_order), window)]
    return [
        (own, shuffled([row for shard in own for row in rows[shard]], seed, epoch, number))
        for number, own in enumerate(windows)
    ]


def order_of(sizes, window, seed=0, **options):
    return WindowedOrder(fingerprint="f00d", seed=seed, sizes=np.array(sizes, np.int64), window=window, **options)


@given(sizes=SIZES, window=st.integers(1, 5), seed=st.integers(0, 9), epoch=st.integers(0, 3), data=st.data())
def test_windows_are_those_of_the_definition_wherever_they_are_entered(sizes, window, seed, epoch, data):
    windows = literal_windows(sizes, window, seed, epoch)
    rows = [row for _, own in windows for row in own]
    assert sorted(rows) == list(range(sum(sizes))), "every row once"
    order = order_of(sizes, window, seed)
    for _ in range(3):  # whatever was asked before
        start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(rows))] * 2)))
        assert order.rows(epoch, start, stop).tolist() == rows[start:stop]
    owner = np.repeat(np.arange(len(sizes)), sizes)
    place = 0
    for number, (own, own_rows) in enumerate(windows):
        end = place + len(own_rows)
        entered = data.draw(st.integers(place, end - 1))
        assert order.window(epoch, entered) == (number, place, end)
        asked = list(dict.fromkeys(owner[rows[entered:end]].tolist()))
        found = order.shards_from(epoch, entered)
        assert found[: len(asked)] == asked and sorted(found) == sorted(own), "shards that rows ask for, first"
        place = end


def test_rows_that_are_left_out_are_left_out_of_their_shards():
    kept = np.array([0, 1, 5, 6, 8])
    order = order_of([2, 0, 2, 1], 2, rows=kept)
    places = [place for _, own in literal_windows([2, 0, 2, 1], 2, 0, 1) for place in own]
    assert order.rows(1, 0, 5).tolist() == kept[places].tolist()


def test_golden_order():
    order = order_of([70, 70, 70, 70, 20], 2, seed=7)
    assert order.rows(2, 0, 300)[[0, 1, 139, 140, 200, 299]].tolist() == GOLDEN


GOLDEN = [81, 157, 98, 17, 52, 236]


# In a loader


def rows_of(loader):
    return [row for step in loader for row in step.block_ids.tolist()]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windowed")
    return Cache.open(write_cache(folder, [random_blocks(10 + number, seed=number) for number in range(7)]))


def test_a_loader_gives_windows_of_shards_and_a_state_belongs_to_them(cache, tmp_path):
    options = {"end": "short", "global_batch_size": 5, **ALONE}
    sizes = [10 + number for number in range(7)]
    loader = PackedLoader(cache, order=Windowed(3), **options)
    for epoch in range(2):
        assert rows_of(loader) == [row for _, own in literal_windows(sizes, 3, 0, epoch) for row in own]
    usual = PackedLoader(cache, order="windowed", **options)
    assert rows_of(usual) == literal_windows(sizes, 7, 0, 0)[0][1], "small shards are one window"
    with pytest.raises(CheckError, match="saved with order_by"):
        usual.load_state_dict(loader.state_dict())
    blocks = [random_blocks(10 + number, seed=number) for number in range(7)]
    other = Cache.open(write_cache(tmp_path / "other", [*blocks[:5], *blocks[6:], blocks[5]]))
    with pytest.raises(CheckError, match="saved with order_by"):  # the same rows in other shards
        PackedLoader(other, order=Windowed(3), **options).load_state_dict(loader.state_dict())


def test_a_step_is_shown_as_the_state_of_its_loader_has_it(cache):
    loader = PackedLoader(cache, order=Windowed(3), global_batch_size=5, **ALONE)
    steps = iter(loader)
    next(steps)
    state = loader.state_dict()
    assert view_batch(cache, state=state).step.block_ids.tolist() == next(steps).block_ids.tolist()


@pytest.mark.parametrize("world_size", [1, 4])
def test_steps_are_the_same_for_any_ranks_and_go_on_anywhere(cache, world_size):
    options = {"order": Windowed(2), "global_batch_size": 8, "end": "wrap"}
    alone = PackedLoader(cache, **options, **ALONE).endless()
    expected = [next(alone).block_ids.tolist() for _ in range(30)]
    state, found = None, []
    for _ in range(10):  # opened anew every three steps
        loaders = [PackedLoader(cache, **options, rank=rank, world_size=world_size) for rank in range(world_size)]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        steps = [loader.endless() for loader in loaders]
        found += [[row for each in steps for row in next(each).block_ids.tolist()] for _ in range(3)]
        state = loaders[0].state_dict()
        assert all(loader.state_dict() == state for loader in loaders)
        for loader in loaders:
            loader.close()
    assert found == expected


def test_documents_that_a_cutoff_leaves_out_and_mixtures_are_windowed_too():
    documents, _ = small_document_cache(40)
    with pytest.warns(UserWarning, match="no trained token"):
        cut = PackedLoader(documents, order=Windowed(1), batching="padded", cutoff_len=3, end="short", **ALONE)
    rows = rows_of(cut)
    assert sorted([*rows, *cut.untrained.tolist()]) == list(range(40))
    first = [row < 20 for row in rows]
    assert first in (sorted(first), sorted(first, reverse=True)), "one shard, then the other"

    caches = small_cache(30), small_cache(60)
    mixture = Mixture([(each, 1) for each in caches], epoch="all_exhausted")
    mixed = PackedLoader(mixture, order=Windowed(1), end="short", **ALONE)
    steps = iter(mixed)
    rows = [next(steps).block_ids.item() for _ in range(77)]
    again = PackedLoader(mixture, order=Windowed(1), end="short", **ALONE)
    again.load_state_dict(mixed.state_dict())
    rows += rows_of(again)
    alone = PackedLoader(caches[1], order=Windowed(1), end="short", **ALONE)
    assert [row - 30 for row in rows if row >= 30] == rows_of(alone)


@pytest.mark.parametrize("window", [0, 1.5, "8"])
def test_a_window_that_is_none_is_refused(window):
    with pytest.raises(ValueError, match="window is"):
        PackedLoader(small_cache(9), order=Windowed(window), **ALONE)
