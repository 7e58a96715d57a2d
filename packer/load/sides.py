"""Columns that micro-batches of preference data have beside tokens: the side of each answer, and its pair.

A row of a reader of pairs is a pair: two documents, the chosen and the rejected answer, that are ordered, divided among
ranks and resumed as one. In a micro-batch all chosen answers come before the rejected ones, both in the same order, as
trainers concatenate them.
"""

from typing import Any

import numpy as np
import torch

from packer.batches import Int64
from packer.layout import MASKED
from packer.load.plan import PADDING_ROW
from packer.load.rows import Rows
from packer.load.step import MicroBatch

NO_SIDE = -1
"""Sentinel for the side of padding."""


def with_sides(micro_batches: list[MicroBatch], parts: list[Int64], rows: Rows) -> list[MicroBatch]:
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


def _columns(documents: Int64, rows: Rows) -> MicroBatch:
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
