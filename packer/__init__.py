"""packer: chat files in; a verified, packed, fingerprinted token cache out.

    from packer import build, load_recipe          # no torch needed
    from packer import PackedDataset, PackedLoader # what training imports

Names load when they are asked for: importing packer costs nothing, and torch is imported by the last two alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packer.audit.stats import stats
    from packer.audit.verify import verify
    from packer.build import build
    from packer.errors import PackerError
    from packer.load import PackedDataset, PackedLoader
    from packer.recipe import Recipe, load_recipe, make_recipe
    from packer.store.cache import Cache

__version__ = "0.1.0"

__all__ = [
    "Cache",
    "PackedDataset",
    "PackedLoader",
    "PackerError",
    "Recipe",
    "build",
    "load_recipe",
    "make_recipe",
    "stats",
    "verify",
]

_HOME = {
    "Cache": "packer.store.cache",
    "PackedDataset": "packer.load",
    "PackedLoader": "packer.load",
    "PackerError": "packer.errors",
    "Recipe": "packer.recipe",
    "build": "packer.build",
    "load_recipe": "packer.recipe",
    "make_recipe": "packer.recipe",
    "stats": "packer.audit.stats",
    "verify": "packer.audit.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
