"""How the reader batches documents: rules of a recipe besides those for documents and blocks.

They do not affect any byte of documents or blocks. The manifest stores them, so that every training run from a cache
pads the same way by default: :class:`packer.load.PackedLoader` takes its batching from them.
"""

from typing import Literal

from packer.errors import RecipeError
from packer.recipe.pack_rules import Tokens
from packer.recipe.row_rules import Rule

BatchingName = Literal["packed", "padded", "padding_free", "token_budget"]
Side = Literal["right", "left"]


class Read(Rule, frozen=True, kw_only=True):
    """Rules for batches of documents; see :mod:`packer.load.batching`."""

    batching: BatchingName = "packed"
    length: Tokens | None = None
    """Length to pad rows to, in tokens; None pads to the longest document of a micro-batch."""

    multiple_of: Tokens | None = None
    side: Side | None = None
    """Side of the padding; None means ``right``."""

    @property
    def padding(self) -> dict[str, int | Side]:
        """The keys about padding that are set."""
        said = {"length": self.length, "multiple_of": self.multiple_of, "side": self.side}
        return {name: value for name, value in said.items() if value is not None}


def check_read(read: Read, where: str) -> None:
    """Check that the rules fit together."""
    if read.padding and read.batching != "padded":
        raise RecipeError(
            f"{where}: read.{next(iter(read.padding))}: batching '{read.batching}' pads no documents",
            hint="--set read.batching=padded",
        )
    if read.length is not None and read.multiple_of is not None:
        raise RecipeError(f"{where}: both read.length and read.multiple_of", hint="leave one of them out")
