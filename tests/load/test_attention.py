"""Every form of the boundaries says the same: who may see whom."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_micro_batches import flattened, padded, rows

from packer.load.attention import (
    block_diagonal_mask,
    document_ids,
    documents_of,
)

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def bounds_of(lengths):
    return torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int32)


def literal_mask(lengths):
    owner = [number for number, length in enumerate(lengths) for _ in range(length)]
    return [[owner[q] == owner[k] and k <= q for k in range(len(owner))] for q in range(len(owner))]


@given(lengths=LENGTHS)
def test_every_form_is_the_literal_rule(lengths):
    bounds, expected = bounds_of(lengths), torch.tensor(literal_mask(lengths))
    documents = document_ids(bounds)
    assert documents.dtype == torch.int32 and documents.shape == (sum(lengths),)
    assert torch.equal(block_diagonal_mask(documents), expected)
    assert torch.equal(block_diagonal_mask(documents[None]), expected[None])


@given(lengths=LENGTHS)
def test_seq_idx_is_what_transformers_own_collator_gives(lengths):
    transformers = pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: conformance is not tested")
    collate = transformers.DataCollatorWithFlattening(return_seq_idx=True, return_flash_attn_kwargs=True)
    features = [{"input_ids": list(range(length)), "labels": list(range(length))} for length in lengths]
    theirs = collate(features, return_tensors="pt")
    ours = documents_of({"cu_seq_lens_q": theirs["cu_seq_lens_q"]})
    assert torch.equal(ours, theirs["seq_idx"])
    assert ours.dtype == theirs["seq_idx"].dtype


def test_a_micro_batch_of_any_form_says_its_documents():
    flat, stacked, filled = flattened([3, 2], padding=2), rows([2, 1]), padded([1, 3], side="left")
    assert documents_of(flat).tolist() == [[0, 0, 0, 1, 1, 2, 2]]
    assert documents_of(stacked).tolist() == [[0, 0, 1], [2, 2, 3]]
    assert documents_of(filled).tolist() == [[0, 0, 1], [1, 1, 1]]
    for micro_batch in (flat, stacked, filled):
        assert documents_of(micro_batch).shape == micro_batch["input_ids"].shape
    with pytest.raises(ValueError, match="no document boundaries"):
        documents_of({"input_ids": torch.zeros(1, 3)})


@pytest.mark.slow  # torch imports much for a device without data
def test_forms_stay_on_the_device_of_what_they_are_made_from():
    documents = torch.zeros(1, 5, dtype=torch.int32, device="meta")
    assert block_diagonal_mask(documents).device.type == "meta"
