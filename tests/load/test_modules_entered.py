"""How much somebody reads to follow a micro-batch from an open cache into a training loop."""

import pytest
from modules_entered import modules_entered

from packer.load import PackedLoader
from packer.store.cache import Cache

MOST = 25
"""A number to lower whenever the way gets shorter."""


@pytest.mark.parametrize("prefetch", [0, 1])
@pytest.mark.parametrize("batching", ["packed", "padded", "padding_free", "token_budget"])
def test_a_micro_batch_enters_few_modules(starter_cache, batching, prefetch):
    size = 4096 if batching == "token_budget" else 1
    options = {"batching": batching, "micro_batch_size": size, "rank": 0, "world_size": 1, "prefetch": prefetch}

    def first_micro_batch():
        with PackedLoader(cache, **options) as loader:
            assert len(next(iter(loader))[0]["input_ids"])

    with Cache.open(starter_cache) as cache:
        entered = modules_entered(first_micro_batch)
    assert {"load/loader.py", "load/reading.py", "load/layouts.py", "store/mapping.py"} <= entered
    assert len(entered) <= MOST, sorted(entered)
