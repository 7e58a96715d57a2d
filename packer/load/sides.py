"""What micro-batches of preference data have beside tokens: the side of each answer and its pair, for losses of pairs.

A row of a reader of pairs is a pair: two documents, the chosen and the rejected answer, that are ordered, divided among
ranks and resumed as one. In a micro-batch all chosen answers come before the rejected ones, both in the same order, as
trainers concatenate them.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from packer.batches import CHOSEN, REJECTED, Int64
from packer.layout import MASKED
from packer.load.attention import documents_of
from packer.load.ordered_rows import PADDING_ROW, OrderedRows
from packer.load.step import MicroBatch

NO_SIDE = -1


def with_sides(micro_batches: list[MicroBatch], parts: list[Int64], rows: OrderedRows) -> list[MicroBatch]:
    """Add the columns of preference data to micro-batches.

    Args:
        micro_batches: of tokens.
        parts: documents of each, PADDING_ROW for padding; for pairs the chosen documents, then the rejected ones.
        rows: the rows they belong to.
    """
    extended = []
    for micro_batch, part in zip(micro_batches, parts, strict=True):
        columns, labels = _columns(part, rows), micro_batch.get("labels")
        if labels is not None:
            columns["completion_mask"] = (labels != MASKED).to(torch.int64)
        extended.append(micro_batch | columns)
    return extended


def _columns(documents: Int64, rows: OrderedRows) -> MicroBatch:
    """Return the columns of one micro-batch of documents, with an entry per answer or pair."""
    is_real = documents != PADDING_ROW
    columns = {"sides": np.where(is_real, rows.sides[documents], NO_SIDE)}
    firsts = documents
    if rows.content == "pairs":
        firsts = documents[: len(documents) // 2]
        columns["pair_ids"] = np.where(firsts == PADDING_ROW, -1, firsts // 2)
    if rows.margins is not None:
        margins: Any = np.where(is_real, rows.margins[documents], np.float32(np.nan))
        columns["margins"] = margins[: len(firsts)]
    return {name: torch.from_numpy(column) for name, column in columns.items()}


def answer_logps(logits: Tensor, micro_batch: MicroBatch) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of the chosen and of the rejected answers of a micro-batch, in float32 at least.

    Each is summed over the tokens where ``completion_mask`` is 1. Works for padded rows and for rows
    without padding.

    Args:
        logits: the model's output for the micro-batch's ids.  # [B, T, V]
        micro_batch: from a :class:`packer.load.PackedLoader` of pairs.

    Returns:
        float [P] each, of the pairs that are not padding: ``pair_ids[pair_ids >= 0]``
    """
    scores, targets = logits[:, :-1], micro_batch["input_ids"][:, 1:, None]
    picked = scores.gather(-1, targets)[..., 0].to(torch.promote_types(scores.dtype, torch.float32))
    # log_softmax would compute T · V log-probabilities, of which only T are needed.
    of_tokens = (picked - scores.to(picked.dtype).logsumexp(-1)) * micro_batch["completion_mask"][:, 1:]
    sums, sides = of_tokens.sum(-1), micro_batch.get("sides")
    if sides is None:
        chosen, rejected = sums.chunk(2)
        return chosen, rejected
    if "cu_seq_lens_q" in micro_batch or "document_ids" in micro_batch:
        numbers = documents_of(micro_batch)[:, 1:].long().clamp(min=0)  # -1 is padding, where the mask is 0
        sums = of_tokens.new_zeros(len(sides)).index_add(0, numbers.flatten(), of_tokens.flatten())
    return sums[sides == CHOSEN], sums[sides == REJECTED]
