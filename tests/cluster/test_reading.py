"""Training from a bucket of a real server, 20 ms away."""

from collections import Counter
from itertools import islice
from urllib.parse import urlsplit

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")

from bucket_objects import put  # noqa: E402
from processes import start  # noqa: E402
from slow_network import delayed  # noqa: E402
from small_blocks import write_cache  # noqa: E402

from packer.batches import BlockBatch  # noqa: E402
from packer.load import PackedLoader  # noqa: E402
from packer.store import bucket as buckets  # noqa: E402
from packer.store.bucket import Bucket  # noqa: E402
from packer.store.cache import Cache  # noqa: E402

pytestmark = pytest.mark.slow

NUM_SHARDS, BLOCKS, LENGTH = 128, 256, 256
OPTIONS = {"global_batch_size": 48, "micro_batch_size": 4}


def blocks(number):
    """Blocks of one document each."""
    shape, ones = (BLOCKS, LENGTH), np.arange(BLOCKS + 1, dtype=np.int64)
    ids = np.random.default_rng(number).integers(1, 50, shape).astype(np.int32)
    labels = np.where(np.arange(LENGTH), ids, -100).astype(np.int32)
    full, zeros = np.full(BLOCKS, LENGTH, np.int32), np.zeros(BLOCKS, np.int32)
    return BlockBatch(
        input_ids=ids,
        labels=labels,
        position_ids=np.tile(np.arange(LENGTH, dtype=np.int32), (BLOCKS, 1)),
        seq_lengths=full,
        seq_offsets=ones,
        doc_ids=ones[:-1] + number * BLOCKS,
        doc_starts=zeros,
        doc_lengths=full,
        doc_places=zeros,
        doc_offsets=ones,
        length=full,
        num_trained=full - 1,
    )


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    return write_cache(tmp_path_factory.mktemp("blocks") / "cache", map(blocks, range(NUM_SHARDS)))


@pytest.fixture
def url(bucket, local, endpoint, monkeypatch):
    """The cache in a bucket, 20 ms away."""
    put(bucket, local)
    with delayed(urlsplit(endpoint).port, 0.02) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        buckets._opened.cache_clear()
        yield bucket.url
    buckets._opened.cache_clear()


def taken(step):
    return step.block_ids.tolist(), [micro_batch["input_ids"].numpy().tobytes() for micro_batch in step]


def ranks(cache, world_size, **options):
    return [PackedLoader(cache, rank=rank, world_size=world_size, **OPTIONS, **options) for rank in range(world_size)]


def test_batches_of_any_ranks_are_those_of_a_local_reader_and_each_shard_is_fetched_once(
    local, url, tmp_path, monkeypatch
):
    """Ranks of one node share a folder, in steps as in training; after each world size another node goes on."""
    fetched: Counter[str] = Counter()
    stream = Bucket.stream

    def counted(bucket, name, *given, **options):
        fetched[name] += name.endswith(".arrow")
        return stream(bucket, name, *given, **options)

    monkeypatch.setattr(Bucket, "stream", counted)
    state = None
    for folder, world_size in ((tmp_path / "node", 1), (tmp_path / "node", 2), (tmp_path / "other", 3)):
        here = ranks(Cache.open(url, cache_dir=folder), world_size)
        there = ranks(local, world_size)
        for loader in (*here, *there):
            if state is not None:
                loader.load_state_dict(state)
        iterations = zip(*[each.endless() for each in here], *[each.endless() for each in there], strict=True)
        for steps in islice(iterations, 230):
            assert [taken(step) for step in steps[:world_size]] == [taken(step) for step in steps[world_size:]]
        state = here[0].state_dict()
        assert all(loader.state_dict() == state for loader in (*here, *there))
        for loader in (*here, *there):
            loader.close()
    assert fetched.total() == 2 * NUM_SHARDS


READER = """
import sys
from packer import Cache, PackedLoader
for step in PackedLoader(Cache.open(sys.argv[1], cache_dir=sys.argv[2]), rank=0, world_size=1):
    print(step.index, flush=True)
"""


def test_a_process_that_ends_in_the_middle_ends_at_once_and_in_silence(url, tmp_path):
    code = READER.replace("    print(step.index, flush=True)", "    print(step.index, flush=True)\n    sys.exit()")
    reader = start(code, url, tmp_path)
    output, errors = reader.communicate(timeout=60)
    assert (reader.returncode, output, errors) == (0, "0\n", "")
