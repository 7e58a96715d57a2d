"""Every form of the boundaries says the same: who may see whom."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from small_micro_batches import flattened, padded, rows  # noqa: E402

from packer.load.attention import (  # noqa: E402
    block_diagonal_mask,
    document_ids,
    document_mask_mod,
    documents_of,
    mask_4d,
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
    T = sum(lengths)
    assert documents.dtype == torch.int32 and documents.shape == (T,)
    assert torch.equal(block_diagonal_mask(documents), expected)
    assert torch.equal(mask_4d(documents[None]), expected[None, None])
    query, key = torch.meshgrid(torch.arange(T), torch.arange(T), indexing="ij")
    zero = torch.tensor(0)
    assert torch.equal(document_mask_mod(documents[None])(zero, zero, query, key), expected)


def test_numbers_of_sequences_count_from_nought():
    bounds = torch.tensor([0, 3, 5], dtype=torch.int32)
    assert document_ids(bounds).tolist() == [0, 0, 0, 1, 1]


@given(lengths=LENGTHS)
def test_seq_idx_is_what_transformers_own_collator_gives(lengths):
    transformers = pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: conformance is not tested")
    collate = transformers.DataCollatorWithFlattening(return_seq_idx=True, return_flash_attn_kwargs=True)
    features = [{"input_ids": list(range(length)), "labels": list(range(length))} for length in lengths]
    theirs = collate(features, return_tensors="pt")
    ours = documents_of({"cu_seq_lens_q": theirs["cu_seq_lens_q"]})
    assert torch.equal(ours, theirs["seq_idx"])
    assert ours.dtype == theirs["seq_idx"].dtype


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_an_additive_mask_is_nought_where_a_key_is_seen_and_the_lowest_number_elsewhere(dtype):
    documents = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 2, 2, 3]], dtype=torch.int32)
    mask, seen = mask_4d(documents, dtype), mask_4d(documents)
    assert mask.shape == seen.shape == (2, 1, 5, 5)
    assert mask.dtype == dtype and seen.dtype == torch.bool
    assert (mask[seen] == 0).all()
    assert (mask[~seen] == torch.finfo(dtype).min).all()
    assert seen.sum() == 3 + 6 + 1 + 1 + 3 + 1


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_a_mask_of_integers_is_refused(dtype):
    with pytest.raises(ValueError, match="floating"):
        mask_4d(torch.zeros(1, 3, dtype=torch.int32), dtype)


def test_documents_without_a_batch_dimension_are_refused():
    with pytest.raises(ValueError, match=r"\[3\]; expected \[B, T\]"):
        mask_4d(torch.zeros(3, dtype=torch.int32))


def test_a_micro_batch_of_any_form_says_its_documents():
    flat, stacked, filled = flattened([3, 2], padding=2), rows([2, 1]), padded([1, 3], side="left")
    assert documents_of(flat).tolist() == [[0, 0, 0, 1, 1, 2, 2]]
    assert documents_of(stacked).tolist() == [[0, 0, 1], [2, 2, 3]]
    assert documents_of(filled).tolist() == [[0, 0, 1], [1, 1, 1]]
    for micro_batch in (flat, stacked, filled):
        assert documents_of(micro_batch).shape == micro_batch["input_ids"].shape
    with pytest.raises(ValueError, match="no document boundaries"):
        documents_of({"input_ids": torch.zeros(1, 3)})


@pytest.mark.slow
def test_flex_attention_makes_of_the_rule_the_dense_mask_row_by_row():
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    documents = torch.stack([document_ids(bounds_of(lengths)) for lengths in ([5, 9, 1, 4, 13], [16, 16], [1, 31])])
    rule, dense = document_mask_mod(documents), mask_4d(documents)
    assert torch.equal(flex.create_mask(rule, 3, None, 32, 32, device="cpu"), dense)
    blocks = flex.create_block_mask(rule, 3, None, 32, 32, device="cpu", BLOCK_SIZE=8)
    # a block of 8 x 8 is kept where any of its pairs is
    kept = dense.view(3, 1, 4, 8, 4, 8).any(dim=5).any(dim=3)
    assert torch.equal(blocks.to_dense().bool(), kept)
    assert not kept.all()


@pytest.mark.slow  # importing what flex_attention calls; the mask it makes of the rule is looked at above
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_and_sdpa_give_the_same_with_the_rule_and_the_mask():
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    documents = torch.stack([document_ids(bounds_of(lengths)) for lengths in ([5, 9, 1, 4, 13], [16, 16])])
    query, key, value = torch.randn(3, 2, 4, 32, 8, generator=torch.Generator().manual_seed(0)).unbind(0)
    blocks = flex.create_block_mask(document_mask_mod(documents), 2, None, 32, 32, device="cpu")
    attend = torch.nn.functional.scaled_dot_product_attention
    expected = attend(query, key, value, attn_mask=mask_4d(documents))
    assert (flex.flex_attention(query, key, value, block_mask=blocks) - expected).abs().max() < 1e-5
    assert (attend(query, key, value, attn_mask=mask_4d(documents, torch.float32)) - expected).abs().max() < 1e-5
    assert (attend(query, key, value, is_causal=True) - expected).abs().max() > 0.1


def test_forms_stay_on_the_device_of_what_they_are_made_from():
    documents = torch.zeros(1, 5, dtype=torch.int32, device="meta")
    assert mask_4d(documents).device.type == mask_4d(documents, torch.float16).device.type == "meta"
    assert block_diagonal_mask(documents).device.type == "meta"
