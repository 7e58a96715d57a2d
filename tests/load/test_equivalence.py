"""Packed blocks train a model exactly as their documents run one by one do."""

import numpy as np
import pytest
import torch
from small_blocks import PAD_ID, random_documents, write_cache
from tiny_decoder import TinyDecoder, causal, summed_loss
from whole_documents import plan_whole

from packer.batches import DocumentColumns
from packer.load import PackedLoader
from packer.load.attention import block_diagonal_mask, document_ids
from packer.pack.pieces import gather

BLOCK_LEN = 24


def sample_documents(seed=0):
    rng = np.random.default_rng(seed)
    return random_documents(rng, rng.integers(2, 15, 20).tolist())


def packed(documents, *, align=1):
    """The documents, planned and gathered; doc_ids are indices into the list."""
    lengths = np.array([len(document.input_ids) for document in documents], np.int32)
    columns = DocumentColumns(
        input_ids=(np.concatenate([document.input_ids for document in documents]),),
        labels=(np.concatenate([document.labels for document in documents]),),
        chunk=np.zeros(len(documents), np.int32),
        start=np.cumsum(lengths, dtype=np.int64) - lengths,
        length=lengths,
        doc_id=np.arange(len(documents), dtype=np.int64),
    )
    layout = plan_whole(lengths, BLOCK_LEN, align=align)
    return gather(layout, columns, block_len=BLOCK_LEN, pad_id=PAD_ID)


def loader_of(folder, blocks, **options):
    write_cache(folder, [blocks])
    options = {"micro_batch_size": 2, "global_batch_size": 4, "end": "pad", "rank": 0, "world_size": 1, **options}
    return PackedLoader(folder, **options)


def mask_of(micro_batch):
    """The attention a model must use, made of nothing but what the micro-batch carries.  # bool [B, 1, T, T]"""
    if "document_ids" in micro_batch:
        return block_diagonal_mask(micro_batch["document_ids"]).unsqueeze(1)
    return block_diagonal_mask(document_ids(micro_batch["cu_seq_lens_q"]))[None, None]


def alone(model, document):
    """Logits of one document by itself.  # float64 [1, n, V]"""
    ids = torch.from_numpy(document.input_ids.astype(np.int64))[None]
    return model(ids, torch.arange(ids.shape[1])[None], causal(ids.shape[1]))


def labels_of(document):
    return torch.from_numpy(document.labels.astype(np.int64))[None]


def gradients(model, loss):
    return torch.autograd.grad(loss, list(model.parameters()))


def largest_difference(first, second):
    differences = [(one - other).abs().max() for one, other in zip(first, second, strict=True)]
    return torch.stack(differences).max().item()  # unlike Python's max, NaN where any is NaN


@pytest.mark.parametrize(("flatten", "align"), [(True, 1), (False, 1), (True, 8)])
def test_loss_and_gradients_equal_those_of_documents_run_one_by_one(tmp_path, flatten, align):
    """Also of aligned blocks, where the padding behind a document is part of its sequence."""
    documents, model = sample_documents(), TinyDecoder()
    expected = sum(summed_loss(alone(model, document), labels_of(document)) for document in documents)
    actual, num_micro_batches, num_items = 0, 0, 0
    for step in loader_of(tmp_path, packed(documents, align=align), flatten=flatten):
        for micro_batch in step:
            assert not (micro_batch.get("cu_seq_lens_q", torch.zeros(1)) % align).any()
            logits = model(micro_batch["input_ids"], micro_batch["position_ids"], mask_of(micro_batch))
            actual = actual + summed_loss(logits, micro_batch["labels"])
            num_micro_batches += 1
        num_items += step.num_items_in_batch
    assert num_micro_batches > 2
    assert num_items == sum(int((document.labels != -100).sum()) for document in documents)
    assert abs((actual - expected).item()) < 1e-9
    assert largest_difference(gradients(model, actual), gradients(model, expected)) < 1e-9
