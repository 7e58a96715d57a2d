"""Columns that recipes declare, as a loader was asked for them: values for each position of its micro-batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from packer.batches import Int64
from packer.errors import UsageError
from packer.load.arguments import LoaderOptions
from packer.load.layouts import Beside
from packer.load.row_source import RowSource
from packer.recipe.groups import Declared, declared
from packer.store.cache import Cache, FoundBlocks, FoundDocuments
from packer.store.document_shards import block_values, token_values

PREFIX = "columns."
"""Before the name of a column while it is laid out, as a column may be called as anything else of a micro-batch."""


def asked_columns(caches: Sequence[Cache], names: Sequence[str]) -> list[Declared]:
    """Return the columns with these names; UsageError if a cache has no such column, or another than the others."""
    there = [{each.name: each for each in declared(cache.manifest.recipe)} for cache in caches]
    for name in names:
        for cache, own in zip(caches, there, strict=True):
            if name not in own:
                raise UsageError(f"{cache.folder} has no column {name}", hint=f"it has: {', '.join(own) or 'none'}")
            if own[name].form != there[0][name].form:
                raise UsageError(
                    f"the column {name} is not the same in all caches", hint="kind, width and missing agree"
                )
    return [there[0][name] for name in names]


class BatchColumns:
    """The columns that a loader was asked for."""

    def __init__(self, source: RowSource, options: LoaderOptions) -> None:
        self._columns = asked_columns(source.caches, options.columns)
        self._rows = source.rows
        self._documents = [cache.documents(options.split) for cache in source.caches]

    def values(self, rows: Int64, found: FoundBlocks | FoundDocuments) -> dict[str, Beside]:
        """Return the values of blocks or documents for a layout, by :data:`PREFIX` and name."""
        made: dict[str, list[Any]] = {each.name: [None] * len(rows) for each in self._columns}
        if isinstance(found, FoundDocuments):
            made = {each.name: token_values(found, each) for each in self._columns}
        else:
            for (places, shards, numbers), documents in zip(self._rows.by_part(rows), self._documents, strict=True):
                own = block_values(shards.locate(numbers), self._rows.block_len, documents, self._columns)
                for name, blocks in own.items():
                    for place, block in zip(places.tolist(), blocks, strict=True):
                        made[name][place] = block
        size = self._rows.block_len or 1
        return {
            f"{PREFIX}{each.name}": (made[each.name], np.full((size, *each.inner), each.fill, each.rule.kind))
            for each in self._columns
        }
