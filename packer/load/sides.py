"""What micro-batches of preference data hold beside tokens: which answers they are, and of which pairs.

A row of a reader of pairs is a pair: two documents, the chosen and the rejected answer, that are ordered, divided among
ranks and resumed as one. In a micro-batch all chosen answers stand before the rejected ones, in one order, as trainers
concatenate them; blocks hold pairs as they were packed, each chosen answer before its rejected one.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from packer.batches import CHOSEN, REJECTED, Float32, Int64
from packer.layout import MASKED
from packer.load.layouts import MicroBatchRows
from packer.load.step import MicroBatch
from packer.load.steps import PADDING_ROW
from packer.store.cache import FoundBlocks

NO_SIDE = -1
"""In place of a side where there is no answer: padding."""


def of_documents(
    micro_batch: MicroBatch, documents: Int64, sides: Int64, margins: Float32 | None, *, paired: bool
) -> MicroBatch:
    """The columns of a micro-batch of documents; each answer is a row, or where they lie in one row a sequence.

    Args:
        micro_batch: of them.
        documents: their numbers, PADDING_ROW where there is none; of pairs the chosen ones, then the rejected ones.
        sides: of these documents, NO_SIDE of padding.
        margins: of these documents; None where no row has one.
        paired: they are pairs; else rated answers.

    """
    columns: dict[str, Any] = {"sides": torch.from_numpy(sides)}
    if paired:
        chosen = documents[: len(documents) // 2]
        columns["pair_ids"] = torch.from_numpy(np.where(chosen == PADDING_ROW, -1, chosen // 2))
    if margins is not None:
        columns["margins"] = torch.from_numpy(margins[: len(columns.get("pair_ids", documents))])
    return columns | completion_mask(micro_batch)


def of_blocks(micro_batches: list[MicroBatch], parts: list[MicroBatchRows], found: FoundBlocks) -> list[MicroBatch]:
    """The columns of micro-batches of blocks of pairs: a side for each sequence, a number for each pair.

    Worked example, a block of one pair and padding: sides 0 1 -1.
    """
    pairs, sequences = iter(found.values("pairs")), iter(found.values("seq_lengths"))
    columns = []
    for micro_batch, part in zip(micro_batches, parts, strict=True):
        sides, numbers = [], [np.zeros(0, np.int64)]
        for is_real in (part.rows != PADDING_ROW).tolist():
            own = next(pairs).astype(np.int64) if is_real else np.zeros(0, np.int64)
            of_row = np.full(len(next(sequences)) if is_real else 1, NO_SIDE, np.int64)
            of_row[: 2 * len(own)] = np.tile((CHOSEN, REJECTED), len(own))
            sides.append(of_row)
            numbers.append(own)
        named = {"sides": np.concatenate(sides), "pair_ids": np.concatenate(numbers)}
        columns.append({name: torch.from_numpy(of_all) for name, of_all in named.items()})
        columns[-1] |= completion_mask(micro_batch)
    return columns


def of_reference(reference: Any, pair_ids: Tensor) -> MicroBatch:
    """What a reference model says of some pairs, 0 where a number is -1.  # float32[B] each"""
    pairs = pair_ids.numpy()
    found = {"ref_chosen_logps": reference.chosen, "ref_rejected_logps": reference.rejected}
    return {name: torch.from_numpy(np.where(pairs < 0, np.float32(0), of_all[pairs])) for name, of_all in found.items()}


def completion_mask(micro_batch: MicroBatch) -> MicroBatch:
    """1 where a token is learned; none where the micro-batch has no labels."""
    labels = micro_batch.get("labels")
    return {} if labels is None else {"completion_mask": (labels != MASKED).to(torch.int64)}
