"""The dataloader of torchtitan's page, over a stand-in for its base class: pairs of rows, and a state between steps."""

import sys
from dataclasses import dataclass
from itertools import islice
from types import ModuleType

import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")

from small_blocks import small_cache  # noqa: E402
from task_pages import python_of  # noqa: E402
from tiny_decoder import TinyDecoder  # noqa: E402

from packer.load import PackedLoader  # noqa: E402
from packer.load.attention import block_diagonal_mask  # noqa: E402

CACHE = small_cache(23, 16)
ALONE = {"dp_rank": 0, "dp_world_size": 1, "seq_len": 16, "local_batch_size": 2, "tokenizer": None}


class BaseDataLoader:
    @dataclass(kw_only=True)
    class Config:
        dataset_path: str | None = None


@pytest.fixture
def batches_of(monkeypatch):
    base = ModuleType("torchtitan.components.dataloader")
    base.BaseDataLoader = BaseDataLoader
    for name in ("torchtitan", "torchtitan.components", base.__name__):
        monkeypatch.setitem(sys.modules, name, base)
    (code,) = python_of("trainers/torchtitan.md")
    names = {"__name__": "page"}
    exec(code, names)
    config = names["PackedDataLoader"].Config(dataset_path=CACHE.folder, seed=5, global_batch_size=8)
    opened = []

    def batches(**runtime):
        opened.append(names["PackedDataLoader"](config, **ALONE | runtime))
        return opened[-1]

    yield batches
    for each in opened:
        each.loader.close()


def test_pairs_are_the_loaders_micro_batches_over_ends_of_epochs(batches_of):
    options = {"micro_batch_size": 2, "global_batch_size": 8, "rank": 0, "world_size": 1, "seed": 5}
    with PackedLoader(CACHE, flatten=False, labels="shifted", **options) as loader:
        expected = [micro_batch for step in islice(loader.endless(), 7) for micro_batch in step]
    pairs = list(islice(batches_of(), 28))
    assert len(expected) == 28
    for (inputs, labels), micro_batch in zip(pairs, expected, strict=True):
        assert set(inputs) == {"input", "positions"}
        assert inputs["input"].shape == labels.shape == (2, 16)
        assert torch.equal(inputs["input"], micro_batch["input_ids"])
        assert torch.equal(inputs["positions"], micro_batch["position_ids"])
        assert torch.equal(labels, micro_batch["shift_labels"])


def test_the_loss_of_a_step_is_the_mean_over_its_documents_alone(batches_of):
    """As torchtitan's loop has it: documents begin where positions are 0; summed losses over the labels counted."""
    model, pairs = TinyDecoder(), list(islice(batches_of(), 4))
    together = apart = counted = num_documents = 0
    for inputs, labels in pairs:
        counted += int((labels != -100).sum())
        documents = torch.cumsum((inputs["positions"] == 0).int(), dim=1) - 1
        logits = model(inputs["input"], inputs["positions"], block_diagonal_mask(documents)[:, None])
        together += torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        for ids, positions, targets in zip(inputs["input"], inputs["positions"], labels, strict=True):
            starts = torch.nonzero(positions == 0).flatten().tolist()
            for start, stop in zip(starts, [*starts[1:], 16], strict=True):
                mask = torch.ones(stop - start, stop - start, dtype=torch.bool).tril()
                alone = model(ids[None, start:stop], positions[None, start:stop], mask)[0]
                apart += torch.nn.functional.cross_entropy(alone, targets[start:stop], reduction="sum")
                num_documents += 1
    assert num_documents > 10
    torch.testing.assert_close(together / counted, apart / counted, rtol=1e-12, atol=0)


def test_a_state_between_steps_goes_on_at_the_next_step_on_other_ranks_and_none_is_saved_within_one(batches_of):
    batches = batches_of()
    pairs = iter(batches)
    next(pairs)
    with pytest.raises(ValueError, match="within a step"):
        batches.state_dict()
    for _ in range(7):
        next(pairs)
    state = batches.state_dict()
    expected = torch.cat([inputs["input"] for inputs, _ in islice(pairs, 4)])
    parts = []
    for rank in range(2):
        resumed = batches_of(local_batch_size=4, dp_rank=rank, dp_world_size=2)
        resumed.load_state_dict({})
        resumed.load_state_dict(state)
        parts.append(next(iter(resumed))[0]["input"])
    assert sorted(torch.cat(parts).tolist()) == sorted(expected.tolist())  # who reads which is free
