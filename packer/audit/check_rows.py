"""The selection of a cache: its files, whether it is what the traits and the recipe give, and they what the rows do."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TypeAlias

import numpy as np

from packer.audit.file_checks import check_file, check_size, unreadable
from packer.audit.verify_report import Finding, Level
from packer.batches import RowBatch
from packer.curate import TraitMaker, TraitRules
from packer.errors import PackerError
from packer.pipeline.selecting import decide
from packer.recipe import make_recipe
from packer.source import Partition, read_rows
from packer.store.manifest import Input, Manifest, StoredTable
from packer.store.row_tables import read_table
from packer.store.selected import read_selection

WHAT = "selected rows"

AskedTraits: TypeAlias = tuple[TraitRules, StoredTable]
"""What was asked of the rows of a partition, and the table of it."""


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
        found = decide(folder, rules, manifest.inputs, shards, selection.traits)
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


def asked_traits(manifest: Manifest) -> Mapping[str, AskedTraits]:
    """What was asked of the rows of each document shard, by its path; nothing where there are no rules about rows."""
    if manifest.selection is None:
        return {}
    rules = make_recipe(manifest.recipe).row_rules
    documents = [shard for shard in manifest.shards if shard.kind == "documents"]
    parts = [0 if shard.source is None else manifest.inputs[shard.source].part or 0 for shard in documents]
    asked = zip(documents, parts, manifest.selection.traits, strict=False)
    return {shard.path: (TraitRules.of(rules, part), table) for shard, part, table in asked}


class TraitComparison:
    """The traits of a partition made again, a batch of rows at a time.

    Raises:
        CheckError: the stored ones are damaged.

    """

    def __init__(self, folder: Path, asked: AskedTraits | None) -> None:
        self._fields = () if asked is None else asked[0].fields
        self._made = None if asked is None else (TraitMaker(asked[0]), read_table(folder, asked[1]))

    def read(self, partition: Partition, entry: Input, max_row_bytes: int) -> Iterator[RowBatch]:
        """The rows of the partition, with the fields that are asked about.

        Raises:
            InputError: the input is not what it was when it was cut.

        """
        return read_rows(
            partition,
            schema=entry.schema,
            columns=entry.columns,
            roles=entry.roles,
            max_row_bytes=max_row_bytes,
            fields=self._fields,
        )

    def differences(self, rows: RowBatch, first: int) -> Iterator[tuple[int, str, str]]:
        """The first row of the batch, what was expected and what was found, where a column differs.

        Benchmarks are not read again: what their questions hit is not compared.
        """
        if self._made is None:
            return
        maker, table = self._made
        made, stored = maker.make(rows, first), table.slice(first, rows.num_rows)
        others = [name for name in made.schema.names if made[name] != stored[name].combine_chunks()]
        if others:
            yield first, "the same traits of its rows", f"other {', '.join(others)}"
