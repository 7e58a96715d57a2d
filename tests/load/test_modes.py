"""Caches of every packing mode in the reader: boundaries where the mode has them, and the losses that follow."""

import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")

from packed_again import packed_again  # noqa: E402
from packed_caches import table  # noqa: E402
from tiny_decoder import TinyDecoder, causal, summed_loss  # noqa: E402

from packer.load import PackedLoader  # noqa: E402
from packer.load.attention import block_diagonal_mask, document_ids  # noqa: E402
from packer.store.cache import Cache  # noqa: E402


@pytest.fixture(scope="module")
def caches(starter_cache, tmp_path_factory):
    """One cache a set of rules, all of the same documents."""
    folder = tmp_path_factory.mktemp("modes")
    rules = {
        "isolated": {"block_len": 400},
        "aligned": {"block_len": 400, "align": 8},
        "stream": {"block_len": 64, "mode": "stream"},
    }
    for name, pack in rules.items():
        packed_again(starter_cache, folder / name, pack)
    return folder


def steps(folder, split="eval", **options):
    with PackedLoader(
        folder,
        split=split,
        micro_batch_size=1,
        global_batch_size=1,
        order="sequential",
        rank=0,
        world_size=1,
        prefetch=0,
        **options,
    ) as loader:
        yield from loader


@pytest.fixture(scope="module")
def model(starter_cache):
    with Cache.open(starter_cache) as cache:
        return TinyDecoder(vocab_size=cache.manifest.model.vocab_size, width=8)


def loss_of(model, folder):
    """Loss over all targets of a split, under the boundaries a micro-batch carries, and their number."""
    total, targets = 0.0, 0
    with torch.no_grad():
        for step in steps(folder):
            for micro_batch in step:
                mask = block_diagonal_mask(document_ids(micro_batch["cu_seq_lens_q"]))[None, None]
                logits = model(micro_batch["input_ids"], micro_batch["position_ids"], mask)
                total += summed_loss(logits, micro_batch["labels"]).item()
                targets += step.num_items_in_batch
    return total, targets


def test_padding_behind_documents_changes_no_loss(model, caches):
    expected, num_targets = loss_of(model, caches / "isolated")
    found, found_targets = loss_of(model, caches / "aligned")
    assert num_targets == found_targets > 500
    assert found == pytest.approx(expected, abs=1e-9 * num_targets)
    bounds = [mb["cu_seq_lens_q"] for step in steps(caches / "aligned") for mb in step]
    assert bounds and all(not (bound % 8).any() for bound in bounds)


def test_documents_that_see_each_other_are_one_sequence_a_block(model, caches):
    rows = table(caches / "stream", "blocks", "eval")
    expected, num_rows = 0.0, 0
    with torch.no_grad():
        for row in rows:
            filled = row["seq_lengths"][0]
            ids, labels = (torch.tensor([row[column][:filled]]) for column in ("input_ids", "labels"))
            logits = model(ids, torch.arange(filled)[None], causal(filled))
            expected += summed_loss(logits, labels).item()
            num_rows += 1
    found, num_targets = loss_of(model, caches / "stream")
    assert num_rows > 10 and num_targets == sum(row["num_trained"] for row in rows)
    assert found == pytest.approx(expected, abs=1e-9 * num_targets)
