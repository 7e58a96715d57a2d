"""One row that another tool prepared."""

from dataclasses import dataclass

import numpy as np

from packer.batches import Bool, Int64
from packer.layout import MASKED

MASKS = ("completion_mask", "assistant_masks", "loss_mask")
LABELLING = ("labels", *MASKS)
"""Columns that say what is trained."""

TOKEN_COLUMNS = (*LABELLING, "position_ids", "attention_mask")
"""Columns with a value for each token that are understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """One row. n tokens."""

    number: int
    """In its part, from 0."""

    input_ids: Int64  # [n]
    columns: dict[str, Int64]  # of TOKEN_COLUMNS; [n] each, unless the tool that prepared them made a mistake
    seq_lengths: Int64 | None = None

    @property
    def columns_differ(self) -> bool:
        """Whether some column has more or fewer values than there are ids."""
        return any(len(values) != len(self.input_ids) for values in self.columns.values())

    @property
    def labels(self) -> Int64 | None:
        return self.columns.get("labels")

    @property
    def trained(self) -> Bool:
        """What a trainer learns: labels, else all masks that are there, else every token.  # bool[n]"""
        if self.labels is not None:
            found: Bool = self.labels != MASKED
            return found
        trained = np.ones(len(self.input_ids), np.bool_)
        for name in MASKS:
            if name in self.columns:
                trained &= self.columns[name] != 0
        return trained
