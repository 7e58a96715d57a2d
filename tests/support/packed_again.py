"""A cache of the same documents in other blocks: a build from the cache's own recipe, in a copy of it."""

import shutil

from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
from packer.store.manifest import read_manifest


def packed_again(cache, folder, pack, keys=(), **options):
    """Build into a new folder with other keys of `pack`, and others as `a.b=value`; no document is made again."""
    values = read_manifest(cache).recipe
    recipe = make_recipe({**values, "pack": {**values["pack"], **pack}}, keys)
    shutil.copytree(cache, folder)
    result = build(recipe, folder, jobs=1, force=True, **{"fail_above": 1.0} | options)
    assert result.num_partitions_built == 0
    return result
