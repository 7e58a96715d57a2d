"""packer: chat files in; a verified, packed, fingerprinted token cache out.

    from packer import build, verify_cache             # no torch; export_cache, cache_stats
    from packer import PackedDataset, PackedLoader     # what training imports

Names are imported lazily: importing packer costs almost nothing, and only the last two import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from packer.version import __version__ as __version__

if TYPE_CHECKING:
    from packer.audit.diff import diff as cache_diff
    from packer.audit.stats import stats as cache_stats
    from packer.audit.verify import verify as verify_cache
    from packer.errors import PackerError
    from packer.export.run import export as export_cache
    from packer.load import PackedDataset, PackedLoader
    from packer.pipeline.from_python import build
    from packer.recipe.recipe import Recipe, load_recipe, make_recipe
    from packer.store.cache import Cache

__all__ = [
    "Cache",
    "PackedDataset",
    "PackedLoader",
    "PackerError",
    "Recipe",
    "build",
    "cache_diff",
    "cache_stats",
    "export_cache",
    "load_recipe",
    "make_recipe",
    "verify_cache",
]

_HOME = {
    "Cache": "packer.store.cache.Cache",
    "PackedDataset": "packer.load.PackedDataset",
    "PackedLoader": "packer.load.PackedLoader",
    "PackerError": "packer.errors.PackerError",
    "Recipe": "packer.recipe.recipe.Recipe",
    "build": "packer.pipeline.from_python.build",
    "cache_diff": "packer.audit.diff.diff",
    "cache_stats": "packer.audit.stats.stats",
    "export_cache": "packer.export.run.export",
    "load_recipe": "packer.recipe.recipe.load_recipe",
    "make_recipe": "packer.recipe.recipe.make_recipe",
    "verify_cache": "packer.audit.verify.verify",
}


def __dir__() -> list[str]:
    return list(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOME[name].rpartition(".")
    return getattr(import_module(module), attribute)
