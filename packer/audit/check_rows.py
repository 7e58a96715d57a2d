"""The selection of a cache: its files, and whether it is what the traits and the recipe give."""

from dataclasses import fields
from pathlib import Path

import numpy as np

from packer.audit.cache_files import check_file, check_size, unreadable
from packer.audit.verify_report import Finding, Level
from packer.errors import PackerError
from packer.pipeline.selecting import decide, read_traits
from packer.recipe import make_recipe
from packer.store.manifest import Manifest
from packer.store.selected import read_selection

WHAT = "selected rows"


def check_tables(folder: Path, manifest: Manifest, level: Level, *, is_whole: bool) -> list[Finding]:
    """Check the tables of rows, and decide about every row again.

    Args:
        folder: the cache.
        manifest: of it, with a selection.
        level: `quick` looks at sizes alone.
        is_whole: whether the shards are, whose lengths are asked for.

    """
    selection, findings = manifest.selection, []
    assert selection is not None, "the caller asked"
    for table in manifest.tables:
        if level == "quick":
            wrong = check_size(folder, table.path, table.num_bytes)
            findings += [] if wrong is None else [wrong]
        else:
            findings += check_file(folder, table.path, sha256=table.sha256, num_bytes=table.num_bytes)
    if findings or level == "quick" or not is_whole:
        return findings
    shards = [shard for shard in manifest.shards if shard.kind == "documents"]
    try:
        rules = make_recipe(manifest.recipe).row_rules
        stored = read_selection(folder, selection)
        found = decide(folder, rules, manifest.inputs, shards, read_traits(folder, selection.traits))
    except (PackerError, ValueError, IndexError, KeyError) as error:
        return [unreadable(selection.table.path, error)]
    different = [
        field.name
        for field in fields(stored)
        if not np.array_equal(getattr(stored, field.name), getattr(found, field.name))
    ]
    if not different:
        return []
    expected = "what the traits and the recipe give"
    return [
        Finding(
            path=selection.table.path, row=None, what=WHAT, expected=expected, found=f"other {', '.join(different)}"
        )
    ]
