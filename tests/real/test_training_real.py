"""A cache built from real chats gives a model the loss of its documents one by one; gradients: tests/load/test_equivalence.py."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: training from a real cache is not tested")

from single_documents import read_document  # noqa: E402
from tiny_decoder import TinyDecoder, causal, summed_loss  # noqa: E402

from packer.load import PackedLoader, Padded  # noqa: E402
from packer.load.attention import block_diagonal_mask, document_ids  # noqa: E402
from packer.pipeline.from_python import build  # noqa: E402
from packer.recipe.recipe import make_recipe  # noqa: E402
from packer.store.cache import Cache  # noqa: E402

pytestmark = pytest.mark.real

VOCAB_SIZE = 6400  # of minimind


@pytest.fixture(scope="module")
def cache(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tinker") / "cache"
    values = {
        "sources": [{"path": str(real / "corpora" / "formats" / "tinker_conversations.jsonl"), "limit": 40}],
        "tokenizer": str(real / "tokenizers" / "minimind"),
        "supervision": {"history_rewrite": "exact"},
        "pack": {"block_len": 256},
    }
    build(make_recipe(values), folder, jobs=1, fail_above=1)
    return folder


def mask_of(micro_batch):
    return block_diagonal_mask(document_ids(micro_batch["cu_seq_lens_q"]))[None, None]


def logits_of(model, micro_batch):
    return model(micro_batch["input_ids"], micro_batch["position_ids"], mask_of(micro_batch))


BATCHINGS = {
    "packed": {"micro_batch_size": 2, "global_batch_size": 4},
    "padded": {"batching": "padded", "micro_batch_size": 4, "global_batch_size": 8},
    "padded left, by length": {
        "batching": Padded(multiple_of=8, side="left"),
        "order": "length_bucketed",
        "micro_batch_size": 4,
        "global_batch_size": 8,
    },
    "padding_free": {"batching": "padding_free", "micro_batch_size": 4, "global_batch_size": 8},
    "token_budget": {"batching": "token_budget", "micro_batch_size": 1024, "global_batch_size": 2048},
}


@pytest.fixture(scope="module")
def single(cache: Path) -> torch.Tensor:
    """The loss of all documents, one by one."""
    model, documents = TinyDecoder(vocab_size=VOCAB_SIZE), Cache.open(cache).documents("train")
    loss = torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        for number in range(len(documents)):
            document = read_document(documents, number)
            ids, labels = (
                torch.from_numpy(np.array(column, np.int64))[None] for column in (document.input_ids, document.labels)
            )
            loss += summed_loss(model(ids, torch.arange(ids.shape[1])[None], causal(ids.shape[1])), labels)
    return loss


@pytest.mark.slow
@pytest.mark.parametrize("options", BATCHINGS.values(), ids=BATCHINGS)
def test_batches_of_real_documents_have_the_loss_of_the_documents_one_by_one(
    cache: Path, single: torch.Tensor, options
) -> None:
    model = TinyDecoder(vocab_size=VOCAB_SIZE)
    with torch.no_grad():
        batched, num_items, num_slots = torch.zeros((), dtype=torch.float64), 0, 0
        for step in PackedLoader(cache, **options, end="pad", rank=0, world_size=1):
            for batch in step:
                batched += summed_loss(_logits(model, batch), batch["labels"])
            num_items += step.num_items_in_batch
            num_slots += step.num_slots
    assert num_items == int(Cache.open(cache).manifest.totals.trained) > 900
    assert num_slots >= int(Cache.open(cache).manifest.totals.tokens)
    assert float(single) > 0
    torch.testing.assert_close(batched, single, rtol=1e-10, atol=0)


def _logits(model, batch):
    if "attention_mask" not in batch:
        return logits_of(model, batch)
    width = batch["input_ids"].shape[1]
    seen = batch["attention_mask"].bool()[:, None, None, :] | torch.eye(width, dtype=torch.bool)  # padding sees itself
    return model(batch["input_ids"], batch["position_ids"], causal(width) & seen)


@pytest.mark.slow
def test_buckets_save_the_padding_that_the_documentation_says(real: Path, tmp_path: Path) -> None:
    """docs/explanation/reading.md: micro-batches of 8 of the 51,969 alpaca documents."""
    values = {
        "sources": [{"path": str(real / "corpora" / "alpaca_en_52k.jsonl")}],
        "tokenizer": str(real / "tokenizers" / "llama-3"),
        "pack": {"mode": "none"},
    }
    build(make_recipe(values), tmp_path / "cache")
    shares = {}
    for order in ("random", "length_bucketed"):
        options = {"micro_batch_size": 8, "global_batch_size": 64, "end": "pad", "rank": 0, "world_size": 1}
        loader = PackedLoader(tmp_path / "cache", batching="padded", order=order, **options)
        for _ in loader:
            pass
        assert loader.counters.rows == 51_969
        shares[order] = 100 * loader.counters.padding_share
    assert 45 < shares["random"] < 46
    assert 0.3 < shares["length_bucketed"] < 0.6
