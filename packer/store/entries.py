"""The Arrow files of a cache: the schemas of its shards, and their entries in the manifest, with the counts of a cache.

Schemas are the file format: see `docs/reference/format.md`. The conservation laws relate the counts.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import Meta

from packer.names import FilePath, SplitName
from packer.rejections import ROW_REASONS

FORMAT_VERSION: Final = 6
"""Version of shards and manifest; raised when a reader of the previous one would fail or misread them."""

Kind: TypeAlias = Literal["documents", "blocks"]

Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""Up to what every reader of JSON keeps exactly; sums of counts that add up to one fit 64 bits, too."""

Hex = Annotated[str, Meta(pattern=r"\A[0-9a-f]{1,64}\Z")]


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Where in the file one record batch keeps its fixed-width columns."""

    first_row: Count
    num_rows: Count
    columns: dict[str, Count]
    """Column → byte offset of its values from the start of the file: [num_rows × L] for a list column of a block shard,
    [num_rows] for a scalar column."""


class Shard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    path: FilePath
    kind: Kind
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


def has_column(shards: Iterable[Shard], name: str) -> bool:
    """Whether some of the shards have a column, of those whose places are recorded."""
    return any(name in place.columns for shard in shards for place in shard.places)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class InNoBlock:
    """What is in no block although no rule about rows leaves it out."""

    cuts: Mapping[str, Cut]
    of_tokens: int
    """Tokens of all documents but those that rules about rows leave out."""

    @classmethod
    def of(cls, totals: Totals) -> "InNoBlock":
        cuts = {code: cut for code, cut in totals.cut.items() if code not in ROW_REASONS}
        return cls(cuts=cuts, of_tokens=totals.tokens - totals.cut_tokens + sum(cut.tokens for cut in cuts.values()))

    @property
    def tokens(self) -> int:
        return sum(cut.tokens for cut in self.cuts.values())

    def is_within(self, limit: float) -> bool:
        """Whether no larger share of the tokens than a limit is left out, and not all of them."""
        return self.share <= limit and self.tokens < self.of_tokens

    @property
    def share(self) -> float:
        return self.tokens / self.of_tokens if self.of_tokens else 0.0


BLOCK_PIECES: Final = ("doc_ids", "doc_starts", "doc_lengths", "doc_places")
"""Columns of a block shard with one value per piece."""

_SPAN = pa.struct([pa.field("message", pa.int32()), pa.field("start", pa.int32()), pa.field("end", pa.int32())])


MEDIA_PLACES: Final = ("start", "length", "height", "width", "pixels")
_IMAGE = pa.struct([pa.field("sha256", pa.binary(32)), *(pa.field(name, pa.int32()) for name in MEDIA_PLACES)])


_DOCUMENTS = (
    pa.field("doc_id", pa.int64()),
    pa.field("input_ids", pa.large_list(pa.int32())),
    pa.field("labels", pa.large_list(pa.int32())),
    pa.field("spans", pa.list_(_SPAN)),
    pa.field("length", pa.int32()),
    pa.field("num_trained", pa.int32()),
    pa.field("row", pa.int32()),
    pa.field("sample_id", pa.string()),
    pa.field("side", pa.int8()),
    pa.field("media", pa.list_(_IMAGE)),
)

OPTIONAL_COLUMNS: Final = ("side", "media")
"""Columns that a shard has only if its documents have them."""


def documents_schema(present: Collection[str] = (), values: Iterable[pa.Field] = ()) -> pa.Schema:
    """Return the schema of a document shard with some of the optional columns.

    `values` are the columns that the recipe declares (:func:`value_fields`).
    """
    fields = [field for field in _DOCUMENTS if field.name not in OPTIONAL_COLUMNS or field.name in present]
    return pa.schema([*fields, *values, pa.field("digest", pa.uint64())], metadata=_metadata("documents"))


def blocks_schema(block_len: int) -> pa.Schema:
    """Return the schema of a shard with blocks of ``block_len`` tokens."""
    fields = [
        pa.field("input_ids", pa.list_(pa.int32(), block_len)),
        pa.field("labels", pa.list_(pa.int32(), block_len)),
        pa.field("position_ids", pa.list_(pa.int32(), block_len)),
        pa.field("doc_ids", pa.list_(pa.int64())),
        pa.field("doc_starts", pa.list_(pa.int32())),
        pa.field("doc_lengths", pa.list_(pa.int32())),
        pa.field("doc_places", pa.list_(pa.int32())),
        pa.field("seq_lengths", pa.list_(pa.int32())),
        pa.field("length", pa.int32()),
        pa.field("num_trained", pa.int32()),
        pa.field("digest", pa.uint64()),
    ]
    return pa.schema(fields, metadata=_metadata("blocks"))


VALUES_OF_ROWS: Final = {b"packer.values": b"rows"}
VALUES_OF_FILES: Final = {b"packer.values": b"files"}
"""Metadata of the fields of columns that a recipe declares: where their values come from."""


def value_fields(schema: pa.Schema) -> list[pa.Field]:
    """Return the fields of the columns that a recipe declares; ValueError if one has other than numbers."""
    fields = [field for field in schema if field.metadata in (VALUES_OF_FILES, VALUES_OF_ROWS)]
    for kind in (field.type for field in fields):
        inner = kind.value_type if pa.types.is_large_list(kind) else kind
        if (inner.value_type if inner != kind and pa.types.is_fixed_size_list(inner) else inner) not in _NUMBERS:
            raise ValueError(f"a column of {kind}")
    return fields


_NUMBERS = (pa.int32(), pa.float32())


def placed_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns whose places the manifest records, in schema order: those of fixed width."""
    return tuple(
        field.name for field in schema if pa.types.is_primitive(field.type) or pa.types.is_fixed_size_list(field.type)
    )


def place_of(batch: pa.RecordBatch, *, base: int, first_row: int) -> Place:
    """Return the Place of one record batch of a file mapped at address ``base``; ValueError if it has no values.

    The values of a column are its last buffer: buffers are [validity, values]; of a list, its validity, perhaps
    its offsets, and the validity of its values come before them.
    """
    values = {name: batch.column(name).buffers()[-1] for name in placed_columns(batch.schema)}
    if batch.num_rows < 1 or any(buffer is None for buffer in values.values()):
        raise ValueError("a record batch has no values")
    columns = {name: buffer.address - base for name, buffer in values.items()}
    return Place(first_row=first_row, num_rows=batch.num_rows, columns=columns)


def _metadata(kind: Kind) -> dict[str, str]:
    return {"packer.kind": kind, "packer.format_version": str(FORMAT_VERSION)}
