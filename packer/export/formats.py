"""The export formats, one entry each. The command line, error messages and tests all read this table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, TypeAlias

from packer.errors import UsageError

Unit: TypeAlias = Literal["documents", "blocks"]

NEEDS = {
    "documents": "documents: its trainer reads blocks",
    "blocks": "blocks: its trainer packs documents itself",
    "sides": "which answer was chosen",
}
"""What the format of a cache's export may need a place for, and how an error names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """An export format."""

    module: str
    """Module in this folder that writes it, imported on demand. It has three functions: `write` writes a split and
    returns its details, `write_index` the files that cover all splits, and `notes` yields what to know for training."""

    help: str
    """The files and trainers, in a few words."""

    holds: tuple[str, ...] = ("documents",)
    """Which of :data:`NEEDS` it has a place for; a cache that needs another one is refused."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `write` and `notes`, where a module writes several formats."""

    conventions: Mapping[str, Any] = field(default_factory=lambda: {"labels": "unshifted", "masked": -100})
    """For export.json: what a reader of the columns has to know. It does not import `packer.layout`, for --help."""

    writes_columns: bool = False
    """Whether the columns that a recipe declares are written."""

    @property
    def unit(self) -> Unit:
        """What is exported unless somebody says otherwise."""
        return "documents" if "documents" in self.holds else "blocks"

    def load(self) -> Any:
        """Import and return its module."""
        return import_module(f"packer.export.{self.module}")


FORMATS: dict[str, Format] = {
    "datasets": Format(
        module="datasets_folder",
        help="a folder for load_from_disk (TRL, axolotl, LLaMA-Factory)",
        holds=("documents", "blocks", "sides"),
        writes_columns=True,
    ),
    "megatron-bridge": Format(
        module="packed_parquet",
        help="blocks as packed Parquet (Megatron-Bridge)",
        holds=("blocks",),
        conventions={"loss_mask": "shifted: 1 where the next token is trained"},
    ),
    "skyrl": Format(
        module="datasets_folder",
        help="such a folder with a loss_mask in place of labels (SkyRL, verl)",
        options={"as_mask": True},
        conventions={"loss_mask": "unshifted: 1 where a token is trained"},
    ),
}


def format_of(name: str) -> Format:
    """Return the format with this name."""
    if name not in FORMATS:
        raise UsageError(f"there is no format '{name}'", hint=f"formats: {', '.join(FORMATS)}")
    return FORMATS[name]
