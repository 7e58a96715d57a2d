"""Arrow schemas of the two kinds of shard. They are the file format: see `docs/reference/format.md`."""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from packer.store.manifest import FORMAT_VERSION, Place

Kind: TypeAlias = Literal["documents", "blocks"]

BLOCK_PIECES: Final = ("doc_ids", "doc_starts", "doc_lengths", "doc_places")
"""Columns of a block shard with one value per piece."""

_SPAN = pa.struct([pa.field("message", pa.int32()), pa.field("start", pa.int32()), pa.field("end", pa.int32())])


MEDIA_PLACES: Final = ("start", "length", "height", "width", "pixels")
_IMAGE = pa.struct([pa.field("sha256", pa.binary(32)), *(pa.field(name, pa.int32()) for name in MEDIA_PLACES)])


def documents_schema(
    *, weighted: bool, preference: bool = False, media: bool = False, values: Iterable[pa.Field] = ()
) -> pa.Schema:
    """Return the schema of a document shard.

    ``weighted`` adds loss_weights, ``preference`` side and margin, ``media`` the images of each document,
    ``values`` the columns that the recipe declares (:func:`value_fields`).
    """
    weights = [pa.field("loss_weights", pa.large_list(pa.float32()))] if weighted else []
    sides = [pa.field("side", pa.int8()), pa.field("margin", pa.float32())] if preference else []
    fields = [
        pa.field("doc_id", pa.int64()),
        pa.field("input_ids", pa.large_list(pa.int32())),
        pa.field("labels", pa.large_list(pa.int32())),
        *weights,
        pa.field("spans", pa.list_(_SPAN)),
        pa.field("length", pa.int32()),
        pa.field("num_trained", pa.int32()),
        pa.field("row", pa.int32()),
        pa.field("sample_id", pa.string()),
        *sides,
        *([pa.field("media", pa.list_(_IMAGE))] if media else []),
        *values,
        pa.field("digest", pa.uint64()),
    ]
    return pa.schema(fields, metadata=_metadata("documents"))


def blocks_schema(block_len: int, *, weighted: bool) -> pa.Schema:
    """Return the schema of a shard with blocks of ``block_len`` tokens; ``weighted`` adds loss_weights."""
    weights = [pa.field("loss_weights", pa.list_(pa.float32(), block_len))] if weighted else []
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
        *weights,
        pa.field("digest", pa.uint64()),
    ]
    return pa.schema(fields, metadata=_metadata("blocks"))


OF_ROWS: Final = {b"packer.values": b"rows"}
OF_FILES: Final = {b"packer.values": b"files"}
"""Metadata of the fields of columns that a recipe declares: where their values come from."""


def value_fields(schema: pa.Schema) -> list[pa.Field]:
    """Return the fields of the columns that a recipe declares; ValueError if one has other than numbers."""
    fields = [field for field in schema if field.metadata in (OF_FILES, OF_ROWS)]
    for kind in (field.type for field in fields):
        inner = kind.value_type if pa.types.is_large_list(kind) else kind
        if (inner.value_type if inner != kind and pa.types.is_fixed_size_list(inner) else inner) not in _NUMBERS:
            raise ValueError(f"a column of {kind}")
    return fields


_NUMBERS = (pa.int32(), pa.float32())


def block_len_of(schema: pa.Schema) -> int:
    """Return the block length of a block shard's schema; 0 if it is not one."""
    kind = schema.field("input_ids").type
    return kind.list_size if pa.types.is_fixed_size_list(kind) else 0


def placed_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns whose places the manifest records, in schema order: those of fixed width, and loss weights."""
    return tuple(
        field.name
        for field in schema
        if field.name == "loss_weights" or pa.types.is_primitive(field.type) or pa.types.is_fixed_size_list(field.type)
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
