"""Foreign rows as flat arrays, whatever files they come from."""

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from packer.batches import Bool, Int64
from packer.layout import MASKED, offsets_of

TOKEN_COLUMNS = ("labels", "completion_mask", "assistant_masks", "loss_mask", "position_ids", "attention_mask")
"""Columns with a value for each token that are understood."""

MASKS = ("completion_mask", "assistant_masks", "loss_mask")
LABELLING = ("labels", *MASKS)
"""Those that say what is trained."""


Lists: TypeAlias = tuple[npt.NDArray[Any], Int64]
"""A list column: flat values, and offsets of the rows into them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRows:
    """Some rows one after another. R rows, K tokens."""

    numbers: Int64  # [R] row of the part each is
    input_ids: Int64  # [K]
    offsets: Int64  # [R + 1]
    columns: dict[str, Int64]  # [K] each, of TOKEN_COLUMNS
    seq_lengths: tuple[Int64, Int64] | None
    """Values of all rows, and offsets int64[R + 1] into them."""

    unequal: Int64
    """Numbers of rows whose columns differ in length; they are not among these rows."""

    @property
    def labels(self) -> Int64 | None:
        return self.columns.get("labels")

    @property
    def trained(self) -> Bool:
        """What a trainer learns: labels, else all masks that are there, else every token.  # bool[K]"""
        if self.labels is not None:
            found: Bool = self.labels != MASKED
            return found
        trained = np.ones(len(self.input_ids), np.bool_)
        for name in MASKS:
            if name in self.columns:
                trained &= self.columns[name] != 0
        return trained

    @property
    def row_of(self) -> Int64:
        """Which of these rows each token is in.  # int64[K]"""
        return np.repeat(np.arange(len(self.numbers), dtype=np.int64), np.diff(self.offsets))


class ForeignPart(Protocol):
    """A part of a dataset with rows numbered from 0: a split, a pair of files, an array."""

    @property
    def name(self) -> str:
        """What it is called; empty where there is but one."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are there."""

    def __len__(self) -> int:
        """Rows."""

    def tokens(self) -> int | None:
        """Tokens of all rows; None where only reading them would tell."""

    def read(self, numbers: Int64) -> ForeignRows:
        """Some rows, ascending.

        Raises:
            InputError: they cannot be read, or are not what the form says.

        """


def flat_rows(
    numbers: Int64,
    ids: Lists,
    columns: dict[str, Lists],
    seq_lengths: Lists | None = None,
) -> ForeignRows:
    """Rows from list columns, each flat values and offsets; rows whose token columns differ in length are set aside."""
    lengths = np.diff(ids[1])
    equal = np.ones(len(numbers), np.bool_)
    for _, offsets in columns.values():
        equal &= np.diff(offsets) == lengths
    if not equal.all():
        ids, seq_lengths = _rows(ids, equal), None if seq_lengths is None else _rows(seq_lengths, equal)
        columns = {name: _rows(column, equal) for name, column in columns.items()}
    return ForeignRows(
        numbers=numbers[equal],
        input_ids=ids[0].astype(np.int64),
        offsets=ids[1],
        columns={name: values.astype(np.int64) for name, (values, _) in columns.items()},
        seq_lengths=None if seq_lengths is None else (seq_lengths[0].astype(np.int64), seq_lengths[1]),
        unequal=numbers[~equal],
    )


def _rows(column: Lists, wanted: Bool) -> Lists:
    values, offsets = column
    lengths = np.diff(offsets)
    return values[np.repeat(wanted, lengths)], offsets_of(lengths[wanted])
