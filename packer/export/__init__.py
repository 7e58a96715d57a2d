"""Exports of a cache to other trainers' file formats: documents or blocks, with loss masks if the format has them."""

from typing import TYPE_CHECKING, Any

from packer.export.formats import FORMATS

if TYPE_CHECKING:
    from packer.export.run import Exported, export

__all__ = ["FORMATS", "Exported", "export"]


def __getattr__(name: str) -> Any:
    """Import ``export`` and ``Exported`` lazily: they load numpy and Arrow, and the command line needs only formats."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from packer.export import run  # noqa: PLC0415 - see above

    return getattr(run, name)
