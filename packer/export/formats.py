"""The export formats, one entry each. The command line, error messages and tests all read this table."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeAlias

from packer.errors import UsageError
from packer.withdrawn import refuse_withdrawn

Unit: TypeAlias = Literal["documents", "blocks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """An export format."""

    writer: str
    """Module in this folder and name of its :class:`packer.export.writer.Writer`, imported on demand."""

    help: str
    """The files and trainers, in a few words."""

    units: tuple[Unit, ...] = ("documents",)
    """Units it supports, the default first."""

    holds_weights: bool = False
    """Whether it can store fractional loss weights; if not, a cache that has them is refused."""

    holds_preference: bool = False
    """Whether it can record which answer was chosen; if not, preference data is refused."""

    def load(self) -> Any:
        """Import and return its writer class."""
        module, _, name = self.writer.partition(".")
        return getattr(import_module(f"packer.export.{module}"), name)


FORMATS: dict[str, Format] = {
    "datasets": Format(
        writer="datasets_folder.DatasetsWriter",
        help="a folder for load_from_disk (TRL, axolotl, LLaMA-Factory)",
        units=("documents", "blocks"),
        holds_weights=True,
        holds_preference=True,
    ),
}


def format_of(name: str) -> Format:
    """Return the format with this name.

    Raises:
        UsageError: there is none.
    """
    if name not in FORMATS:
        refuse_withdrawn(f"packer export --to {name}")
        raise UsageError(f"there is no format '{name}'", hint=f"formats: {', '.join(FORMATS)}")
    return FORMATS[name]
