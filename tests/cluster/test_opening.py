"""How many requests opening a loader asks of a bucket, counted before a real server."""

from collections import Counter

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")

from bucket_objects import put  # noqa: E402
from small_blocks import manifest_of, random_blocks  # noqa: E402
from small_documents import documents_of, write_document_cache  # noqa: E402
from store_proxy import proxied  # noqa: E402

from packer.batches import BlockBatch  # noqa: E402
from packer.load import PackedLoader  # noqa: E402
from packer.store import bucket as buckets  # noqa: E402
from packer.store import writing  # noqa: E402
from packer.store.cache import Cache  # noqa: E402
from packer.store.manifest import write_manifest  # noqa: E402
from packer.store.writing import write_blocks  # noqa: E402

pytestmark = pytest.mark.slow

NUM_SHARDS, NUM_BATCHES = 4, 3
CACHE = 3
"""Requests for any cache: the manifest, and a listing of each of two folders."""

ASKED = {
    "packed": ({}, CACHE + 1 + NUM_SHARDS * NUM_BATCHES),  # a shard, and how much of each block is trained
    "padded": ({"batching": "padded"}, CACHE + NUM_SHARDS * NUM_BATCHES),
    "length_bucketed": ({"batching": "padded", "order": "length_bucketed"}, CACHE + NUM_SHARDS * NUM_BATCHES),
    "token_budget": (
        {"batching": "token_budget", "micro_batch_size": 4096},
        CACHE + NUM_SHARDS * NUM_BATCHES,
    ),
}


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Documents and blocks in shards of record batches that are too far apart for one request."""
    folder = tmp_path_factory.mktemp("local") / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "BATCH_TOKENS", 2**18)
        documents = documents_of(NUM_SHARDS * 700, longest=2048)
        write_document_cache(folder, [documents[i * 700 : (i + 1) * 700] for i in range(NUM_SHARDS)])
    documents_alone = Cache.open(folder).manifest
    shards = [*documents_alone.shards]
    assert all(len(shard.places) == NUM_BATCHES for shard in shards)
    one = random_blocks(4, 1024)
    for index in range(NUM_SHARDS):
        batches = [repeated(one, 64) for _ in range(NUM_BATCHES)]
        shard = write_blocks(folder, batches, block_len=1024, split="train", index=index)
        assert len(shard.places) == NUM_BATCHES
        shards.append(msgspec.structs.replace(shard, first_row=index * NUM_BATCHES * 256))
    whole = manifest_of(shards, num_blocks=NUM_SHARDS * NUM_BATCHES * 256)
    write_manifest(folder, msgspec.structs.replace(whole, inputs=documents_alone.inputs))
    return folder


def repeated(batch, times):
    """The blocks of a batch again and again."""
    columns = {}
    for name in BlockBatch.__slots__:
        values = getattr(batch, name)
        if values is None:
            columns[name] = None
        elif name in ("seq_offsets", "doc_offsets"):
            columns[name] = np.concatenate([[0], np.cumsum(np.tile(np.diff(values), times))]).astype(np.int64)
        else:
            columns[name] = np.concatenate([values] * times)
    return BlockBatch(**columns)


@pytest.fixture
def asked(bucket, local, endpoint, monkeypatch):
    """The cache in a bucket, and the requests that were answered there."""
    put(bucket, local)
    with proxied(endpoint, lambda *_: None) as (address, answered):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        buckets._opened.cache_clear()
        yield bucket.url, answered
    buckets._opened.cache_clear()


@pytest.mark.parametrize("name", ASKED)
def test_opening_asks_what_the_mode_needs_and_an_epoch_the_shards(name, asked, local, tmp_path):
    url, answered = asked
    options, most = ASKED[name]
    options = {"micro_batch_size": 2, "rank": 0, "world_size": 1, "end": "short", "order": "sequential"} | options
    loader = PackedLoader(Cache.open(url, cache_dir=tmp_path / "kept"), **options)
    opening = Counter(request.command for request in answered)
    print(f"{name:20} opening {sum(opening.values()):4} {dict(opening)}")
    num_fetched = len(list((tmp_path / "kept").rglob("*.arrow")))
    assert num_fetched == (name == "packed")
    answered.clear()
    expected = PackedLoader(local, **options)
    for step, there in zip(loader, expected, strict=True):
        assert step.block_ids.tolist() == there.block_ids.tolist() and step.num_tokens == there.num_tokens
        assert step.num_items_in_batch == there.num_items_in_batch
    print(f"{name:20} epoch   {len(answered):4}")
    assert sum(opening.values()) <= most
    assert len(answered) == NUM_SHARDS - num_fetched
