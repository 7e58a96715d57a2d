"""The manifest's entries for the Arrow files of a cache, and its counts, which the conservation laws relate."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from packer.names import FilePath, SplitName

Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""Up to what every reader of JSON keeps exactly; sums of counts that add up to one fit 64 bits, too."""

Hex = Annotated[str, Meta(pattern=r"\A[0-9a-f]{1,64}\Z")]


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Where in the file one record batch keeps its fixed-width columns and, if it has any, its loss weights."""

    first_row: Count
    num_rows: Count
    columns: dict[str, Count]
    """Column → byte offset of its values from the start of the file: [num_rows × L] for a list column of a block shard,
    [num_rows] for a scalar column, one for each token for the loss weights of documents."""


class Shard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    path: FilePath
    kind: Literal["documents", "blocks"]
    split: SplitName
    source: Count | None
    """Documents: index into `inputs`. Blocks: None."""

    key: Hex | None
    """Documents: identity of the partition's bytes and the documents half of the recipe. Blocks: None."""

    first_row: Count
    """Documents: the input row the partition begins with. Blocks: index of the first block within its split."""

    first_line: Count = 0
    """Documents: lines of the input before the partition, if its rows are lines. Blocks: 0."""

    num_rows: Count
    """Rows of this file: documents or blocks."""

    num_kept: Count
    """Documents: rows of the partition with at least one document in this shard. Blocks: 0."""

    num_input_rows: Count
    """Documents: rows of the partition = kept + rejected. Blocks: 0."""

    num_rejected: Count
    num_tokens: Count
    num_trained: Count
    num_merged: Count
    """Documents: turns whose boundary merges. Blocks: 0."""

    num_skipped: Count = 0
    """Documents: answers that should be trained but are not, because they are empty or have no prompt. Blocks: 0."""

    joined: bool = False
    """Documents: whether it has columns whose values come from files. Blocks: False."""

    num_last_tokens: Count
    """Documents: tokens of each kept row's last document; num_tokens divided by this is the cost of rewriting. Blocks:
    0."""

    num_bytes: Count
    xxh3: Hex
    sha256: Hex
    rows_xxh3: Hex
    """xxh3-128 of the column `digest`: identifies these rows in this order, to detect a file that was swapped."""

    rows_sha256: Hex
    """sha256 of all values of the rows, which does not depend on how Arrow writes them."""

    places: tuple[Place, ...]

    def __post_init__(self) -> None:
        """Refuse tokens or record batches that are not within the file's bytes, or not contiguous up to the last row.

        The column `digest` is the last one: what begins eight bytes a row before the end of the file, ends in it.
        """
        if 4 * max(self.num_tokens, self.num_trained) > self.num_bytes:
            raise ValueError(f"{self.path}: {self.num_tokens} tokens in {self.num_bytes} bytes")
        first_row = 0
        for place in self.places:
            end = max(place.columns.values(), default=self.num_bytes) + 8 * place.num_rows
            if place.first_row != first_row or not place.num_rows or end > self.num_bytes:
                break
            first_row += place.num_rows
        else:
            if first_row == self.num_rows:
                return
        raise ValueError(f"{self.path}: its record batches do not add up to its rows, or are not within its bytes")


class StoredTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A table with one row for each row of the inputs, or of a partition."""

    path: FilePath
    key: Hex | None
    """Traits: identity of the partition's bytes and of the rules that need traits. Selection: None."""

    num_rows: Count
    num_bytes: Count
    xxh3: Hex
    sha256: Hex


class Cut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is left out of all blocks for one reason."""

    documents: Count
    """Documents without any token in a block."""

    parts: Count
    """Ranges of tokens, including whole documents; each has a line in rejected.jsonl."""

    tokens: Count
    trained: Count
    """Tokens of the parts that are trained in their document."""


class Totals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The counts of a cache. Every build and `verify` check these conservation laws:

    rows = kept + Σ rejected; tokens = trained + masked; documents = packed + Σ cut;
    tokens = tokens in blocks + Σ cut; trained = trained in blocks + Σ cut + piece_starts;
    slots = tokens in blocks + padding.
    """

    rows: Count
    kept: Count
    rejected: dict[str, Count]
    documents: Count
    tokens: Count
    trained: Count
    masked: Count
    merged: Count
    skipped: Count = 0
    packed: Count
    """Documents with at least a part in a block."""

    cut: dict[str, Cut]
    """What is left out of all blocks, by code."""

    piece_starts: Count
    """Trained tokens that are in a block but not trained there: the first of a piece that continues its document."""

    blocks: Count
    slots: Count
    padding: Count
    """Empty slots: at the end of blocks, and after documents if they are aligned."""

    @property
    def cut_tokens(self) -> int:
        """Tokens that are in no block."""
        return sum(cut.tokens for cut in self.cut.values())
