"""Micro-batches of equal shapes: what a compiled model sees is one shape, and it computes the same."""

import pytest
import torch
from small_blocks import small_cache
from small_documents import small_document_cache
from tiny_decoder import TinyDecoder

from packer.errors import UsageError
from packer.load import PackedLoader, check_batch, poison_test
from packer.load.attention import block_diagonal_mask, document_ids

ALONE = {"rank": 0, "world_size": 1, "prefetch": 0, "micro_batch_size": 2, "global_batch_size": 4, "end": "pad"}


def steps_of(static_shapes):
    return list(PackedLoader(small_cache(14, 16), static_shapes=static_shapes, **ALONE))


def test_all_micro_batches_have_one_shape_and_the_sequences_they_have_otherwise():
    shapes, num_padded = set(), 0
    for one, other in zip(steps_of(False), steps_of(True), strict=True):
        for plain, static in zip(one, other, strict=True):
            shapes.add(tuple(tuple(value.shape) if torch.is_tensor(value) else value for value in static.values()))
            bounds, total = plain["cu_seq_lens_q"].tolist(), plain["input_ids"].numel()
            for side in "qk":
                assert static[f"cu_seq_lens_{side}"].tolist()[: len(bounds)] == bounds
                assert {*static[f"cu_seq_lens_{side}"].tolist()[len(bounds) :]} <= {total}
                assert static[f"max_length_{side}"] == 16
            assert torch.equal(document_ids(static["cu_seq_lens_q"]), document_ids(plain["cu_seq_lens_q"]))
            assert all(torch.equal(plain[name], static[name]) for name in ("input_ids", "labels", "position_ids"))
            assert check_batch(static).failed == check_batch(plain).failed == ()
            num_padded += len(static["cu_seq_lens_q"]) > len(bounds)
    assert len(shapes) == 1 and num_padded


def test_a_poison_test_takes_micro_batches_of_static_shapes():
    model = TinyDecoder()

    def logits(batch):
        mask = block_diagonal_mask(document_ids(batch["cu_seq_lens_q"]))[None, None]
        return model(batch["input_ids"], batch["position_ids"], mask)

    assert poison_test(model, steps_of(True)[0][0], logits=logits, alone=True)


def test_static_shapes_are_for_blocks():
    with pytest.raises(UsageError, match="for blocks") as caught:
        PackedLoader(small_document_cache(9)[0], batching="padding_free", static_shapes=True, **ALONE)
    assert "Padded(length=N)" in caught.value.hint
