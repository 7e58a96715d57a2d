"""How the reader makes batches of documents: rules that a recipe may hold beside those of documents and blocks.

They decide no byte of documents or blocks. The manifest keeps them, so that every training run from a cache cuts and
pads alike unless it says otherwise: :class:`packer.load.PackedLoader` takes them as defaults.
"""

from typing import Annotated, Literal

from msgspec import Meta

from packer.errors import RecipeError
from packer.row_rules import Rule

BatchingName = Literal["packed", "padded", "padding_free", "token_budget"]
Side = Literal["right", "left"]

Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class Read(Rule, frozen=True, kw_only=True):
    """Batches of documents; :mod:`packer.load.batching` says what they are."""

    batching: BatchingName = "packed"
    length: Tokens | None = None
    """Tokens that rows are padded to; None pads to the longest document of a micro-batch."""

    multiple_of: Tokens | None = None
    side: Side | None = None
    """Where padding stands, None is ``right``. Of a token budget, any of these three pads documents side by side."""

    cutoff_len: Annotated[int, Meta(ge=2, le=2**31 - 1)] | None = None
    """Tokens that are read of a document."""

    @property
    def is_padded(self) -> bool:
        """Whether documents stand side by side."""
        return self.batching == "padded" or (self.batching == "token_budget" and bool(self.padding))

    @property
    def padding(self) -> dict[str, int | Side]:
        """What is said of padding."""
        said = {"length": self.length, "multiple_of": self.multiple_of, "side": self.side}
        return {name: value for name, value in said.items() if value is not None}


def check_read(read: Read, where: str) -> None:
    """Rules that go together.

    Raises:
        RecipeError: a rule that the batching leaves without a meaning.

    """
    if read.batching == "packed" and read.cutoff_len is not None:
        raise RecipeError(
            f"{where}: read.cutoff_len: blocks were cut when they were packed",
            hint="--set read.batching=padded, padding_free or token_budget; or pack.block_len",
        )
    if read.padding and not read.is_padded:
        raise RecipeError(
            f"{where}: read.{next(iter(read.padding))}: batching '{read.batching}' pads no documents",
            hint="--set read.batching=padded or token_budget",
        )
    if read.length is not None and read.multiple_of is not None:
        raise RecipeError(f"{where}: both read.length and read.multiple_of", hint="leave one of them out")
