"""Exports of a cache to the files of other trainers: documents or blocks, with their loss masks or not at all."""

from typing import TYPE_CHECKING, Any

from packer.export.formats import FORMATS

if TYPE_CHECKING:
    from packer.export.run import Exported, export

__all__ = ["FORMATS", "Exported", "export"]


def __getattr__(name: str) -> Any:
    """``export`` and ``Exported`` load numpy and Arrow; the command line asks for the formats alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from packer.export import run  # noqa: PLC0415 - see above

    return getattr(run, name)
