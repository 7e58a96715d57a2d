"""Micro-batches of random documents in every form a model takes, laid out one by one."""

import numpy as np
import torch


def random_ids(lengths, vocab_size=50, seed=0):
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.integers(1, vocab_size, length)) for length in lengths]


def labels_of(ids):
    return torch.cat([torch.tensor([-100]), ids[1:]])


def flattened(lengths, *, padding=0, **options):
    """One row [1, T]: the documents, then a run of `padding` zeros as a sequence of its own."""
    documents = random_ids(lengths, **options)
    pad = torch.zeros(padding, dtype=torch.int64)
    bounds = np.cumsum([0, *lengths, *([padding] if padding else [])])
    micro_batch = {
        "input_ids": torch.cat([*documents, pad])[None],
        "labels": torch.cat([*map(labels_of, documents), pad - 100])[None],
        "position_ids": torch.cat([torch.arange(n) for n in np.diff(bounds).tolist()])[None],
    }
    for side in ("q", "k"):
        micro_batch[f"cu_seq_lens_{side}"] = torch.from_numpy(bounds.astype(np.int32))
        micro_batch[f"max_length_{side}"] = int(np.diff(bounds).max())
    return micro_batch


def rows(lengths, **options):
    """Two equal rows of the same documents [2, T], with numbers that go on from row to row."""
    one, other = (flattened(lengths, seed=seed, **options) for seed in (0, 1))
    numbers = torch.arange(len(lengths), dtype=torch.int32).repeat_interleave(torch.tensor(lengths))
    stacked = {name: torch.cat([one[name], other[name]]) for name in ("input_ids", "labels", "position_ids")}
    return {**stacked, "document_ids": torch.stack([numbers, numbers + len(lengths)])}


def padded(lengths, *, side="right", **options):
    """A document a row [B, longest], filled with zeros on one side."""
    documents = random_ids(lengths, **options)
    B, T = len(lengths), max(lengths)
    names = ("input_ids", "attention_mask", "labels", "position_ids")
    micro_batch = {name: torch.full((B, T), -100 if name == "labels" else 0) for name in names}
    for row, ids in enumerate(documents):
        at = slice(0, len(ids)) if side == "right" else slice(T - len(ids), T)
        micro_batch["input_ids"][row, at] = ids
        micro_batch["attention_mask"][row, at] = 1
        micro_batch["labels"][row, at] = labels_of(ids)
        micro_batch["position_ids"][row, at] = torch.arange(len(ids))
    return micro_batch


def assert_same(one, other):
    """Two micro-batches hold the same columns, of the same types and values."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        if torch.is_tensor(value):
            assert value.dtype == other[name].dtype, name
            assert torch.equal(value, other[name]), name
        else:
            assert value == other[name], name
