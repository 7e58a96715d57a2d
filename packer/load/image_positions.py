"""Positions of packed documents with images: those that the model gives each document alone, in one row."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from packer.load.step import MicroBatch


def packed_positions(micro_batch: MicroBatch, rope_index: Callable[..., Any]) -> Tensor:
    """Return positions of a flattened micro-batch: for the mask, then for time, height and width.  # int64[4, 1, T]"""
    lengths = micro_batch["cu_seq_lens_q"].diff().tolist()
    ids, types = (micro_batch[name][0].split(lengths) for name in ("input_ids", "mm_token_type_ids"))
    mask = pad_sequence([torch.ones_like(each) for each in ids], batch_first=True)
    found, _ = rope_index(
        input_ids=pad_sequence(list(ids), batch_first=True),
        mm_token_type_ids=pad_sequence(list(types), batch_first=True),
        image_grid_thw=micro_batch.get("image_grid_thw"),
        attention_mask=mask,
    )
    return torch.cat([micro_batch["position_ids"][None], found[:, mask.bool()][:, None]])


def rope_index_of(model: Any) -> Callable[..., Any] | None:
    """Return the function by which a model gives positions in three dimensions, or None.

    Wrappers have the model as `module`, `base_model` or `model`, and a model its own decoder as `model`.
    """
    for name in ("module", "base_model", "model", "model"):
        if hasattr(model, "get_rope_index"):
            break
        model = getattr(model, name, model)
    found: Callable[..., Any] | None = getattr(model, "get_rope_index", None)
    return found
