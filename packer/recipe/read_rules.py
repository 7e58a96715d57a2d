"""How the reader batches documents: rules of a recipe besides those for documents and blocks.

They do not affect any byte of documents or blocks. The manifest stores them, so that every training run from a cache
truncates and pads the same way by default: :class:`packer.load.PackedLoader` takes its defaults from them.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from packer.errors import RecipeError
from packer.recipe.row_rules import Rule

BatchingName = Literal["packed", "padded", "padding_free", "token_budget"]
Side = Literal["right", "left"]

MAX_BLOCK_LEN: Final = 2**20
"""Limit for the length of blocks and of padded rows: batches are allocated by it, and a cache may come from anybody."""

Tokens = Annotated[int, Meta(ge=1, le=MAX_BLOCK_LEN)]


class Read(Rule, frozen=True, kw_only=True):
    """Rules for batches of documents; see :mod:`packer.load.batching`."""

    batching: BatchingName = "packed"
    length: Tokens | None = None
    """Length to pad rows to, in tokens; None pads to the longest document of a micro-batch."""

    multiple_of: Tokens | None = None
    side: Side | None = None
    """Side of the padding; None means ``right``."""

    cutoff_len: Annotated[int, Meta(ge=2, le=2**31 - 1)] | None = None
    """Number of tokens to read of each document."""

    @property
    def padding(self) -> dict[str, int | Side]:
        """The keys about padding that are set."""
        said = {"length": self.length, "multiple_of": self.multiple_of, "side": self.side}
        return {name: value for name, value in said.items() if value is not None}


def check_read(read: Read, where: str) -> None:
    """Check that the rules fit together."""
    if read.batching == "packed" and read.cutoff_len is not None:
        raise RecipeError(
            f"{where}: read.cutoff_len: blocks were cut when they were packed",
            hint="--set read.batching=padded, padding_free or token_budget; or pack.block_len",
        )
    if read.padding and read.batching != "padded":
        raise RecipeError(
            f"{where}: read.{next(iter(read.padding))}: batching '{read.batching}' pads no documents",
            hint="--set read.batching=padded",
        )
    if read.length is not None and read.multiple_of is not None:
        raise RecipeError(f"{where}: both read.length and read.multiple_of", hint="leave one of them out")
