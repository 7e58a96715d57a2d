"""How rows are laid out in micro-batches, and what sizes count."""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from packer.errors import UsageError
from packer.load.ordered_rows import OrderedRows
from packer.recipe.read_rules import BatchingName, Read, Side, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The cache's blocks, as they were packed. Sizes count blocks."""

    name: ClassVar[BatchingName] = "packed"
    padded: ClassVar[None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Padded:
    """Documents as rows, padded to one length. Sizes count documents."""

    name: ClassVar[BatchingName] = "padded"
    length: Tokens | None = None
    """Tokens to which every micro-batch is padded; None pads to its longest document."""

    multiple_of: Tokens = 1
    """The longest length is rounded up to a multiple of this: 8 or 128 suit matrix units."""

    side: Side = "right"

    @property
    def padded(self) -> "Padded":
        """How documents are padded; None for a batching that does not pad."""
        return self

    def rounded(self, longest: int) -> int:
        """Return the padded row length of a micro-batch whose longest document has `longest` tokens."""
        return self.length or -(-longest // self.multiple_of) * self.multiple_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingFree:
    """Documents concatenated in one row, kept apart by ``cu_seq_lens``. Sizes count documents."""

    name: ClassVar[BatchingName] = "padding_free"
    padded: ClassVar[None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBudget:
    """Micro-batches of as many documents as fit into `micro_batch_size` tokens. Sizes count tokens.

    A step takes documents until `global_batch_size` tokens are full; the number of micro-batches varies.
    """

    name: ClassVar[BatchingName] = "token_budget"
    padded: Padded | None = None
    """None concatenates documents as :class:`PaddingFree` does, and the budget counts their tokens. Otherwise documents
    are padded, and the budget counts rows times padded length."""


End = Literal["drop", "pad", "short", "wrap"]

Batching: TypeAlias = Packed | Padded | PaddingFree | TokenBudget

BATCHINGS: dict[BatchingName, Batching] = {
    "packed": Packed(),
    "padded": Padded(),
    "padding_free": PaddingFree(),
    "token_budget": TokenBudget(),
}


def batching_from_name(name: BatchingName, padded: Padded | None) -> Batching:
    """Return the batching with this name and padding."""
    if name == "token_budget":
        return TokenBudget(padded=padded)
    return padded if name == "padded" and padded is not None else BATCHINGS[name]


def batching_from_recipe(read: Read) -> Batching:
    """Return the batching that a recipe asks for."""
    padded = Padded(length=read.length, multiple_of=read.multiple_of or 1, side=read.side or "right")
    return batching_from_name(read.batching, padded if read.is_padded else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFormat:
    """The form of a micro-batch, whatever its batching."""

    flatten: bool
    shifted: bool
    weighted: bool


def check_rows_fit(batching: Batching, micro_batch_size: int, rows: OrderedRows) -> None:
    """Refuse rows that fit into no micro-batch.

    Raises:
        UsageError: gives their number and the length of the longest.
    """
    padded, limits = batching.padded, []
    if padded is not None and padded.length is not None:
        limits.append((padded.length, rows.lengths_of_sides.max(1), f"micro-batches are padded to {padded.length}"))
    if isinstance(batching, TokenBudget):
        limits.append((micro_batch_size, rows.lengths, "a micro-batch holds no more"))
    for longest, of_rows, reason in limits:
        lengths = np.delete(of_rows, rows.untrained)
        if too_long := int(np.count_nonzero(lengths > longest)):
            what = "pairs" if rows.num_sides == 2 else "documents"
            raise UsageError(
                f"{too_long} of {len(lengths)} {what} have more than {longest} tokens, the longest {lengths.max()}: "
                f"{reason}",
                hint="make the micro-batch larger, or set cutoff_len, which trains only their beginning",
            )
    if isinstance(batching, TokenBudget) and padded is not None:
        widest = rows.num_sides * padded.rounded(int(np.delete(rows.lengths_of_sides, rows.untrained, 0).max()))
        if widest > micro_batch_size:
            raise UsageError(
                f"a row padded to {widest} tokens does not fit into a micro-batch of {micro_batch_size}",
                hint="make the micro-batch larger, or multiple_of smaller",
            )
