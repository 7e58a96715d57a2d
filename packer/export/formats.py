"""The formats a cache can be exported in: one entry each. The command line, the errors and the tests read this list."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeAlias

from packer.errors import UsageError

Unit: TypeAlias = Literal["documents", "blocks"]
Kind: TypeAlias = Literal["examples", "preference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One entry."""

    writer: str
    """The module in this folder and the :class:`packer.export.writer.Writer` in it, imported when it is used."""

    help: str
    """Files and trainers, in a few words."""

    units: tuple[Unit, ...] = ("documents",)
    """Units it can hold, the default first."""

    holds_weights: bool = False
    """Whether fractional loss weights have a place; a cache that has some is refused otherwise."""

    separates_mask: bool = False
    """Whether the loss mask can be a file of its own."""

    kinds: tuple[Kind, ...] = ("examples",)
    """What its rows may be. Preference data needs a place for which answer was chosen."""

    def load(self) -> Any:
        """The class of its writers."""
        module, _, name = self.writer.partition(".")
        return getattr(import_module(f"packer.export.{module}"), name)


FORMATS: dict[str, Format] = {
    "datasets": Format(
        writer="datasets_folder.DatasetsWriter",
        help="a folder for load_from_disk (TRL, axolotl, LLaMA-Factory)",
        units=("documents", "blocks"),
        holds_weights=True,
        kinds=("examples", "preference"),
    ),
    "trl": Format(
        writer="datasets_folder.TrlWriter",
        help="pairs and rated answers, in the columns of TRL's DPO and KTO trainers",
        kinds=("preference",),
    ),
    "megatron": Format(writer="megatron.MegatronWriter", help=".bin and .idx of Megatron-LM", separates_mask=True),
    "olmo": Format(
        writer="olmo.OlmoWriter", help="arrays of ids and masks for OLMo-core", units=("documents", "blocks")
    ),
    "mds": Format(writer="mds.MdsWriter", help="MosaicML streaming shards for llm-foundry"),
}


def format_of(name: str) -> Format:
    """The format of a name.

    Raises:
        UsageError: there is none.

    """
    if name not in FORMATS:
        raise UsageError(f"there is no format '{name}'", hint=f"formats: {', '.join(FORMATS)}")
    return FORMATS[name]
