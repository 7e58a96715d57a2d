"""A loader of a cache in a bucket. tests/cluster does this with a real server."""

import pickle
import shutil
from pathlib import Path

import pytest
from bucket_objects import put
from small_blocks import random_blocks, write_cache
from small_documents import documents_of, write_document_cache

import packer
from packer.errors import StorageError
from packer.load import Mixture, PackedLoader
from packer.store.bucket import Bucket
from packer.store.cache import Cache

NUM_SHARDS = 20
ALONE = {"rank": 0, "world_size": 1}


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    batches = [random_blocks(6 + number % 3, seed=number) for number in range(NUM_SHARDS)]
    return write_cache(tmp_path_factory.mktemp("local"), batches)


@pytest.fixture
def url(local, in_memory):
    put(in_memory, local)
    return in_memory.url


@pytest.fixture
def ranges(monkeypatch):
    """The objects that ranges were asked of."""
    asked = []
    read = Bucket.read_ranges

    def noted(bucket, name, of):
        asked.append(name.partition("-")[0])
        return read(bucket, name, of)

    monkeypatch.setattr(Bucket, "read_ranges", noted)
    return asked


def shards_in(folder):
    return {path.name for path in Path(folder).rglob("*.arrow")}


def taken(step):
    return step.block_ids.tolist(), [micro_batch["input_ids"].tolist() for micro_batch in step]


@pytest.mark.parametrize(
    ("order", "world_size"),
    [
        ("sequential", 1),
        ("random", 2),
        *(pytest.param(each, 3, marks=pytest.mark.slow) for each in ("random", "sequential")),
    ],
)
def test_steps_are_those_of_a_local_cache(local, url, tmp_path, order, world_size):
    options = {"order": order, "global_batch_size": 12, "micro_batch_size": 2, "world_size": world_size}
    for rank in range(world_size):
        expected = PackedLoader(local, rank=rank, **options).endless()
        first = PackedLoader(Cache.open(url, cache_dir=tmp_path / "kept"), rank=rank, **options)
        steps = first.endless()
        for _ in range(16):
            assert taken(next(steps)) == taken(next(expected))
        first.close()
        again = PackedLoader(Cache.open(url, cache_dir=tmp_path / "kept"), rank=rank, **options)
        again.load_state_dict(first.state_dict())
        for step in again:
            assert taken(step) == taken(next(expected))
        again.close()


def test_an_iteration_begins_when_all_shards_are_here_and_one_that_prefetches_nothing_fetches_what_it_reads(
    url, tmp_path, ranges
):
    for prefetch, num_fetched in ((2, NUM_SHARDS), (0, 2)):
        kept = tmp_path / str(prefetch)
        ranges.clear()
        with PackedLoader(Cache.open(url, cache_dir=kept), prefetch=prefetch, **ALONE) as loader:
            assert len(shards_in(kept)) == 1, "it says how long blocks are"
            assert len(ranges) == NUM_SHARDS - 1, "the others say how much of each block is trained"
            next(iter(loader))
            assert len(shards_in(kept)) == num_fetched


def test_an_iteration_with_columns_begins_when_documents_are_here_too(in_memory, starter, tmp_path):
    rows = [{"prompt": "a", "completion": "b", "reward": number} for number in range(3)]
    options = {"tokenizer": starter / "tokenizer", "document_columns": {"reward": {"kind": "float32"}}}
    packer.build(rows, tmp_path / "cache", **options, pack={"block_len": 128})
    put(in_memory, tmp_path / "cache")
    for columns, num_fetched in (((), 1), (["reward"], 2)):
        kept = tmp_path / f"kept {num_fetched}"
        with PackedLoader(Cache.open(in_memory.url, cache_dir=kept), columns=columns, end="short", **ALONE) as loader:
            loader._source.fetch()
            assert len(shards_in(kept)) == num_fetched


def test_a_reader_whose_copy_was_removed_says_so(url, tmp_path):
    """Not that the bucket lacks something: nothing there needs a repair."""
    with Cache.open(url, cache_dir=tmp_path / "kept") as cache:
        blocks = cache.blocks("train")
        blocks.read([0])
        shutil.rmtree(tmp_path / "kept")
        with pytest.raises(StorageError, match=f"the local copy of {url} in .* was removed") as caught:
            blocks.read([50])
        assert "again" in caught.value.hint


def test_opening_a_loader_of_pairs_fetches_no_shard(in_memory, starter, tmp_path):
    said = [[{"role": "assistant", "content": text}] for text in "abc"]
    asked = [{"role": "user", "content": "a"}]
    rows = [{"prompt": asked, "chosen": said[0], "rejected": each} for each in said[1:]]
    packer.build(rows, tmp_path / "pairs", tokenizer=str(starter / "tokenizer"))
    put(in_memory, tmp_path / "pairs")
    for batching in ("padding_free", "padded"):
        kept = tmp_path / batching
        loader = PackedLoader(Cache.open(in_memory.url, cache_dir=kept), batching=batching, end="short", **ALONE)
        assert loader.content == "pairs" and loader.summary().steps == len(loader) > 0 and not shards_in(kept)
        assert [step.num_pairs for step in loader] and shards_in(kept)


def test_the_folder_for_copies_stays_with_a_pickled_loader(local, url, tmp_path):
    copy = pickle.loads(pickle.dumps(PackedLoader(Cache.open(url, cache_dir=tmp_path), **ALONE)))
    assert [taken(step) for step in copy] == [taken(step) for step in PackedLoader(local, **ALONE)]
    assert len(shards_in(tmp_path)) == NUM_SHARDS


def test_opening_reads_the_counts_of_all_rows_and_fetches_no_document(in_memory, tmp_path, ranges):
    documents = documents_of(60, longest=40)
    local = write_document_cache(tmp_path / "local", [documents[i : i + 10] for i in range(0, 60, 10)])
    put(in_memory, local)

    def opened(**options):
        options = {"batching": "padded", "end": "short", **ALONE, **options}
        kept = tmp_path / str(len(list(tmp_path.iterdir())))
        ranges.clear()
        here = PackedLoader(Cache.open(in_memory.url, cache_dir=kept), **options)
        num_asked, num_fetched = len(ranges), len(shards_in(kept))
        there = PackedLoader(local, **options)
        found = [(taken(step), step.num_items_in_batch, step.num_tokens, step.num_slots) for step in here]
        assert found == [(taken(step), step.num_items_in_batch, step.num_tokens, step.num_slots) for step in there]
        assert len(ranges) == num_asked, "all is asked for at opening"
        return num_asked, num_fetched

    assert opened() == opened(order="sequential") == opened(order="length_bucketed") == (6, 0)
    assert opened(batching="token_budget", micro_batch_size=64) == (6, 0)


def test_a_mixture_by_tokens_of_a_cache_in_a_bucket_is_that_of_a_local_one(in_memory, tmp_path):
    folders = [tmp_path / "first", tmp_path / "second"]
    for seed, folder in enumerate(folders):
        write_document_cache(folder, [documents_of(20, seed=seed + 2 * i) for i in range(3)], fingerprint=f"f{seed}")
    put(in_memory, folders[0])
    options = {"batching": "padding_free", "end": "short", "global_batch_size": 3, **ALONE}
    of = [
        PackedLoader(Mixture([(first, 0.7), (folders[1], 0.3)], by="tokens"), **options)
        for first in (in_memory.url, folders[0])
    ]
    steps = [[(taken(step), step.num_items_in_batch, step.num_tokens) for step in loader] for loader in of]
    assert steps[0] == steps[1] and len(steps[0]) > 10
