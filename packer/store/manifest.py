"""The manifest: what a cache is made of, from what, by which rules. Its presence is the commit.

Canonical JSON: UTF-8, keys sorted, one shard a line-free object, POSIX relative paths, a newline at the end; the same
manifest is always the same bytes.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

FORMAT_VERSION = 1

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Hex = Annotated[str, Meta(pattern=r"^[0-9a-f]+$")]


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one record batch keeps its fixed-width columns in the file."""

    first_row: Count
    num_rows: Count
    columns: dict[str, Count]
    """Column → offset in bytes of its values from the start of the file: [num_rows × L] for a list column of a block
    shard, [num_rows] for a scalar column."""


class Shard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str
    kind: Literal["documents", "blocks"]
    split: str
    source: Count | None
    """Documents: index into `inputs`. Blocks: None."""

    key: Hex | None
    """Documents: identity of the partition's bytes and the documents half of the recipe. Blocks: None."""

    first_row: Count
    """Documents: the input row the partition begins with. Blocks: the first block's number in its split."""

    num_rows: Count
    """Rows of this file: documents or blocks."""

    num_input_rows: Count
    """Documents: rows of the partition = kept + rejected. Blocks: 0."""

    num_rejected: Count
    num_tokens: Count
    num_trained: Count
    num_merged: Count
    """Documents: turns whose border merges. Blocks: 0."""

    num_last_tokens: Count
    """Documents: tokens of each kept row's last document; num_tokens over this is the price of rewriting. Blocks: 0."""

    num_bytes: Count
    xxh3: Hex
    """xxh3-128 of the file."""

    sha256: Hex
    places: tuple[Place, ...]


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One input file as it was read."""

    path: str
    """As the recipe names it, globs expanded, POSIX."""

    split: str
    format: str
    schema: str
    num_bytes: Count
    sha256: Hex
    num_rows: Count


class ModelFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of the tokenizer folder, kept in the cache under `model/`."""

    path: str
    num_bytes: Count
    sha256: Hex


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    files: tuple[ModelFile, ...]
    vocab_size: Count
    pad_id: Count
    eos_id: Count | None
    stop_ids: tuple[int, ...]
    control_ids: tuple[int, ...]


class Totals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The conservation laws hold on these numbers; every build and `verify` checks them.

    rows = kept + Σ rejected; tokens = trained + masked; documents = packed + Σ left_out;
    packed tokens = tokens - cut; slots = packed tokens + padding.
    """

    rows: Count
    kept: Count
    rejected: dict[str, Count]
    documents: Count
    tokens: Count
    trained: Count
    masked: Count
    merged: Count
    left_out: dict[str, Count]
    """Documents that are in no block, by code."""

    cut: Count
    """Tokens of documents that are in no block."""

    blocks: Count
    slots: Count
    padding: Count


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["packer-cache"]
    format_version: Literal[1]
    label_shift: Literal["none"]
    recipe: dict[str, Any]
    engine: str
    engine_version: str
    model: ModelRecord
    inputs: tuple[Input, ...]
    shards: tuple[Shard, ...]
    rejected_sha256: Hex
    """Digest of rejected.jsonl."""

    totals: Totals
    recipe_fingerprint: Hex
    content_fingerprint: Hex
    versions: dict[str, str]
    """What wrote the bytes; not part of the fingerprints above."""
