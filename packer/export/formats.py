"""The export formats, one entry each. The command line, error messages and tests all read this table."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeAlias

from packer.errors import UsageError

Unit: TypeAlias = Literal["documents", "blocks"]

PLACES = {
    "documents": "documents: its trainer reads blocks",
    "blocks": "blocks: its trainer packs documents itself",
    "preference": "which answer was chosen",
    "weights": "fractional loss weights",
}
"""What an export may need, and how an error names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """An export format."""

    writer: str
    """Module in this folder and name of its :class:`packer.export.writer.Writer`, imported on demand."""

    help: str
    """The files and trainers, in a few words."""

    holds: tuple[str, ...] = ("documents",)
    """Which of :data:`PLACES` it has; a cache that needs another one is refused."""

    @property
    def unit(self) -> Unit:
        """What is exported unless somebody says otherwise."""
        return "documents" if "documents" in self.holds else "blocks"

    def load(self) -> Any:
        """Import and return its writer class."""
        module, _, name = self.writer.partition(".")
        return getattr(import_module(f"packer.export.{module}"), name)


FORMATS: dict[str, Format] = {
    "datasets": Format(
        writer="datasets_folder.DatasetsWriter",
        help="a folder for load_from_disk (TRL, axolotl, LLaMA-Factory)",
        holds=("documents", "blocks", "weights", "preference"),
    ),
    "megatron-bridge": Format(
        writer="packed_parquet.PackedParquetWriter",
        help="blocks as packed Parquet (Megatron-Bridge)",
        holds=("blocks",),
    ),
    "skyrl": Format(
        writer="datasets_folder.MaskWriter", help="such a folder with a loss_mask in place of labels (SkyRL, verl)"
    ),
}


def format_of(name: str) -> Format:
    """Return the format with this name."""
    if name not in FORMATS:
        raise UsageError(f"there is no format '{name}'", hint=f"formats: {', '.join(FORMATS)}")
    return FORMATS[name]
