"""What a form of export is: what it can hold, and what its writers do."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from packer.batches import BlockBatch
from packer.export.files import Files
from packer.export.source import FlatDocuments
from packer.store.manifest import ModelRecord

Form: TypeAlias = Literal["datasets", "megatron", "olmo", "mds"]
Unit: TypeAlias = Literal["documents", "blocks"]

FORMS: dict[Form, tuple[Unit, ...]] = {
    "datasets": ("documents", "blocks"),
    "megatron": ("documents",),
    "olmo": ("documents", "blocks"),
    "mds": ("documents",),
}
"""Form → what it can hold, the default first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a writer needs to know of the split it writes."""

    files: Files
    split: str
    folder: str
    """Where the split's files go, relative to the export: empty, or ending in `/`."""

    unit: Unit
    weighted: bool
    """Some documents have fractional loss weights."""

    model: ModelRecord
    block_len: int
    separate_mask: bool
    identity: str
    """Hexadecimal digits that name exactly these rows."""


class Writer(Protocol):
    """Takes the rows of one split in their order; leaving it without `finish` removes what was written."""

    def documents(self, batch: FlatDocuments) -> None:
        """Append documents."""

    def blocks(self, batch: BlockBatch) -> None:
        """Append blocks."""

    def finish(self) -> dict[str, Any]:
        """End the files; returns what export.json says of the split beside its counts."""

    def abort(self) -> None:
        """Remove what is not finished."""
