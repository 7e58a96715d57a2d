"""How documents become blocks, and how the reader batches them: the recipe's groups `pack` and `read`."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from packer.errors import RecipeError
from packer.recipe.row_rules import Rule

MAX_BLOCK_LEN: Final = 2**20
"""Limit for the length of blocks and of padded rows: batches are allocated by it, and a cache may come from anybody."""

Tokens = Annotated[int, Meta(ge=1, le=MAX_BLOCK_LEN)]
PositiveInt = Annotated[int, Meta(ge=1, le=2**62)]

BatchingName = Literal["packed", "padded", "padding_free", "token_budget"]
Side = Literal["right", "left"]

EVERY_KEY = "packer explain recipe lists every key with its values"


class Pack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: Literal["isolated", "stream", "none"] = "isolated"
    """``isolated``: documents in a block cannot attend to each other. ``stream``: one stream of documents, cut at every
    block boundary, in which they can. ``none``: no blocks."""

    block_len: Tokens = 4096
    overlong: Literal["reject", "truncate_right", "split"] = "reject"
    max_pixels: PositiveInt | None = None
    align: Tokens = 1
    """Round the slots of each document up to a multiple of this: 2·cp for context parallelism, tp for sequence
    parallelism."""

    pad_id: Annotated[int, Meta(ge=0)] | None = None
    group_documents: Annotated[int, Meta(ge=1, le=2**32 - 1)] = 10_000_000
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0


def check_pack(pack: Pack, where: str) -> None:
    """Check that the rules of packing fit together."""
    if pack.mode == "none":
        return
    if pack.align > 1 and pack.mode == "stream":
        raise RecipeError(
            f"{where}: pack.align: in mode 'stream' a whole block is one sequence; only documents that are sequences "
            "of their own are padded",
            hint="--set pack.align=1, and make pack.block_len the multiple; or --set pack.mode=isolated",
        )
    if pack.block_len % pack.align:
        nearest = -(-pack.block_len // pack.align) * pack.align
        raise RecipeError(
            f"{where}: pack.align: {pack.align} does not divide pack.block_len {pack.block_len}",
            hint=f"--block-len {nearest}" if nearest <= MAX_BLOCK_LEN else EVERY_KEY,
        )
    if pack.mode == "stream" and pack.overlong != "reject":
        raise RecipeError(
            f"{where}: pack.overlong: a stream is cut wherever a block ends, whatever is there",
            hint="--set pack.overlong=reject",
        )


class Read(Rule, frozen=True, kw_only=True):
    """Rules for batches of documents, by which no byte of a cache differs; see :mod:`packer.load.arguments`.

    The manifest stores them, so that every training run from a cache pads the same way by default.
    """

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
